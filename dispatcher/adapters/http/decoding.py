"""Bodies that a callee compressed although it was asked not to: unpacked, so that they can be judged, masked and read."""

from __future__ import annotations

import zlib
from dataclasses import replace

from dispatcher.core.messages.call import Answered

# What tells zlib of the head: 31 for gzip's, 15 for its own, -15 for none: some callees send deflate without the one that it should have.
_WINDOWS = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}
# What speaks of the body as it was sent.
_OF_THE_SENT = frozenset({"content-encoding", "content-length"})


def decoded(answer: Answered, most: int) -> Answered:
    """Give an answer whose gzip or deflate body is unpacked, up to `most` bytes; as it came where it is neither, or not whole."""
    coding = next((value.strip().lower() for name, value in answer.headers if name == "content-encoding"), "")
    if not answer.body:
        return answer
    for window in _WINDOWS.get(coding, ()):
        body = _unpacked(answer, window, most + 1)
        if body is not None:
            headers = tuple((name, value) for name, value in answer.headers if name not in _OF_THE_SENT)
            return replace(answer, headers=headers, body=body[:most], truncated=answer.truncated or len(body) > most)
    return answer


def _unpacked(answer: Answered, window: int, most: int) -> bytes | None:
    """Unpack at most so many bytes; of a body that was cut, what is there."""
    body, rest, is_whole = bytearray(), answer.body, answer.truncated
    try:
        while rest and len(body) < most:
            member = zlib.decompressobj(window)
            body += member.decompress(rest, most - len(body))
            rest = member.unused_data
            is_whole = is_whole or member.eof
    except zlib.error:
        return None
    return bytes(body) if is_whole or len(body) == most else None
