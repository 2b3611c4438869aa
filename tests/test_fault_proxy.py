"""The proxy of the fault runs does to a connection what it says, and only in the direction that it says."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest

from tests.e2e.proxy import Proxy, proxy
from tests.waiting import eventually

# Nothing arrives within this time where nothing may arrive at all; what may arrive is waited for as long as it takes.
SILENCE_S = 0.3
PATIENCE_S = 30


class Echo(BaseRequestHandler):
    """Sends back what it gets, and takes it down on its server."""

    def handle(self) -> None:
        try:
            while data := self.request.recv(4096):
                self.server.heard.append(data)  # type: ignore[attr-defined]
                self.request.sendall(data)
        except ConnectionError:
            pass  # a reset is what is tested


@pytest.fixture
def heard() -> list[bytes]:
    """What came out behind the proxy."""
    return []


@pytest.fixture
def way(heard: list[bytes]) -> Iterator[Proxy]:
    """Run a proxy before an echo."""
    with ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        server.heard = heard  # type: ignore[attr-defined]
        Thread(target=server.serve_forever, daemon=True).start()
        with proxy() as made:
            made.open(server.server_address[1])
            yield made
        server.shutdown()


@pytest.fixture
def client(way: Proxy) -> Iterator[socket.socket]:
    """A connection through the proxy that has carried a word there and back."""
    with connected(way) as made:
        assert b"before" == said(made, b"before")
        yield made


def connected(way: Proxy) -> socket.socket:
    """Connect through the proxy."""
    return socket.create_connection(("127.0.0.1", way.port), timeout=PATIENCE_S)


def said(client: socket.socket, word: bytes) -> bytes:
    """Say a word and give what comes back first."""
    client.sendall(word)
    return client.recv(4096)


def assert_silent(client: socket.socket) -> None:
    """Nothing comes, and it is no end either."""
    client.settimeout(SILENCE_S)
    with pytest.raises(TimeoutError):
        client.recv(4096)
    client.settimeout(PATIENCE_S)


def test_a_cut_resets_what_is_open_and_refuses_what_is_new(way: Proxy, client: socket.socket) -> None:
    """Both ends learn of it at once; healed, the same port takes connections again."""
    way.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(4096)
    with pytest.raises(ConnectionRefusedError):
        connected(way)
    way.heal()
    with connected(way) as again:
        assert b"after" == said(again, b"after")


@pytest.mark.parametrize("lost", ["requests", "answers"])
def test_one_direction_is_swallowed(way: Proxy, client: socket.socket, heard: list[bytes], lost: str) -> None:
    """Requests do not arrive, or they do and their answers are lost; healed, the connection that lost bytes is reset."""
    way.swallow("requests" if lost == "requests" else "answers")
    client.sendall(b"lost")
    if lost == "answers":
        eventually(lambda: heard == [b"before", b"lost"], what="the request has arrived")
    assert_silent(client)
    assert (b"lost" in heard) == (lost == "answers")
    way.heal()
    with pytest.raises(ConnectionResetError):
        client.recv(4096)


def test_half_open_takes_connections_and_never_answers(way: Proxy, client: socket.socket, heard: list[bytes]) -> None:
    """Old and new connections stand and say nothing; healed, new ones work."""
    way.half_open()
    client.sendall(b"old")
    with connected(way) as new:
        new.sendall(b"new")
        assert_silent(new)
        assert_silent(client)
        assert [b"before"] == heard
        way.heal()
        with pytest.raises(ConnectionResetError):
            new.recv(4096)
    with connected(way) as again:
        assert b"after" == said(again, b"after")


def test_a_delay_holds_back_and_loses_nothing(way: Proxy, client: socket.socket, heard: list[bytes]) -> None:
    """What is held back comes once it is due, or once the line is healed, on the same connection and in order."""
    way.delay(3600)
    client.sendall(b"slow")
    assert_silent(client)
    assert [b"before"] == heard
    way.heal()
    assert b"slow" == client.recv(4096)
    way.delay(0.01)
    assert b"late" == said(client, b"late")


def test_a_connection_that_came_as_it_was_closed_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that nobody closes is told by its finalizer, at any later moment, in whatever test runs then."""
    told: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", told.append)
    for _ in range(20):
        with socket.create_server(("127.0.0.1", 0)) as behind, proxy() as made:
            made.open(behind.getsockname()[1])
            clients = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(5)]
        for client in clients:
            client.close()
        del made
        gc.collect()
    assert told == []
