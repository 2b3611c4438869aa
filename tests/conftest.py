"""Every test run has its own broker on a free port, every test its own topics and group: parallel runs never meet."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from dispatcher.adapters.local_broker import GivenBroker, LocalBroker, ladder
from tests.brokers import tied
from tests.topics import SettingsFactory


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the broker, before `-m` chooses: a test that asks for it cannot forget to say so."""
    for item in items:
        if {"kafka", "settings", "door"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)


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
