"""The default transport: aiohttp, with everything off that it would do beside sending one request and reading its answer."""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from collections.abc import Iterable
from contextvars import ContextVar

import aiohttp
from aiohttp.client_middlewares import ClientHandlerType
from yarl import URL

from dispatcher.adapters.http.addresses import AddressRefused, is_private
from dispatcher.adapters.http.answer import header_pairs
from dispatcher.adapters.http.call_clock import CallClock
from dispatcher.adapters.http.failures import ambiguous, not_sent
from dispatcher.adapters.http.limits import CONNECTIONS_TRIED_MAX, HEADER_MAX_BYTES, HEADERS_MAX, IDLE_MAX_S
from dispatcher.adapters.http.target import Target
from dispatcher.core.messages.call import Answered, Call, CallResult

_AddressInfo = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[object, ...]]

# Of larger bytes aiohttp warns; as a file it sends them in parts.
_BYTES_MAX = 1024 * 1024


class _Broken(Exception):
    """A connection that failed with the request on it. Not aiohttp's own class: on those it sends a GET a second time."""


class _SpokenTo(Exception):
    """A connection on which the callee spoke before it was asked. Nothing was sent on it, and it is closed."""


class _Passage:
    """How far one call has come, and the connection that it is on. Of the task that makes the call."""

    __slots__ = ("clock", "is_whole", "transport")

    def __init__(self, clock: CallClock) -> None:
        self.clock = clock
        self.is_whole = False  # the answer was read to its end: the connection may serve others by now
        self.transport: asyncio.Transport | None = None

    def begin(self, connection: aiohttp.connector.Connection) -> None:
        """The request goes onto this connection now."""
        self.clock.sending()
        self.transport = connection.transport
        connection.add_callback(self._let_go)

    def end(self) -> None:
        """The call has ended. One that broke off is cut: closing would first send what is left of the request, and over TLS say goodbye."""
        if not self.is_whole and self.transport is not None:
            self.transport.abort()

    def _let_go(self) -> None:
        """The connection is closed, or given back: not if an early answer left a part of the request unsent."""
        if self.transport is not None and self.transport.get_write_buffer_size():
            self.transport.abort()


# That of the call that this task makes: aiohttp makes the request, and hands nothing of ours through to it.
_passage: ContextVar[_Passage] = ContextVar("_passage")


class _Request(aiohttp.ClientRequest):
    """A request that goes only onto a silent connection: aiohttp would take bytes that wait there for the answer to it."""

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        if conn.protocol is None or conn.protocol.should_close:
            raise _SpokenTo
        _passage.get().begin(conn)
        return await super().send(conn)


class AiohttpTransport:
    """One session for upstreams that may be private and one for the others, since they must not share a connection."""

    def __init__(self, targets: Iterable[Target], connections_max: int) -> None:
        trust = ssl.create_default_context()
        targets = tuple(targets)
        self._sessions = {
            private: _session(connections_max, trust, allow_private=private) for private in {target.allow_private for target in targets}
        }
        self._origins = {target.upstream: f"{target.scheme}://{target.authority}" for target in targets}
        # Of the whole call only the connecting is timed here; the engine's deadline covers the rest.
        self._timeouts = {target.upstream: aiohttp.ClientTimeout(total=None, connect=target.connect_timeout_s) for target in targets}

    async def exchange(self, target: Target, call: Call, path: str, headers: list[tuple[str, str]], clock: CallClock) -> CallResult:
        """See Transport.exchange."""
        passage = _Passage(clock)
        _passage.set(passage)
        try:
            return await self._exchange(target, call, path, headers, passage)
        finally:
            passage.end()

    async def _exchange(self, target: Target, call: Call, path: str, headers: list[tuple[str, str]], passage: _Passage) -> CallResult:
        for _ in range(CONNECTIONS_TRIED_MAX):
            try:
                response = await self._send(target, call, path, headers)
            except _SpokenTo:
                continue
            except (aiohttp.ClientError, _Broken) as error:
                return _without_answer(error, target.upstream)
            try:
                return await _answer(response, target, passage)
            except aiohttp.ClientError:
                return ambiguous("truncated", target.upstream)
            finally:
                response.close()  # without effect once the body was read to its end: the connection is back in the pool by then
        return not_sent("connect", target.upstream, "it speaks before it is asked")

    async def _send(self, target: Target, call: Call, path: str, headers: list[tuple[str, str]]) -> aiohttp.ClientResponse:
        """Send the request and read the answer's head."""
        return await self._sessions[target.allow_private].request(
            call.method,
            # encoded: as written; yarl would otherwise turn %2F in a query into a slash.
            URL(self._origins[target.upstream] + path, encoded=True),
            headers=headers,
            data=call.body if call.body is None or len(call.body) <= _BYTES_MAX else io.BytesIO(call.body),
            allow_redirects=False,
            timeout=self._timeouts[target.upstream],
        )

    async def close(self) -> None:
        """See Transport.close."""
        for session in self._sessions.values():
            await session.close()


def _session(connections_max: int, trust: ssl.SSLContext, *, allow_private: bool) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=connections_max,
            ssl=trust,
            keepalive_timeout=IDLE_MAX_S,
            socket_factory=None if allow_private else _public_socket,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Content-Type",),
        auto_decompress=False,
        trust_env=False,
        middlewares=(_once,),
        request_class=_Request,
        max_line_size=HEADER_MAX_BYTES,
        max_field_size=HEADER_MAX_BYTES,
        max_headers=HEADERS_MAX,
    )


def _public_socket(info: _AddressInfo) -> socket.socket:
    """Make the socket for one address that is about to be connected to, literal or resolved, or refuse it."""
    family, kind, protocol, _, address = info
    if is_private(str(address[0])):
        raise AddressRefused("private address")
    return socket.socket(family, kind, protocol)


async def _once(request: aiohttp.ClientRequest, send: ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending again: it repeats GET, PUT, DELETE once when a kept connection breaks."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Broken from error


async def _answer(response: aiohttp.ClientResponse, target: Target, passage: _Passage) -> CallResult:
    passage.clock.receiving()
    if response.status < 200:  # a switch of protocols that nobody asked for
        return ambiguous("protocol", target.upstream)
    body, truncated = await _body(response, target, passage.clock)
    passage.is_whole = not truncated
    return Answered(response.status, header_pairs(response.raw_headers), body, truncated)


async def _body(response: aiohttp.ClientResponse, target: Target, clock: CallClock) -> tuple[bytes, bool]:
    """Read at most as many bytes as are kept, and tell whether there were more."""
    most = target.response_max_bytes
    if target.idle_timeout_s is None and response.content_length is not None and response.content_length <= most:
        return await response.read(), False
    kept = bytearray()
    async for part in response.content.iter_any():
        clock.receiving()
        kept += part
        if len(kept) > most:
            return bytes(kept[:most]), True
    return bytes(kept), False


def _without_answer(error: Exception, upstream: str) -> CallResult:
    """Judge a failure before the answer's head. aiohttp's connector errors come before the request, all others may come after."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return not_sent("connect_timeout", upstream)
        case aiohttp.ClientConnectorDNSError():
            return not_sent("dns", upstream, error.os_error.strerror or "")
        case aiohttp.ClientConnectorCertificateError():
            return not_sent("tls", upstream, getattr(error.certificate_error, "verify_message", ""))
        case aiohttp.ClientConnectorSSLError():
            return not_sent("tls", upstream, getattr(error.os_error, "reason", None) or "")
        case aiohttp.ClientConnectorError() if isinstance(error.os_error, AddressRefused):
            return not_sent("address_refused", upstream)
        case aiohttp.ClientConnectorError():
            return not_sent("connect", upstream, error.os_error.strerror or "")
        case _Broken():
            return ambiguous("reset", upstream)
        case _:
            return ambiguous("protocol", upstream)
