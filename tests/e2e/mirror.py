"""A callee that shows its caller everything that it was sent: the worst that a callee can do with a secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class _Mirror(BaseHTTPRequestHandler):
    """`/200`, `/400`, `/429`: that status, with the request's headers as body and Authorization as a header; `/hang`: nothing.

    Names of headers are in lower case.
    """

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        status = self.path.strip("/").partition("?")[0]
        if status == "hang":
            self.rfile.read(1)  # until the caller gives up
            return
        body = json.dumps({name.lower(): text for name, text in self.headers.items()}).encode()
        self.send_response(int(status), self.headers.get("Authorization", "none"))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-request-id", f"for {self.headers.get('Authorization', 'nobody')}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name
        del format, args


@contextmanager
def mirror() -> Iterator[str]:
    """Run one, and give its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Mirror)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
