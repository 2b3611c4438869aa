"""How every HTTP engine of the product connects, and to whom it does not."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from dispatcher.adapters.http import addresses, transport_aiohttp
from dispatcher.core.messages.call import NotSent
from tests.contract.engines import CALL, SHORT_S, Opener, answered_next
from tests.contract.hostile import Act, HostileCallee


async def test_nothing_listens(opened: Opener, callee: HostileCallee) -> None:
    """A refused connection is NotSent(connect), once nothing listens any more and before."""
    engine = opened(callee.url)
    await callee.stop()
    result = await engine.call(CALL)
    assert isinstance(result, NotSent)
    assert result.kind == "connect"


async def test_no_such_name(opened: Opener) -> None:
    """A name that does not exist (RFC 6761: .invalid never does) is NotSent(dns)."""
    result = await opened("http://nothing.invalid").call(CALL)
    assert isinstance(result, NotSent)
    assert result.kind == "dns"


async def test_connecting_takes_too_long(opened: Opener) -> None:
    """A callee whose queue of connections is full is NotSent(connect_timeout) after connect_timeout_s."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = []
        for _ in range(3):  # nobody accepts: the queue holds one or two, further ones are not answered
            client = socket.socket()
            client.settimeout(0)
            client.connect_ex(("127.0.0.1", port))
            waiting.append(client)
        result = await opened(f"http://127.0.0.1:{port}", connect_timeout_s=SHORT_S).call(CALL)
        for client in waiting:
            client.close()
    assert isinstance(result, NotSent)
    assert result.kind == "connect_timeout"


async def test_plain_text_where_tls_was_expected(opened: Opener, callee: HostileCallee) -> None:
    """A callee that speaks no TLS is NotSent(tls): the request never left."""
    callee.play(Act((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "close", read=False))
    result = await opened(callee.url.replace("http:", "https:")).call(CALL)
    assert isinstance(result, NotSent)
    assert result.kind == "tls"
    assert callee.requests == []


PRIVATE = (
    *("127.0.0.1", "127.1", "2130706433", "10.1.2.3", "100.64.0.1", "169.254.169.254", "0.0.0.0"),  # noqa: S104 - to be refused
    *("[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[fe80::1]", "[fd00::1]", "[64:ff9b::7f00:1]", "[::]", "localhost"),
)


@pytest.mark.parametrize("host", PRIVATE)
async def test_private_addresses_are_refused(opened: Opener, callee: HostileCallee, host: str) -> None:
    """Literal or by name, in whatever spelling: without allow_private nothing private is connected to."""
    result = await opened(f"http://{host}:{callee.port}", allow_private=False).call(CALL)
    assert isinstance(result, NotSent)
    assert result.kind == "address_refused"
    assert callee.connections == 0


async def test_a_name_that_turns_private(opened: Opener, callee: HostileCallee, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address connected to is the one that was checked: a name that first says public and then private gets nowhere.

    127.0.0.2, where nobody listens, stands for a public address: a test sends nothing beyond this machine.
    """
    asked: list[str] = []
    for module in (addresses, transport_aiohttp):
        monkeypatch.setattr(module, "is_private", lambda address: address != "127.0.0.2")

    async def lie(host: str, port: int, **_: object) -> list[Any]:
        if host == "rebinding.test":  # uvloop passes literal addresses through here too
            asked.append(host)
            host = "127.0.0.2" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lie)
    engine = opened(f"http://rebinding.test:{callee.port}", allow_private=False, connect_timeout_s=SHORT_S)
    for _ in range(3):
        result = await engine.call(CALL)
        assert isinstance(result, NotSent)
        assert result.kind in {"connect", "connect_timeout", "address_refused"}
    assert asked
    assert callee.connections == 0


async def test_the_environment_has_no_say(opened: Opener, callee: HostileCallee, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies of the environment are ignored."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    await answered_next(opened(callee.url))
