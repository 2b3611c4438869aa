"""What a commit says is what the partition says: whatever settles in whatever order, and however often a transaction has to be redone."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.progress.commit_note import METADATA_MAX, CommitNote, Range, decode
from dispatcher.core.progress.progress import Progress
from dispatcher.worker.frontier import Frontier
from dispatcher.worker.ready import Ready
from tests.specimens import TOPIC_ID, alone

ID = base64.urlsafe_b64decode(TOPIC_ID + "==")
OWNER = Owner(3, 7)


def ready(position: int, span: Range | None = None, owner: Owner = OWNER) -> Ready:
    """An outcome that settles `span`, ready to be published."""
    return Ready(Outcome(owner, None, None, position=position, span=span), ())


def said(frontier: Frontier, *pending: Ready, transaction: int = 1) -> dict[Owner, CommitNote]:
    """The notes of a commit with these outcomes; each belongs to the position that it is committed with."""
    notes = {}
    for owner, (position, text) in frontier.positions(pending, transaction).items():
        note = decode(text, ID)
        assert note is not None
        assert (owner.epoch, transaction, position) == (note.epoch, note.transaction, note.position)
        notes[owner] = note
    return notes


def test_a_commit_tells_what_is_settled_above_its_position() -> None:
    """Of this commit and those before; what the position has passed is left out."""
    frontier = Frontier(alone(ID, 8))
    frontier.begin(OWNER, ())
    first = [ready(0, (2, 3)), ready(0, (4, 5))]
    assert ((2, 3), (4, 5)) == said(frontier, *first)[OWNER].settled
    frontier.acknowledge(first)
    assert (0, ((2, 3), (4, 5), (8, 9))) == (0, said(frontier, ready(0, (8, 9)))[OWNER].settled)
    assert (3, ((4, 5),)) == ((note := said(frontier, ready(3, (0, 2)))[OWNER]).position, note.settled)


def test_a_transaction_that_fails_is_not_remembered() -> None:
    """Only what is acknowledged counts: what was said of the rest is said anew, or by nobody."""
    frontier = Frontier(alone(ID, 8))
    frontier.begin(OWNER, ((9, 10),))
    assert ((2, 3), (9, 10)) == said(frontier, ready(0, (2, 3)))[OWNER].settled
    assert ((4, 5), (9, 10)) == said(frontier, ready(0, (4, 5)))[OWNER].settled


def test_a_new_assignment_begins_with_what_it_was_told() -> None:
    """Nothing of an earlier one of the same partition; others are left alone."""
    frontier, other, after = Frontier(alone(ID, 8)), Owner(4, 7), Owner(3, 8)
    frontier.begin(OWNER, ())
    frontier.begin(other, ())
    frontier.acknowledge([ready(0, (2, 3)), ready(0, (5, 6), other)])
    frontier.begin(after, ((7, 8),))
    notes = said(frontier, ready(0, None, after), ready(0, None, other))
    assert {after: ((7, 8),), other: ((5, 6),)} == {owner: note.settled for owner, note in notes.items()}


def test_more_than_fits_is_left_out_from_the_top() -> None:
    """The text stays within what Kafka takes; what it says is right, and the lowest ranges are in it."""
    frontier = Frontier(alone(ID, 8))
    frontier.begin(OWNER, ())
    many = [ready(0, (1000 * n + 500, 1000 * n + 700)) for n in range(2000)]
    text = frontier.positions(many, 1)[OWNER][1]
    assert len(text) <= METADATA_MAX
    settled = said(frontier, *many)[OWNER].settled
    assert tuple((1000 * n + 500, 1000 * n + 700) for n in range(len(settled))) == settled
    assert len(settled) > 500


@given(
    order=st.permutations(range(24)),
    before=st.sets(st.integers(0, 23), max_size=6),
    cuts=st.lists(st.integers(1, 6), min_size=1),
    fails=st.lists(st.booleans(), min_size=1),
)
def test_it_says_what_progress_knows(order: list[int], before: set[int], cuts: list[int], fails: list[bool]) -> None:
    """Records settle in any order, on top of an earlier owner's map; transactions of any size, each redone as often as it fails."""
    settled = [(n, n + 1) for n in sorted(before)]
    progress, frontier = Progress(0, settled), Frontier(alone(ID, 8))
    frontier.begin(OWNER, settled)
    opened = {n for n in range(24) if progress.deliver(n)}
    pending: list[Ready] = []
    left, tries = [n for n in order if n in opened], 0
    while left or pending:
        size = cuts[tries % len(cuts)]
        fresh, left = left[:size], left[size:]
        for n in fresh:
            span = progress.span(n)
            pending.append(ready(progress.settle(n), span))
        note = said(frontier, *pending, transaction=tries)[OWNER]
        assert progress.planned == note.position
        assert [(start, stop) for start, stop in progress._above] == list(note.settled)
        tries += 1
        if tries > 200 or not fails[tries % len(fails)]:
            frontier.acknowledge(pending)
            pending.clear()
    assert not opened or progress.planned == 24
