"""Commands in the control topic and their fold: the last record of a target counts, and nothing foreign is taken for a command."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.internal.control import (
    CANCEL,
    COMMAND_HEADER,
    ENDED_MAX,
    HALTED,
    PAUSED,
    RUNNING,
    SKIP,
    Command,
    Desired,
    Kind,
    Target,
    key_target,
    message,
    parse_target,
    partition_target,
    read_command,
    request_target,
    tombstone,
)
from dispatcher.core.messages.record import Message, Record

TOPIC = "dispatcher.control"
POSITION_ID = "dispatcher.requests/3/41@AbCdEfGh"
KEY = "key:doc:42"
AT = "2026-11-29T10:00:00.000Z"


def command(target: str = KEY, state: str = PAUSED, name: str = "id-1") -> Command:
    """A command of somebody."""
    return Command(name, target, state, AT, "ana@desk", "too many errors")


def stands(written: Message, offset: int = 0) -> Record:
    """The record that a message becomes."""
    return Record(written.topic, written.partition, offset, written.key, written.value, written.headers)


def put(desired: Desired, *commands: Command, first: int = 0) -> list[str | None]:
    """Apply commands as they would stand in the topic; what each changed."""
    return [desired.apply(stands(message(one, TOPIC), offset)) for offset, one in enumerate(commands, first)]


TARGETS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200).map(lambda text: key_target(text.encode())),
    st.integers(0, 2**31 - 1).map(partition_target),
    st.integers(0, 2**63 - 1).map(lambda offset: request_target(f"a.b-c_d/7/{offset}@-_aZ09xy")),
)
STATES = {Kind.KEY: (PAUSED, HALTED, RUNNING), Kind.PARTITION: (PAUSED, RUNNING), Kind.REQUEST: (SKIP, CANCEL, RUNNING)}


@st.composite
def commands(draw: st.DrawFn) -> Command:
    """Any command that may be written."""
    target = draw(TARGETS)
    parsed = parse_target(target)
    assert parsed is not None
    at, by, reason = (draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=100)) for _ in range(3))
    key = draw(st.sampled_from(["", "doc:42"])) if parsed.kind is Kind.REQUEST else ""
    return Command(draw(st.text("abc-1", min_size=1)), target, draw(st.sampled_from(STATES[parsed.kind])), at, by, reason, key=key)


@given(commands())
def test_a_command_is_read_back(written: Command) -> None:
    """Every kind of target and state, any text: the record in partition 0 says the same; one that ends something is a tombstone."""
    record = message(written, TOPIC)
    assert (TOPIC, 0, written.target.encode()) == (record.topic, record.partition, record.key)
    assert (written.state == RUNNING) == (record.value is None)
    assert written == read_command(stands(record))


def test_texts_of_people_are_bounded() -> None:
    """A reason of any length and with any odd characters gives a record of at most some kilobytes."""
    long = replace(command(), reason="é" * 10_000, by="\udcff" * 10)
    record = message(long, TOPIC)
    assert record.size_bytes < 4096
    found = read_command(stands(record))
    assert found is not None
    assert ("é" * 500, "?" * 10) == (found.reason, found.by)


def test_a_bare_tombstone_ends_its_target() -> None:
    """Whoever wrote it: no id, no name, and the target runs."""
    record = stands(tombstone(KEY, TOPIC))
    assert (None, 0) == (record.value, record.partition)
    assert Command("", KEY, RUNNING, "", "") == read_command(record)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "key",
            "key:",
            "doc:42",
            "partition:",
            "partition:-1",
            "partition:01",
            "partition:1.5",
            "partition:x",
            "partition:99999999999",
        ),
        *("request:", "request:5", "request:t/1/2", "request:t/1/2@short", "request:t/x/2@AbCdEfGh", "lane:doc:42", "KEY:doc:42"),
    ],
)
def test_what_is_no_target(text: str) -> None:
    """Neither parsed nor read as a command: a record of another tool, or of a later version."""
    assert parse_target(text) is None
    assert read_command(Record(TOPIC, 0, 0, text.encode(), None)) is None


def test_targets_are_built_as_they_are_parsed() -> None:
    """The lane key as it is, colons included; the number; the position with the beginning of its topic's id."""
    assert Target(Kind.KEY, "doc:42") == parse_target(key_target(b"doc:42"))
    assert Target(Kind.KEY, "a\nb") == parse_target(key_target(b"a\nb"))
    assert Target(Kind.PARTITION, "7") == parse_target(partition_target(7))
    assert Target(Kind.REQUEST, POSITION_ID) == parse_target(request_target(POSITION_ID))
    assert KEY == str(Target(Kind.KEY, "doc:42"))


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"paused", b"[]", b"{}", b'"paused"', b"\xff", b"null", b"[" * 100_000),
        b'{"id":"a","state":"stopped","at":"","by":""}',
        b'{"id":"a","state":"skip","at":"","by":""}',
        b'{"id":"","state":"paused","at":"","by":""}',
        b'{"state":"paused","at":"","by":""}',
        b'{"id":7,"state":"paused","at":"","by":""}',
        b'{"id":"a","state":["paused"]}',
    ],
)
def test_foreign_values_are_ignored(value: bytes) -> None:
    """No command, no crash, and what was wanted before stays."""
    desired = Desired()
    put(desired, command())
    foreign = Record(TOPIC, 0, 1, KEY.encode(), value)
    assert read_command(foreign) is None
    assert desired.apply(foreign) is None
    assert (PAUSED, 2) == (desired.why_held(b"doc:42", 0), desired.position)


@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_nothing_raises(key: bytes | None, value: bytes | None) -> None:
    """Random keys and values, with headers that the client cannot read."""
    Desired().apply(Record(TOPIC, 0, 0, key, value, None))
    Desired().apply(Record(TOPIC, 0, 0, key, None, ((COMMAND_HEADER, value),)))


def test_the_last_record_of_a_target_counts() -> None:
    """Paused, halted, resumed; a target that runs takes no memory."""
    desired = Desired()
    changed = put(desired, command(), command(state=HALTED, name="id-2"), command(partition_target(3), name="id-3"))
    assert [KEY, KEY, "partition:3"] == changed
    assert (HALTED, PAUSED, "") == (desired.why_held(b"doc:42", 0), desired.why_held(b"doc:7", 3), desired.why_held(b"doc:7", 0))
    assert {KEY: HALTED, "partition:3": PAUSED} == {one.target: one.state for one in desired.targets()}
    assert [KEY, "partition:3"] == put(desired, command(state=RUNNING, name="id-4"), command(partition_target(3), RUNNING, "id-5"), first=3)
    assert ("", "") == (desired.why_held(b"doc:42", 0), desired.why_held(b"doc:7", 3))
    assert (0, 5) == (len(desired), desired.position)


def test_a_command_that_is_read_twice_counts_once() -> None:
    """The same id again changes nothing, nor does a tombstone of what runs; a partition without a key is held as well."""
    desired = Desired()
    assert [KEY, None, None] == put(desired, command(), command(), replace(command(), reason="again"))
    assert [None] == put(desired, command(partition_target(1), RUNNING))
    assert ["partition:1"] == put(desired, command(partition_target(1), PAUSED, "id-9"))
    assert (PAUSED, "") == (desired.why_held(None, 1), desired.why_held(None, 0))


@pytest.mark.parametrize("state", [SKIP, CANCEL])
def test_what_is_to_end_is_known_by_position(state: str) -> None:
    """Until the tombstone that its effect writes."""
    desired = Desired()
    wanted = command(request_target(POSITION_ID), state)
    assert [request_target(POSITION_ID)] == put(desired, wanted)
    assert wanted == desired.end_of(POSITION_ID)
    assert desired.end_of(POSITION_ID + "x") is None
    assert [POSITION_ID] == desired.to_end(3)
    assert request_target(POSITION_ID) == desired.apply(stands(tombstone(request_target(POSITION_ID), TOPIC), 1))
    assert (None, [], []) == (desired.end_of(POSITION_ID), desired.to_end(3), desired.ending_partitions)


def test_the_last_word_about_a_request_counts() -> None:
    """Skipped, then cancelled: it is cancelled; and it is one request."""
    desired, target = Desired(), request_target(POSITION_ID)
    assert [target, target] == put(desired, command(target, SKIP), command(target, CANCEL, "id-2"))
    found = desired.end_of(POSITION_ID)
    assert found is not None
    assert (CANCEL, [POSITION_ID]) == (found.state, desired.to_end(3))


def test_what_is_to_end_is_found_by_partition_and_offset() -> None:
    """In the order of the log, whatever the order of the commands: those of the offsets that are asked for, and of no other partition."""
    desired = Desired()
    names = {n: f"dispatcher.requests/3/{n}@AbCdEfGh" for n in (9, 41, 100)}
    other = "dispatcher.requests/4/41@AbCdEfGh"
    put(desired, *(command(request_target(name), CANCEL, name) for name in (names[100], other, names[9], names[41])))
    assert [*names.values()] == desired.to_end(3)
    assert [names[41]] == desired.to_end(3, range(10, 100))
    assert [names[9], names[41]] == desired.to_end(3, range(9, 42))
    assert ([], [other]) == (desired.to_end(3, range(10, 41)), desired.to_end(4))
    assert [3, 4] == sorted(desired.ending_partitions)


def test_a_halt_of_ours_counts_at_once_and_until_it_is_read_back() -> None:
    """A resume that stands before the halt in the topic was not about it: the key stays halted. One that stands behind it counts."""
    desired = Desired()
    halt = command(state=HALTED, name="halt")
    put(desired, command(name="before"))
    desired.halt(b"doc:42", halt, partition=5)
    assert HALTED == desired.why_held(b"doc:42", 5)
    assert [halt] == list(desired.targets())
    assert [None] == put(desired, command(state=RUNNING, name="resume of the pause"), first=1)
    assert HALTED == desired.why_held(b"doc:42", 5)
    assert [None] == put(desired, halt, first=2)
    assert [KEY] == put(desired, command(state=RUNNING, name="resume of the halt"), first=3)
    assert ("", 0) == (desired.why_held(b"doc:42", 5), len(desired))


def test_a_halt_goes_with_its_partition() -> None:
    """Its transaction may never end: what the topic says counts then. Other partitions' halts stay."""
    desired = Desired()
    put(desired, command(name="paused"))
    desired.halt(b"doc:42", command(state=HALTED, name="halt"), partition=5)
    desired.halt(b"doc:7", command("key:doc:7", HALTED, "other"), partition=6)
    desired.give_up(5)
    assert (PAUSED, HALTED) == (desired.why_held(b"doc:42", 5), desired.why_held(b"doc:7", 6))


def test_what_names_another_command_ends_nothing() -> None:
    """Somebody lets go on what was shown: a halt that came between is of another request, and stays."""
    desired = Desired()
    put(desired, command(state=HALTED, name="shown"), command(state=HALTED, name="newer"))
    shown = replace(command(state=RUNNING, name="resume-1"), ends="shown")
    assert shown == read_command(stands(message(shown, TOPIC)))
    assert [None] == put(desired, shown, first=2)
    assert HALTED == desired.why_held(b"doc:42", 0)
    assert [KEY] == put(desired, replace(shown, id="resume-2", ends="newer"), first=3)
    assert "" == desired.why_held(b"doc:42", 0)


@pytest.mark.parametrize("ends", ["", "halt-1"])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_halt_that_has_ended_does_not_come_again(ends: str, *, is_compacted: bool) -> None:
    """It was sent twice, and somebody let its key go on between: only a new failure halts anew.

    Where compaction took the first one away, its end says which one that was, if it names it.
    """
    desired, halt = Desired(), command(state=HALTED, name="halt-1")
    if not is_compacted:
        put(desired, halt)
    put(desired, replace(command(state=RUNNING, name="resume"), ends=ends), first=1)
    assert [None if ends or not is_compacted else KEY] == put(desired, halt, first=2)
    assert [KEY] == put(desired, replace(halt, id="halt-2"), first=3)
    assert HALTED == desired.why_held(b"doc:42", 0)


def test_what_has_ended_is_remembered_for_a_while() -> None:
    """The last thousand halts: memory is bounded."""
    desired = Desired()
    for number in range(0, 2 * ENDED_MAX + 2, 2):
        put(desired, command(state=HALTED, name=f"halt-{number}"), command(state=RUNNING, name=f"resume-{number}"), first=number)
    assert [KEY] == put(desired, command(state=HALTED, name="halt-0"), first=3 * ENDED_MAX)
    assert [KEY] == put(desired, command(state=RUNNING, name="resume"), first=3 * ENDED_MAX + 1)
    assert [None] == put(desired, command(state=HALTED, name=f"halt-{2 * ENDED_MAX}"), first=3 * ENDED_MAX + 2)


@given(st.lists(commands(), max_size=30))
def test_the_fold_is_that_of_a_dictionary(written: list[Command]) -> None:
    """Any commands with ids of their own, read one or two times over: the last per target, running ones left out."""
    named = [replace(one, id=str(number)) for number, one in enumerate(written)]
    expected = {one.target: one for one in named if one.state != RUNNING and one is [c for c in named if c.target == one.target][-1]}
    for times in (1, 2):
        desired = Desired()
        for _ in range(times):
            put(desired, *named)
        assert expected == {one.target: one for one in desired.targets()}
        ending = [name for number in desired.ending_partitions for name in desired.to_end(number)]
        assert {one.target for one in expected.values() if one.state in {SKIP, CANCEL}} == {request_target(name) for name in ending}
        assert all(desired.end_of(name) == expected[request_target(name)] for name in ending)
