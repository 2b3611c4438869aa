from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.progress.commit_note import CommitNote
from dispatcher.core.progress.headway import Headway
from dispatcher.core.progress.spans import Spans


def test_without_a_commit_nothing_is_settled() -> None:
    """A group that has committed nothing is done with nothing."""
    assert not Headway().is_settled(0)
    assert () == Headway().settled


def test_a_note_of_another_position_says_nothing() -> None:
    """Another tool moved the position and left the words beside it: what is settled is what lies below."""
    moved = Headway(3, CommitNote(bytes(16), 1, 1, 5, ((7, 9),)))
    assert [True, True, True, False, False] == [moved.is_settled(offset) for offset in range(5)]
    assert not moved.is_settled(7)


@given(st.integers(0, 50), st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), max_size=20))
def test_settled_is_what_lies_below_and_what_the_note_says(position: int, pairs: list[tuple[int, int]]) -> None:
    """Every offset, against a set of them."""
    spans, at = Spans(), position
    for gap, length in pairs:
        spans.add(at + gap, at + gap + length)
        at += gap + length
    headway = Headway(position, CommitNote(bytes(16), 1, 1, position, tuple(spans)))
    settled = {offset for start, stop in spans for offset in range(start, stop)} | set(range(position))
    assert settled == {offset for offset in range(at + 2) if headway.is_settled(offset)}
