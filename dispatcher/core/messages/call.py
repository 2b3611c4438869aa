"""One HTTP call as the core sees it, and what can be known of how it ended."""

from __future__ import annotations

from dataclasses import dataclass

HeaderPairs = tuple[tuple[str, str], ...]
# How calls end that were sent and whose time was over: whole, to the head of the answer, between two parts of it.
CUT_OFF_KINDS = frozenset({"timeout", "first_byte_timeout", "idle_timeout"})


# How a call ends that was about to be sent when what was ours of its limits was not so any more.
WITHHELD = "withheld"


class Withheld(Exception):
    """Raised where a call is about to be sent: it is not."""


@dataclass(frozen=True, slots=True)
class Call:
    """What to send. `upstream` and `credential` are aliases: address and secret are added by the HTTP adapter alone."""

    upstream: str
    method: str
    path: str  # begins with one slash; may carry a query
    headers: HeaderPairs
    body: bytes | None
    credential: str | None
    timeout_s: float  # whole call: connect, send, wait, read


@dataclass(frozen=True, slots=True)
class Answered:
    """The callee answered in full, or with more than is kept (`truncated`: the body is its beginning)."""

    status: int
    headers: HeaderPairs  # names in lower case, in the callee's order, duplicates kept; values decoded as latin-1 where not UTF-8
    body: bytes
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class NotSent:
    """The callee cannot have seen the request: no connection, no name, no TLS, a refused address."""

    # Short and bounded, for logs and `error.kind`: connect, connect_timeout, dns, tls, address_refused, invalid_request, withheld.
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """The request left, no whole answer came: the callee may have done it, and may still be doing it."""

    kind: str  # timeout, first_byte_timeout, idle_timeout, reset, truncated, protocol
    message: str


CallResult = Answered | NotSent | Ambiguous
