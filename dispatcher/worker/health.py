"""`/metrics`, `/livez`, `/readyz`, `/startupz`: a small server in its own thread, so that it answers when the loops do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from dispatcher.adapters.metrics import CONTENT_TYPE
from dispatcher.errors import ConfigError

Check = Callable[[], str]
"""Says what is wrong, in a few words; empty where nothing is."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    # Without this a worker could not take the port of one that has just ended.
    allow_reuse_address = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
        del format, args


class HealthServer:
    """Answers until closed. `port` is the one that is listened on; `remark` is what a person should know although nothing is wrong."""

    def __init__(self, host: str, port: int, page: Callable[[], bytes], checks: dict[str, Check], remark: Check = lambda: "") -> None:
        self._page = page
        self._checks = checks
        self._remark = remark
        try:
            self._server = make_server(host, port, self._answer, server_class=_Server, handler_class=_Quiet)
        except OSError as error:
            hint = "set worker.http_port to another one, or to 0 for any free one"
            raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}", hint) from None
        self.port = int(self._server.server_port)
        Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:  # noqa: ANN401 - WSGI
        path = str(environ.get("PATH_INFO", ""))
        status, kind, body = HTTPStatus.NOT_FOUND, "text/plain", b"not found: /metrics /livez /readyz /startupz\n"
        if path == "/metrics":
            status, kind, body = HTTPStatus.OK, CONTENT_TYPE, self._page()
        elif path in self._checks:
            wrong = self._checks[path]()
            status = HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK
            body = (wrong or "; ".join(filter(None, ("ok", self._remark())))).encode() + b"\n"
        start_response(f"{status.value} {status.phrase}", [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]
