"""What operators and workers want of lanes: commands in the control topic, and their fold.

One command per target, the last record of a target counts. The record's key is the target as text:

    key:<lane key>          paused (by an operator) or halted (by a worker, after a failure of a request that asked for it)
    partition:<number>      paused
    request:<position id>   skip: end this request without a further call; cancel: the same, and cut off the call that it is in

The value is JSON: `id state at by reason`; what is wanted of a request also has its lane's `key`, by which it is found. A tombstone ends
what its target had; it carries the command that ended it in a header, so that the topic holds live targets alone and still says for a
while who ended one, when and why. That command may name the one that it `ends`: where another is in force by then, nothing ends.

Records of another kind stand there, too, which are no commands: what owners of partitions say of shared budgets (`rights.py`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import orjson

from dispatcher.core.messages.record import Message, Record, bounded

_Name = TypeVar("_Name")
_Wanted = TypeVar("_Wanted")

RUNNING = "running"  # what a target is that nobody wants anything of
PAUSED = "paused"
HALTED = "halted"
SKIP = "skip"
CANCEL = "cancel"

COMMAND_HEADER = "dispatcher-command"
# A key has at most 1,024 bytes, a topic's name 249, a person's reason a few lines.
TARGET_MAX_BYTES = 2048
TEXT_MAX_BYTES = 1000
VALUE_MAX_BYTES = 64 * 1024
# Halts that have ended and are remembered: one that is sent twice comes seconds later, or as long after as Kafka was away.
ENDED_MAX = 1000


class Kind(StrEnum):
    """What a command is about."""

    KEY = "key"
    PARTITION = "partition"
    REQUEST = "request"


_STATES: Mapping[Kind, frozenset[str]] = {
    Kind.KEY: frozenset({PAUSED, HALTED}),
    Kind.PARTITION: frozenset({PAUSED}),
    Kind.REQUEST: frozenset({SKIP, CANCEL}),
}
_NAMES: Mapping[Kind, re.Pattern[str]] = {
    Kind.KEY: re.compile(r".+", re.DOTALL),
    # No leading zeros: one partition, one spelling. Kafka counts partitions in 31 bits.
    Kind.PARTITION: re.compile(r"0|[1-9][0-9]{0,9}"),
    Kind.REQUEST: re.compile(r"[A-Za-z0-9._-]{1,249}/(?:0|[1-9][0-9]{0,9})/(?:0|[1-9][0-9]{0,18})@.{8}"),
}


_KINDS: Mapping[str, Kind] = {kind.value: kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class Target:
    """What a command is about, taken apart. `name` is a lane key, a partition's number or a request's position with its topic's id."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"


@dataclass(frozen=True, slots=True)
class Command:
    """What somebody wants of a target. `id` is unique: a command that is read twice counts once. `at` is RFC 3339.

    `ends`: with `running`, the id of the command that this ends, and no other; empty: whichever is in force. `key`: the lane key of the
    request that this is about; empty where whoever wrote it did not say, or where the key is no text.
    """

    id: str
    target: str
    state: str
    at: str
    by: str
    reason: str = ""
    ends: str = ""
    key: str = ""


def key_target(key: bytes) -> str:
    """The target that a lane's key is. UnicodeDecodeError for bytes that are no UTF-8, which no lane has."""
    return f"{Kind.KEY.value}:{key.decode('utf-8')}"


def partition_target(partition: int) -> str:
    """The target that a partition of the request topic is."""
    return f"{Kind.PARTITION.value}:{partition}"


def request_target(position_id: str) -> str:
    """The target that a request is; `position_id` as `core.messages.envelope.position_id` makes it."""
    return f"{Kind.REQUEST.value}:{position_id}"


def parse_target(text: str) -> Target | None:
    """Take a target's text apart; None for what is no target."""
    kind, separator, name = text.partition(":")
    if not separator or kind not in _KINDS or not _NAMES[_KINDS[kind]].fullmatch(name):
        return None
    return Target(_KINDS[kind], name)


def message(command: Command, topic: str) -> Message:
    """The record that wants what `command` says; a tombstone where it wants nothing any more (`running`)."""
    by, reason = (bounded(text, TEXT_MAX_BYTES).decode() for text in (command.by, command.reason))
    content = orjson.dumps(
        {"id": command.id, "state": command.state, "at": command.at, "by": by, "reason": reason}
        | ({"ends": command.ends} if command.ends else {})
        | ({"key": command.key} if command.key else {})
    )
    if command.state == RUNNING:
        return Message(topic, 0, command.target.encode(), None, ((COMMAND_HEADER, content),))
    return Message(topic, 0, command.target.encode(), content, (("content-type", b"application/json"),))


def tombstone(target: str, topic: str) -> Message:
    """The record that ends what a target had, where its effect says everything: a skipped request's reply, for one."""
    return Message(topic, 0, target.encode(), None, ())


def read_command(record: Record) -> Command | None:
    """The command in a record; None for what is no command of ours. A tombstone wants `running`; a bare one has no id."""
    target = _target_of(record.key)
    if target is None:
        return None
    content = record.value
    if content is None:
        content = next((value for name, value in record.headers or () if name == COMMAND_HEADER), None)
        return _command(target, content, frozenset({RUNNING})) or Command("", str(target), RUNNING, "", "")
    return _command(target, content, _STATES[target.kind] | {RUNNING})


def _target_of(key: bytes | None) -> Target | None:
    if key is None or len(key) > TARGET_MAX_BYTES:
        return None
    try:
        return parse_target(key.decode("utf-8"))
    except UnicodeDecodeError:
        return None


def _command(target: Target, content: bytes | None, states: frozenset[str]) -> Command | None:
    if content is None or len(content) > VALUE_MAX_BYTES:
        return None
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    texts = [found.get(name, "") for name in ("id", "state", "at", "by", "reason", "ends", "key")]
    if not all(isinstance(text, str) for text in texts) or not texts[0]:
        return None
    name, state, at, by, reason, ends, key = texts
    return Command(name, str(target), state, at, by, reason, ends, key) if state in states else None


class Desired:
    """What is wanted now, by target: the fold of the control topic. Owned by the engine; holds live targets only.

    A worker halts a key before the record that says so stands in the topic (it is written in the transaction of the dead letter). Until
    that record is read back, nothing that stands before it in the topic lifts the halt.

    A halt that has ended does not come again: at least once, its record may be sent twice, and somebody have let the key go on between.
    """

    __slots__ = ("_commands", "_ended", "_keys", "_partitions", "_places", "_reached", "_requests", "_unread", "position")

    def __init__(self) -> None:
        self.position = 0  # the offset behind the last record of the control topic that was taken in
        self._reached = 0  # the furthest that it was
        self._ended: dict[str, None] = {}  # ids of halts that have ended, the oldest first
        self._commands: dict[str, Command] = {}
        # Halts of this worker that have not been read back, by target, with the partition of each.
        self._unread: dict[str, tuple[Command, int]] = {}
        # The same once more, as it is asked for before each call.
        self._keys: dict[bytes, str] = {}
        self._partitions: dict[int, str] = {}
        self._requests: dict[str, Command] = {}
        # Those that are to end, by partition: offset and position id, in order. There may be as many as a backlog has requests.
        self._places: dict[int, list[tuple[int, str]]] = {}

    def __len__(self) -> int:
        """How many targets somebody wants something of."""
        return len(self._commands.keys() | self._unread.keys())

    def apply(self, record: Record) -> str | None:
        """Take a record of the control topic in; the target of which something else is wanted now, None where nothing changed."""
        is_new = record.offset >= self._reached
        self.position = record.next_offset
        self._reached = max(self._reached, record.next_offset)
        command = read_command(record)
        if command is None:
            return None
        target = command.target
        before, unread = self._of(target), self._unread.get(target)
        current = self._commands.get(target)
        if command.state == RUNNING:
            self._end(command, current, is_new=is_new)
        elif command.id not in self._ended and (current is None or current.id != command.id):
            self._commands[target] = command
        if unread is not None and unread[0].id == command.id:
            del self._unread[target]
        return self._note(target, before)

    def halt(self, key: bytes, command: Command, partition: int) -> None:
        """Halt a key of `partition` from now on: `command` is being written, and will be read back."""
        before = self._of(command.target)
        assert command.target == key_target(key)
        self._unread[command.target] = command, partition
        self._note(command.target, before)

    def give_up(self, partition: int) -> None:
        """Forget the halts of a partition that have not been read back: if they were written, its next owner reads them."""
        for target in [target for target, (_, number) in self._unread.items() if number == partition]:
            before = self._of(target)
            del self._unread[target]
            self._note(target, before)

    def why_held(self, key: bytes | None, partition: int) -> str:
        """Why no call of this key may start: `paused`, `halted`, or empty. A paused partition holds all its keys."""
        if self._keys and key is not None and (why := self._keys.get(key)) is not None:
            return why
        return self._partitions.get(partition, "") if self._partitions else ""

    def end_of(self, position_id: str) -> Command | None:
        """The command to skip or cancel this request, if there is one."""
        return self._requests.get(position_id) if self._requests else None

    def to_end(self, partition: int, among: range | None = None) -> list[str]:
        """The position ids of requests of a partition that are to end, in order; those whose offset is `among` these."""
        places = self._places.get(partition)
        if places is None:
            return []
        if among is None:
            return [name for _, name in places]
        return [name for _, name in places[bisect_left(places, (among.start, "")) : bisect_left(places, (among.stop, ""))]]

    @property
    def ending_partitions(self) -> list[int]:
        """Partitions, by number, of which requests are to end; a former topic of that name may have had more than there are now."""
        return list(self._places)

    def targets(self) -> Iterator[Command]:
        """The commands that are in force, one per target."""
        return iter({**self._commands, **{target: command for target, (command, _) in self._unread.items()}}.values())

    def _end(self, command: Command, current: Command | None, *, is_new: bool) -> None:
        """End what is in force, if that is what `command` names.

        A command that names another one, read once more, ends nothing that was written behind it.
        """
        ended = command.ends
        if current is not None and ended in {"", current.id}:
            del self._commands[command.target]
            ended = current.id if current.state == HALTED else ended
        if ended and is_new:
            self._ended[ended] = None
            if len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    def _of(self, target: str) -> Command | None:
        unread = self._unread.get(target)
        return self._commands.get(target) if unread is None else unread[0]

    def _note(self, text: str, before: Command | None) -> str | None:
        """Note what is wanted of a target now; the target if that is something else than `before`."""
        command = self._of(text)
        if command == before:
            return None
        target = parse_target(text)
        assert target is not None
        if target.kind is Kind.KEY:
            _put(self._keys, target.name.encode(), None if command is None else command.state)
        elif target.kind is Kind.PARTITION:
            _put(self._partitions, int(target.name), None if command is None else command.state)
        else:
            self._note_request(target.name, command)
        return text

    def _note_request(self, name: str, command: Command | None) -> None:
        was_known = name in self._requests
        _put(self._requests, name, command)
        if was_known == (command is not None):
            return
        _, number, offset = name.rpartition("@")[0].rsplit("/", 2)
        place, places = (int(offset), name), self._places.setdefault(int(number), [])
        if command is not None:
            insort(places, place)
            return
        del places[bisect_left(places, place)]
        if not places:
            del self._places[int(number)]


def _put(of: dict[_Name, _Wanted], name: _Name, wanted: _Wanted | None) -> None:
    if wanted is None:
        of.pop(name, None)
    else:
        of[name] = wanted
