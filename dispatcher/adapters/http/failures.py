"""The sentences of failed calls, by kind: one place for both transports.

They name the upstream's alias and nothing that was sent or received: a client library's own message may repeat a URL or a
header, a hostile callee may echo the credential in its garbage, and these sentences end in dead letters and logs.
`detail` is for what the operating system or the TLS library says of its own, before anything was sent.
"""

from __future__ import annotations

from dispatcher.core.messages.call import Ambiguous, NotSent

_NOT_SENT = {
    "address_refused": "upstream {0} has a loopback, private or link-local address, which allow_private = false refuses",
    "connect": "no connection to upstream {0}",
    "connect_timeout": "no connection to upstream {0} within its connect_timeout_s, or within the time of the call",
    "dns": "the host name of upstream {0} was not found",
    "invalid_request": "the request for upstream {0} cannot be written as HTTP",
    "tls": "no trusted TLS connection to upstream {0}",
}
_AMBIGUOUS = {
    "first_byte_timeout": "upstream {0} did not begin to answer within {1}",
    "idle_timeout": "upstream {0} stopped in the middle of its answer for {1}",
    "protocol": "upstream {0} answered with something that is not HTTP/1.1 within our limits",
    "reset": "upstream {0} closed the connection before it had answered",
    "timeout": "upstream {0} did not answer in full within {1}",
    "truncated": "the answer of upstream {0} broke off",
}
_DETAIL_MAX_CHARACTERS = 200  # an error message is a sentence: more is a listing (happy eyeballs joins one per address)


def not_sent(kind: str, upstream: str, detail: str = "") -> NotSent:
    """Say that the callee cannot have seen the request."""
    sentence = _NOT_SENT[kind].format(upstream)
    return NotSent(kind, f"{sentence}: {detail[:_DETAIL_MAX_CHARACTERS]}" if detail else sentence)


def ambiguous(kind: str, upstream: str, limit: str = "") -> Ambiguous:
    """Say that the callee may have seen the request, and may have done it; `limit`: how long it had, where that is over."""
    return Ambiguous(kind, _AMBIGUOUS[kind].format(upstream, limit))
