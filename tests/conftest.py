"""Every test run has its own broker on a free port, every test its own topics and group: parallel runs never meet."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Iterator

import pytest

from dispatcher.adapters.local_broker import GivenBroker, LocalBroker, ladder
from tests import interrupts
from tests.brokers import tied
from tests.topics import GROUPS, GroupProtocol, SettingsFactory


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--protocol`: the whole of the broker tests under another group protocol than the one that workers find out by themselves."""
    parser.addoption("--protocol", choices=GROUPS, default="auto", help="how the workers' groups are run, where a test does not say it")


def pytest_configure(config: pytest.Config) -> None:
    """Hand the protocol to those who make settings, and have Java compile quickly rather than well: our brokers live for minutes."""
    GroupProtocol.name = config.getoption("--protocol")
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # the start of a broker: 5 s of a core, not 8
    interrupts.heed()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark what needs the broker, before `-m` chooses: a test that asks for it cannot forget to say so.

    And what depends on how the group is run: all that sets a stage with workers, unless it chooses the protocol itself. When the order is
    chosen, the long tests go to its front: else one process of the run would wait at the end for the other's last one.
    """
    for item in items:
        if {"kafka", "settings", "door"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)
        sets_a_stage = {"stage", "judged_stage"} & set(vars(item.module)) if isinstance(item, pytest.Function) else None
        if sets_a_stage and "protocol" not in getattr(getattr(item, "callspec", None), "params", {}):
            item.add_marker(pytest.mark.group)
    yield
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Keep what was collected out of garbage collection: the tests that ask for one, hundreds of them, would go through it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the broker of this test run, or use the one that DISPATCHER_KAFKA__BOOTSTRAP_SERVERS names."""
    broker = ladder(tmp_path_factory.mktemp("kafka"))
    if isinstance(broker, LocalBroker):
        with tied(broker) as bootstrap:
            yield bootstrap
        return
    yield broker.up()
    if not isinstance(broker, GivenBroker):
        broker.down()


@pytest.fixture
def prefix() -> str:
    """Name this test's topics and group (not from the seeded `random`: two runs may share a broker and a seed)."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def settings(kafka: str, prefix: str) -> Iterator[SettingsFactory]:
    """Make settings for the run's broker; see `SettingsFactory`."""
    factory = SettingsFactory(kafka, prefix)
    yield factory
    factory.clean()
