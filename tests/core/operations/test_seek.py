from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.internal.parked import Entry
from dispatcher.core.messages.record import Record
from dispatcher.core.operations.plan_text import packed
from dispatcher.core.operations.seek import Effect, Move, Plan, decode
from dispatcher.core.progress.commit_note import CommitNote
from dispatcher.core.progress.headway import Headway
from dispatcher.core.progress.spans import Spans
from dispatcher.errors import ConfigError

TOPIC = bytes(range(16))
END = 60
NUMBERS = st.integers(0, 2**63 - 1)
MOVES = st.builds(Move, st.integers(0, 10_000), st.none() | NUMBERS, NUMBERS, st.none() | NUMBERS, st.none() | NUMBERS)
PLANS = st.builds(Plan, st.text(max_size=20), st.just(TOPIC), st.lists(MOVES, unique_by=lambda move: move.partition).map(tuple))


def at(position: int, *settled: tuple[int, int]) -> Headway:
    """A position with a map beside it."""
    return Headway(position, CommitNote(TOPIC, 3, 7, position, settled))


def record(offset: int) -> Record:
    """A request, of one of three keys."""
    return Record("requests", 0, offset, b"doc:%d" % (offset % 3), b"{}", (), 0)


def entries(*offsets: int) -> dict[int, Entry]:
    """Parked requests."""
    return {offset: Entry(offset, b"doc:1", 0, 1, 0.0, "backoff") for offset in offsets}


def counted(effect: Effect) -> Effect:
    """Feed the whole log, of which only what is within reach may count."""
    low, high = effect.reach
    for offset in range(END):
        if low <= offset < high:
            effect.take(record(offset))
    return effect


@given(PLANS, st.data())
def test_a_plan_comes_back_from_its_text_and_not_from_half_of_it(plan: Plan, data: st.DataObject) -> None:
    """Its text is one word that says everything."""
    text = plan.encode()
    assert plan == decode(text)
    with pytest.raises(ConfigError, match="not a plan of a seek"):
        decode(text[: data.draw(st.integers(0, len(text) - 2))])


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [2, "g", "AAAAAAAAAAAAAAAAAAAAAA==", []],
        [1, 5, "AAAAAAAAAAAAAAAAAAAAAA==", []],
        [1, "g", "AAAA", []],
        [1, "g", "?", []],
        [1, "g", "AAAAAAAAAAAAAAAAAAAAAA==", [[0, 1, -1, 0, 0]]],
        [1, "g", "AAAAAAAAAAAAAAAAAAAAAA==", [[0, 1, 2, True, 0]]],
        [1, "g", "AAAAAAAAAAAAAAAAAAAAAA==", [[0, 1, 2, 0]]],
        [1, "g", "AAAAAAAAAAAAAAAAAAAAAA==", [[0, 1, 2, 0, 0], [0, 1, 3, 0, 0]]],
        [1, "g", "AAAAAAAAAAAAAAAAAAAAAA==", [[2**31, 1, 2, 0, 0]]],
        [1, "g", "AAAAAAAAAAAAAAAAAAAAAA==", 7],
    ],
)
def test_what_no_seek_plans_is_refused(fields: list[object]) -> None:
    """A plan may come from anywhere."""
    with pytest.raises(ConfigError, match="not a plan of a seek"):
        decode(packed(fields))


@pytest.mark.parametrize("text", ["", "x", "eJyLBQAAXQBd", "äöü"])
def test_any_other_text_is_no_plan(text: str) -> None:
    """Whatever is given is refused in one sentence."""
    with pytest.raises(ConfigError, match="not a plan of a seek"):
        decode(text)


def test_a_move_knows_whether_anybody_owned_the_partition_since() -> None:
    """Each assignment raises the epoch, each commit the transaction; a move that went through is told from one that did not."""
    move = Move(0, 10, 4, 3, 7)
    assert move.is_open(at(10, (12, 13)))
    changed = [at(11), Headway(10), Headway(), *(Headway(10, CommitNote(TOPIC, *of, 10)) for of in ((4, 7), (3, 8)))]
    assert not any(move.is_open(headway) for headway in changed)
    assert not any(move.is_done(headway, TOPIC) for headway in [*changed, at(10), at(4)])
    assert move.is_done(Headway(4, move.note(TOPIC)), TOPIC)
    assert CommitNote(TOPIC, 3, 8, 4) == move.note(TOPIC)


def test_without_a_note_none_is_written() -> None:
    """Where another tool wiped it: the next epoch is made of the time, far above any that was."""
    move = Move(0, None, 4)
    assert move.is_open(Headway())
    assert move.note(TOPIC) is None
    assert move.is_done(Headway(4), TOPIC)


def test_back_again_and_never() -> None:
    """Back: what has ended is executed again, what is parked is read from the log instead. Forth: what was not settled never is."""
    headway, parked = at(10, (12, 14), (20, 21)), entries(2, 8, 13, 30)
    back = counted(Effect(headway, 6, 0, END, parked))
    # 6, 7, 9 below the position, and 12, 20 above it; 8 and 13 have not ended.
    assert (5, 0) == (back.again, back.never)
    assert {b"doc:0": 3, b"doc:1": 1, b"doc:2": 1} == back.keys
    assert ((8, 13), (2,), (30,)) == (back.dropped, back.kept, back.void)
    forth = counted(Effect(headway, 20, 0, END, parked))
    # 10, 11, 14 to 19 are not settled.
    assert (1, 8) == (forth.again, forth.never)
    assert ((), (2, 8, 13), (30,)) == (forth.dropped, forth.kept, forth.void)
    assert 3 == forth.settled_above


def test_what_retention_removed_unexecuted_counts_as_never_executed() -> None:
    """Wherever the position goes: at 3, 5 and 6 have ended, and the log begins at 9 now."""
    for to in (9, 12):
        effect = Effect(at(3, (5, 7)), to, 9, 12, {})
        assert (4, 4 + to - 9) == (effect.never, counted(effect).never)
        effect.estimate()
        assert 4 + to - 9 == effect.never
    assert 0 == Effect(at(9), 9, 9, 12, {}).never


def test_to_where_it_stands_is_nothing_unless_there_is_a_map_or_an_entry_to_drop() -> None:
    """A repeat after an interruption has entries to drop; after it was done it has nothing to do."""
    assert Effect(at(5), 5, 0, END, entries(3)).is_nothing
    assert not Effect(at(5, (7, 8)), 5, 0, END, {}).is_nothing
    assert not Effect(at(5), 5, 0, END, entries(6)).is_nothing
    assert not Effect(at(5), 6, 0, END, {}).is_nothing


@given(
    st.integers(0, 20) | st.none(),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=4),
    st.integers(0, END),
    st.sets(st.integers(0, END - 1)),
    st.integers(0, 20),
)
def test_counting_offsets_gives_what_counting_records_gives(
    position: int | None, pairs: list[tuple[int, int]], to: int, parked: set[int], first: int
) -> None:
    """Where every offset is a record; and reach leaves out nothing that counts."""
    spans, above = Spans(), position or 0
    for gap, length in pairs if position is not None else ():
        spans.add(above + gap, above + gap + length)
        above += gap + length
    headway = Headway() if position is None else at(position, *spans)
    to = max(first, to)
    # Retention removes nothing that is parked: it is in a topic of its own.
    moved = entries(*(offset for offset in parked if offset >= first))
    counts, guess = counted(Effect(headway, to, first, END, moved)), Effect(headway, to, first, END, moved)
    guess.estimate()
    whole = range(first, END)
    ended = {o for o in whole if headway.is_settled(o) and o not in moved}
    assert len([o for o in ended if o >= to]) == counts.again == guess.again
    removed = range(first if position is None else position, first)
    assert len([o for o in (*removed, *whole) if o < to and not headway.is_settled(o)]) == counts.never == guess.never
    assert (True, False) == (counts.exact, guess.exact)
    assert len(moved) == len(counts.dropped) + len(counts.kept) + len(counts.void)
