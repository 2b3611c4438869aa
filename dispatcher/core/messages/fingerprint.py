"""What makes a request, as one short value: the same id with another fingerprint is another request under a used name."""

from __future__ import annotations

from hashlib import blake2b

from dispatcher.core.messages.call import Call

# Against accidents and against senders who look for collisions: 64 bits of work for the second.
SIZE_BYTES = 16
# Ours, or set by whoever carries the request: they change when it is sent again.
_PASSING = frozenset({"idempotency-key", "traceparent", "tracestate"})


def fingerprint(call: Call) -> bytes:
    """What the callee is asked: upstream, method, path, headers (whatever their order), credential and body, byte for byte.

    How long it may take, deadline and metadata are not part of it: who asks again may be more patient.
    """
    headers = sorted((name.lower(), text) for name, text in call.headers if name.lower() not in _PASSING)
    parts = [call.upstream, call.method, call.path, call.credential or "", *(text for pair in headers for text in pair)]
    # A visible ASCII text holds no zero byte, a header no line break: what stands where cannot be shifted.
    head = "\0".join(parts).encode()
    return blake2b(len(head).to_bytes(4) + head + (b"-" if call.body is None else b"+" + call.body), digest_size=SIZE_BYTES).digest()
