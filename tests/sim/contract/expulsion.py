"""Throwing somebody else out of a group: Kafka takes a farewell from any connection that names the member.

No client library says it for another member, so the two requests are written byte by byte (Kafka's protocol guide: LeaveGroup v3 and
ConsumerGroupHeartbeat v0, both with the oldest header that they go with).
"""

from __future__ import annotations

import socket
import struct

from dispatcher.adapters.kafka.clients import GroupProtocol

_LEAVE_GROUP, _CONSUMER_HEARTBEAT = 13, 68
# The epoch of a KIP-848 member that leaves.
_LEAVING = -1


def expel(bootstrap: str, group: str, member: str, protocol: GroupProtocol) -> None:
    """Say farewell in the name of `member` to the only broker. AssertionError where it is not taken."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    asked = _heartbeat(group, member) if protocol == "consumer" else _leave(group, member)
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(asked)) + asked)
        (size,) = struct.unpack(">i", answers.read(4))
        answer = answers.read(size)
    # Correlation id, (tags of a flexible header,) time throttled, error code.
    (error,) = struct.unpack_from(">h", answer, 9 if protocol == "consumer" else 8)
    assert error == 0, f"the farewell was refused with error {error}"


def _leave(group: str, member: str) -> bytes:
    head = struct.pack(">hhi", _LEAVE_GROUP, 3, 1) + _text("contract")
    return head + _text(group) + struct.pack(">i", 1) + _text(member) + struct.pack(">h", -1)


def _heartbeat(group: str, member: str) -> bytes:
    no_tags = nothing = b"\0"
    head = struct.pack(">hhi", _CONSUMER_HEARTBEAT, 0, 1) + _text("contract") + no_tags
    # Instance, rack, rebalance time-out, topics, assignor, partitions: nothing of them goes with a farewell.
    rest = nothing + nothing + struct.pack(">i", -1) + nothing + nothing + nothing + no_tags
    return head + _compact(group) + _compact(member) + struct.pack(">i", _LEAVING) + rest


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _compact(text: str) -> bytes:
    content = text.encode()
    assert len(content) < 127, "a longer one takes two bytes to count"
    return bytes([len(content) + 1]) + content
