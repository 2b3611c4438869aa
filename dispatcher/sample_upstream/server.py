"""The sample upstream as an HTTP server: an OpenAI-shaped chat endpoint, plain generic ones, faults on demand, and the witness.

| request | answer |
|---|---|
| `POST /v1/chat/completions` | a chat completion with a correct `usage`, after the time that its token counts take (`Timing`) |
| `GET /v1/models`, `GET /models` | the list of models: one, since every name is answered |
| `ANY /echo` | the request's body and content type |
| `ANY /status/{code}` | that status |
| `ANY /fault/{fault}` | that fault: a status, `hang`, `quota` (429, for good), `reset` (TCP RST) or `truncate` (half a body) |
| `GET /witness` | every event kept, as JSON lines |
| `GET /witness/summary` | the judgement, one JSON object; `monotonic_to_unix_s` added to a `t_s` gives seconds since 1970 |
| `POST /witness/reset` | forget what was seen |
| `PUT /outage?fault=…` | from now on every call fails so; `DELETE /outage` ends that |

`/echo`, `/status` and `/fault` stand under `/v1`, too: a base URL of an OpenAI-shaped upstream ends so.

Each of the first five takes, in the query, `fault=` (503, hang, quota, reset, truncate), `retry_after=` seconds, `retry_after_ms=` where
that header is to say something else, `times=` (how often per Idempotency-Key before it succeeds), `latency_ms=` and `key=` (the lane key,
for the witness; a chat body may say `metadata.key` instead). The header `x-sample-fault` takes the same as a query string
(`fault=429&retry_after=2`). Statuses are answered at once, as a rate limiter does; `reset` and `truncate` after the service time; `hang`
never, until the caller gives up.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NoReturn
from urllib.parse import parse_qsl

import orjson
from aiohttp import web

from dispatcher.sample_upstream.behaviour import (
    STATUS_MAX,
    STATUS_MIN,
    Fault,
    Faults,
    RateLimit,
    Timing,
    Usage,
    fault_of,
    number_in,
    usage_of,
)
from dispatcher.sample_upstream.quota import Quota
from dispatcher.sample_upstream.witness import EVENTS_KEPT_MAX, Ending, Visit, Witness

CHAT_PATH = "/v1/chat/completions"
OUTAGE_PATH = "/outage"
MODELS_PATHS = ("/v1/models", "/models")
_SERVES = f"POST {CHAT_PATH}, GET {' or '.join(MODELS_PATHS)}, /echo, /status/CODE, /fault/FAULT, and GET /witness or /witness/summary"
# Largest request body: what fits in a record of 1 MiB, with room for base64 decoded and for tests of larger ones.
REQUEST_MAX_BYTES = 16 * 1024 * 1024
# SO_LINGER on, 0 s: close() sends RST instead of FIN.
LINGER_RESET = struct.pack("ii", 1, 0)
STATUSES_WITHOUT_BODY = frozenset({204, 205, 304})
FAULT_PARAMETERS = frozenset({"fault", "retry_after", "retry_after_ms", "times"})


@dataclass(frozen=True, slots=True)
class Options:
    """How a sample upstream behaves. Port 0 takes a free one. Limits are per caller (Authorization), None: no limit.

    `rate_limit_per_s` is a bucket; `quota_per_s` a sliding window of a second, `quota_at_once` how many calls may be open.
    """

    host: str = "127.0.0.1"
    port: int = 0
    timing: Timing = field(default_factory=Timing)
    rate_limit_per_s: float | None = None
    quota_per_s: int | None = None
    quota_at_once: int | None = None
    fault_rate: float = 0.0
    seed: int = 0
    events_max: int = EVENTS_KEPT_MAX


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a call gets, and how it ends."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    ending: Ending = "answered"


class SampleUpstream:
    """One server: its behaviour, its witness, its address. Everything is owned by the event loop it runs in.

    `url` is known once it listens. Use `running()` to start and stop one.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.witness = Witness(events_max=options.events_max)
        self.url = ""
        self._faults = Faults(rate=options.fault_rate, seed=options.seed)
        self._limit = None if options.rate_limit_per_s is None else RateLimit(options.rate_limit_per_s)
        self._quota = Quota(options.quota_per_s, options.quota_at_once)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; calls are witnessed, questions to the witness are not."""
        path = request.path
        if path == OUTAGE_PATH:
            return self._go_down(request)
        if path.startswith("/witness"):
            return self._testify(request.method, path)
        number = 0
        try:
            body = await request.clone(client_max_size=REQUEST_MAX_BYTES).read()
            number = self.witness.start(_visit(request, body), time.monotonic())
            answer = await self._counted(request, path, body)
        except asyncio.CancelledError:
            self.witness.end(number, "client_closed", time.monotonic())
            raise
        # Before the answer leaves: the caller's next call must not be seen to start before this one ended.
        self.witness.end(number, answer.ending, time.monotonic(), status=answer.status)
        return await _deliver(request, answer)

    async def _counted(self, request: web.BaseRequest, path: str, body: bytes) -> _Answer:
        """Answer within the caller's quota."""
        caller = _caller(request)
        if (wait_s := self._quota.enter(caller, time.monotonic())) > 0:
            return _refusal(Fault("status", 429, retry_after_s=wait_s))
        try:
            return await self._answer(request, path, body)
        finally:
            self._quota.leave(caller)

    async def _answer(self, request: web.BaseRequest, path: str, body: bytes) -> _Answer:
        try:
            asked = _asked(request, path)
            fault = self._faults.due(fault_of(asked), request.headers.get("Idempotency-Key") or request.path_qs)
            if fault is None and (wait_s := self._limited(request)) > 0:
                fault = Fault("status", 429, retry_after_s=wait_s)
            if fault is not None and fault.kind in {"status", "quota"}:
                return _refusal(fault)
            usage, answer = _completed(request, path, body)
            latency_ms = number_in(asked, "latency_ms")
            service_s = self.options.timing.service_s(usage) if latency_ms is None else latency_ms / 1000
        except ValueError as error:
            return _error(400, str(error), "invalid_request_error")
        if fault is not None and fault.kind == "hang":
            await _forever()
        if service_s > 0:
            await asyncio.sleep(service_s)
        if fault is None:
            return answer
        ending: Ending = "reset" if fault.kind == "reset" else "truncated"
        return _Answer(answer.status, answer.body, answer.content_type, answer.headers, ending)

    def _limited(self, request: web.BaseRequest) -> float:
        if self._limit is None:
            return 0.0
        return self._limit.wait_s(_caller(request), time.monotonic())

    def _go_down(self, request: web.BaseRequest) -> web.Response:
        """An outage: `PUT` with the query of a fault begins it, `DELETE` ends it."""
        try:
            fault = fault_of(request.query) if request.method == "PUT" else None
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        if request.method not in {"PUT", "DELETE"} or (request.method == "PUT" and fault is None):
            return web.Response(status=405, text="PUT with ?fault=... begins an outage, DELETE ends it")
        self._faults.go_down(fault)
        return web.Response(status=204)

    def _testify(self, method: str, path: str) -> web.Response:
        if (method, path) == ("GET", "/witness"):
            lines = b"".join(orjson.dumps(event) + b"\n" for event in self.witness.events())
            return web.Response(body=lines, content_type="application/jsonl")
        if (method, path) == ("GET", "/witness/summary"):
            summary = self.witness.summary() | {"monotonic_to_unix_s": time.time() - time.monotonic()}
            return web.Response(body=orjson.dumps(summary), content_type="application/json")
        if (method, path) == ("POST", "/witness/reset"):
            self.witness.reset()
            return web.Response(status=204)
        return web.Response(status=404)


@contextlib.asynccontextmanager
async def running(options: Options | None = None) -> AsyncIterator[SampleUpstream]:
    """Start a sample upstream, give it while it listens, and stop it: open calls are cut. Raises OSError if the port is taken."""
    upstream = SampleUpstream(options or Options())
    server = web.Server(upstream.handle, handler_cancellation=True, access_log=None, max_line_size=65536, max_field_size=65536)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, upstream.options.host, upstream.options.port, backlog=1024)
        await site.start()
        host, port = runner.addresses[0][:2]
        upstream.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        yield upstream
    finally:
        await runner.cleanup()


def _caller(request: web.BaseRequest) -> str:
    return request.headers.get("Authorization", "")


def _visit(request: web.BaseRequest, body: bytes) -> Visit:
    headers = request.headers
    return Visit(
        partition=_whole(headers.get("Dispatcher-Partition")),
        offset=_whole(headers.get("Dispatcher-Offset")),
        epoch=_whole(headers.get("Dispatcher-Epoch")),
        attempt=_whole(headers.get("Dispatcher-Attempt")),
        idempotency_key=headers.get("Idempotency-Key"),
        key=request.query.get("key") if request.query_string else _key_in(body),
        lane=headers.get("Dispatcher-Lane"),
    )


def _key_in(body: bytes) -> str | None:
    if b'"metadata"' not in body:  # spares most bodies a second parse
        return None
    try:
        key = orjson.loads(body)["metadata"]["key"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return key if isinstance(key, str) else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _asked(request: web.BaseRequest, path: str) -> Mapping[str, str]:
    """Read what the caller asks for, in the query, in the header, or by the path `/fault/…`."""
    asked: dict[str, str] = dict(request.query) if request.query_string else {}
    in_header = request.headers.get("x-sample-fault")
    if in_header is not None:
        asked |= {name: value for name, value in parse_qsl(in_header, keep_blank_values=True) if name in FAULT_PARAMETERS}
    if (generic := _generic(path)).startswith("/fault/"):
        asked["fault"] = generic.removeprefix("/fault/")
    return asked


def _generic(path: str) -> str:
    return path.removeprefix("/v1") if path.startswith("/v1/") else path


def _completed(request: web.BaseRequest, path: str, body: bytes) -> tuple[Usage | None, _Answer]:
    """Make the proper answer, and the token counts that decide how long it takes. Raises ValueError where the request is not understood."""
    if path == CHAT_PATH:
        return _chat(request, body)
    if path in MODELS_PATHS:
        return None, _models(request)
    path = _generic(path)
    if path == "/echo" or path.startswith("/fault/"):
        return None, _Answer(200, body, request.content_type)
    if path.startswith("/status/"):
        code = _whole(path.removeprefix("/status/"))
        if code is None or not STATUS_MIN <= code <= STATUS_MAX:
            raise ValueError(f"the status must be from {STATUS_MIN} to {STATUS_MAX}")
        return None, _Answer(code, b"{}")
    return None, _error(404, f"nothing answers at {path}; there is {_SERVES}", "not_found_error")


def _chat(request: web.BaseRequest, body: bytes) -> tuple[Usage | None, _Answer]:
    if request.method != "POST":
        return None, _error(405, "use POST", "invalid_request_error")
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise ValueError("the body is not JSON") from None
    if not isinstance(asked, dict) or not isinstance(asked.get("model"), str):
        raise ValueError("the body must be an object with a model")  # noqa: TRY004 - a caller's mistake, not a programmer's
    if asked.get("stream"):
        raise ValueError("the sample upstream does not stream")
    usage = usage_of(asked)
    limit = asked.get("max_tokens")
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": " ".join(["word"] * usage.completion_tokens)},
        "finish_reason": "length" if limit == usage.completion_tokens else "stop",
    }
    answer = {
        "id": f"chatcmpl-{request.headers.get('Idempotency-Key', 'sample')}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": asked["model"],
        "choices": [choice],
        "usage": usage.as_json(),
    }
    return usage, _Answer(200, orjson.dumps(answer))


def _models(request: web.BaseRequest) -> _Answer:
    """List the one model that there is, as the models API does."""
    if request.method not in {"GET", "HEAD"}:
        return _error(405, "use GET", "invalid_request_error")
    model = {"id": "sample", "object": "model", "created": 0, "owned_by": "dispatcher"}
    return _Answer(200, orjson.dumps({"object": "list", "data": [model]}))


def _refusal(fault: Fault) -> _Answer:
    code = None
    if fault.kind == "quota":
        kind = code = "insufficient_quota"
    elif fault.status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "rate_limit_error"
    else:
        kind = "server_error" if fault.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    answer = _error(fault.status, f"status {fault.status}, as asked for or drawn", kind, code)
    headers, ms = {}, fault.retry_after_ms
    if fault.retry_after_s is not None:
        # Whole seconds, as most callees send and all clients read; the milliseconds beside them are exact, unless told otherwise.
        headers["Retry-After"] = str(math.ceil(fault.retry_after_s))
        ms = fault.retry_after_s * 1000 if ms is None else ms
    if ms is not None:
        headers["retry-after-ms"] = str(math.ceil(ms))
    return _Answer(answer.status, answer.body, headers=headers)


def _error(status: int, message: str, kind: str, code: str | None = None) -> _Answer:
    return _Answer(status, orjson.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}))


async def _forever() -> NoReturn:
    """Wait until the caller gives up, which cancels us."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody resolves this future")


async def _deliver(request: web.BaseRequest, answer: _Answer) -> web.StreamResponse:
    body = b"" if answer.status in STATUSES_WITHOUT_BODY else answer.body
    if answer.ending == "answered":
        return web.Response(status=answer.status, headers=answer.headers, body=body, content_type=answer.content_type)
    transport = request.transport
    if answer.ending == "reset":
        if transport is not None:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
            transport.abort()
        return web.Response(status=answer.status)
    half = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
    half.content_length = len(body) + 1  # at least one byte will be missing
    await half.prepare(request)
    await half.write(body[: len(body) // 2])
    if transport is not None:
        transport.close()
    return half
