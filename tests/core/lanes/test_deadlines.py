"""When requests expire: what a record says of it, and which of many is next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.lanes.deadlines import STALE_MIN, Deadlines
from dispatcher.core.messages.foresight import DEADLINE, foresee
from tests.specimens import WALL, record, value

KEY = b"doc:42"


@pytest.mark.parametrize(
    ("expected", "content"),
    [
        (WALL + 60, value(deadline="2026-11-29T10:01:00Z")),
        (WALL + 0.25, value(deadline="2026-11-29T11:00:00.25+01:00", body={"deadline": "never"})),
        (None, value(body={"deadline": "2026-11-29T10:01:00Z"})),
        (None, value(deadline="tomorrow")),
        (None, value(deadline=7)),
        (None, b'["deadline"]'),
        (None, b'{"deadline"'),
        (None, value()),
        (None, None),
    ],
)
def test_what_a_record_says_of_its_deadline(expected: float | None, content: bytes | None) -> None:
    """The request's own field, where it is a time; the rest is refused when its turn comes, as any malformed request."""
    assert expected == foresee(record(content), DEADLINE).deadline


def test_those_that_have_passed_come_in_the_order_of_their_time_each_once() -> None:
    """What has ended before does not come any more, and what was added anew counts as it was added last."""
    deadlines = Deadlines()
    for offset, at in ((1, 30.0), (2, 10.0), (3, 20.0), (4, 10.0)):
        deadlines.add(offset, KEY, at)
    deadlines.forget(4)
    deadlines.add(3, KEY, 25.0)
    assert 10.0 == deadlines.next
    assert None is deadlines.pop(9.9)
    assert [(2, KEY), (3, KEY), None] == [deadlines.pop(25.0) for _ in range(3)]
    assert 30.0 == deadlines.next
    deadlines.clear()
    assert 0 == len(deadlines)
    assert deadlines.pop(1e9) is None


@given(st.lists(st.tuples(st.sampled_from(("add", "forget", "pop")), st.integers(0, 20), st.integers(0, 50))))
def test_any_sequence_is_as_a_plain_table_has_it(steps: list[tuple[str, int, int]]) -> None:
    """Whatever was added, forgotten and popped: the earliest that lives is next."""
    deadlines, table = Deadlines(), dict[int, float]()
    for step, offset, at in steps:
        match step:
            case "add":
                deadlines.add(offset, KEY, at)
                table[offset] = at
            case "forget":
                deadlines.forget(offset)
                table.pop(offset, None)
            case _:
                popped = deadlines.pop(at)
                due = min(((time, name) for name, time in table.items() if time <= at), default=None)
                assert (None if due is None else (due[1], KEY)) == popped
                if due is not None:
                    del table[due[1]]
        assert (min(table.values(), default=None), len(table)) == (deadlines.next, len(deadlines))


def test_what_has_ended_leaves_memory() -> None:
    """A million requests of an hour's patience, each done at once: what is kept of them is bounded."""
    deadlines = Deadlines()
    deadlines.add(-1, KEY, 1e9)
    for offset in range(10_000):
        deadlines.add(offset, KEY, 1e6 + offset)
        deadlines.forget(offset)
    assert 1 == len(deadlines)
    assert len(deadlines._heap) <= STALE_MIN + 4
