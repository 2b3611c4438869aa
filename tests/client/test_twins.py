"""`Dispatcher` and `SyncDispatcher` have the same names, and the package shows them without loading them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dispatcher
from dispatcher import ConfigError, Dispatcher, DispatcherError, Settings, SyncDispatcher

ROOT = Path(__file__).parents[2]
NAMES = ("submit", "submit_many", "ask", "wait", "cancel", "replies", "dead_letters")


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Give name, kind and default of each parameter."""
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


def test_the_twins_have_the_same_names() -> None:
    """Nothing is missing in one of them, and nothing is called otherwise."""
    public = [{name for name in vars(kind) if not name.startswith("_")} for kind in (Dispatcher, SyncDispatcher)]
    assert public == [{*NAMES, "close"}] * 2


@pytest.mark.parametrize("name", [*NAMES, "close", "__init__"])
def test_the_twins_have_the_same_signatures(name: str) -> None:
    """The same parameters, kinds and defaults; what the one awaits, the other returns."""
    assert parameters(getattr(Dispatcher, name)) == parameters(getattr(SyncDispatcher, name))


@pytest.mark.parametrize("name", dispatcher.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """What `__all__` says can be imported; what it does not say is an AttributeError."""
    assert getattr(dispatcher, name) is not None
    assert name in dir(dispatcher)


def test_other_names_are_not_there() -> None:
    """As with every module."""
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        dispatcher.nothing_of_ours  # noqa: B018 - looking is the point


def test_the_version_needs_neither_kafka_nor_pydantic() -> None:
    """`import dispatcher` is quick; the client is loaded when it is named."""
    program = (
        "import sys, dispatcher; heavy = {'pydantic', 'confluent_kafka', 'asyncio', 'aiohttp'}; print(dispatcher.__version__,"
        " sorted(heavy & set(sys.modules))); dispatcher.Dispatcher; print('confluent_kafka' in sys.modules, 'aiohttp' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == f"{dispatcher.__version__} []\nTrue False\n"


def test_settings_come_as_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address given > environment > file > default; given settings are taken as they are, but for the address."""
    file = tmp_path / "d.toml"
    file.write_text('[kafka]\nbootstrap_servers = "file:1"\n[topics]\nprefix = "mine"\n')
    monkeypatch.setenv("DISPATCHER_KAFKA__BOOTSTRAP_SERVERS", "environment:1")
    found = [Dispatcher(config=file)._settings, Dispatcher(config=str(file), bootstrap_servers="given:1")._settings]
    assert [each.kafka.bootstrap_servers for each in found] == ["environment:1", "given:1"]
    assert [each.topics.prefix for each in found] == ["mine", "mine"]
    given = Settings.model_validate({"topics": {"prefix": "p"}})
    assert Dispatcher(given)._settings is given
    assert Dispatcher(given, bootstrap_servers="given:1")._settings.kafka.bootstrap_servers == "given:1"
    with pytest.raises(ConfigError, match="not both"):
        Dispatcher(given, config=file)
    with pytest.raises(ConfigError):
        SyncDispatcher(config=tmp_path / "missing.toml")


async def test_a_client_that_is_not_open_says_so() -> None:
    """Before `async with`, and after it."""
    client = Dispatcher(Settings())
    with pytest.raises(DispatcherError, match="not open"):
        await client.submit(dispatcher.Call("u"), key="k")
    with pytest.raises(DispatcherError, match="not open"):
        client.replies()
    await client.close()
    with pytest.raises(DispatcherError, match="not open"):
        SyncDispatcher(Settings()).wait("x")


@pytest.mark.parametrize(
    "given",
    [
        {"reply_partition": -1},
        {"reply_partition": 2**31},
        {"reply_topic": "no topic"},
        {"reply_topic": "\udc80"},
        {"asks_max": 0},
        {"ack_timeout_s": 0},
    ],
)
@pytest.mark.parametrize("kind", [Dispatcher, SyncDispatcher])
def test_what_no_client_can_do_is_refused_at_once(kind: type[Any], given: dict[str, Any]) -> None:
    """As a matter of arguments: exit 2."""
    with pytest.raises(ConfigError):
        kind(Settings(), **given)
