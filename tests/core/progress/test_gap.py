"""What a position is that the log does not hold."""

from __future__ import annotations

import pytest

from dispatcher.core.progress.commit_note import CommitNote
from dispatcher.core.progress.gap import Cause, Gap, former, gap_at

NOW, BEFORE = bytes(range(16)), bytes(16)
START, END = 50, 60


@pytest.mark.parametrize(
    ("position", "cause", "lost"),
    [
        (START - 45, Cause.RETENTION, 45),
        (START - 1, Cause.RETENTION, 1),
        (START, None, 0),
        (END, None, 0),
        (END + 1, Cause.BEYOND_END, 0),
    ],
)
def test_a_position_is_in_the_log_from_its_first_record_to_its_end(position: int, cause: Cause | None, lost: int) -> None:
    """The end is the next record that will be written. Only what retention removed is lost."""
    gap = gap_at(0, position, START, END)
    assert cause == (gap and gap.cause)
    assert lost == (gap.lost if gap else 0)


def test_only_where_one_place_is_right_can_reading_go_on_by_itself() -> None:
    """Behind what retention removed, and at the start of a new topic; between the edges of a log nobody but a person can choose."""
    assert {cause: Gap(0, cause, 7, START, END).may_be_passed for cause in Cause} == {
        Cause.RETENTION: True,
        Cause.FORMER_TOPIC: True,
        Cause.BEYOND_END: False,
        Cause.NO_POSITION: False,
        Cause.LOG_CUT: False,
    }
    assert 7 == Gap(0, Cause.LOG_CUT, 7, START, END).goes_on_at, "where it stood, less what had ended beyond the end"
    assert START == Gap(0, Cause.RETENTION, 7, START, END).goes_on_at
    assert not Gap(0, Cause.RETENTION, 7).may_be_passed, "nobody knows yet where"


@pytest.mark.parametrize("cause", Cause)
def test_what_is_known_of_a_gap_is_said_and_what_to_do(cause: Cause) -> None:
    """Names of log fields hold no None; each cause has its own way out, with a command."""
    gap = Gap(3, cause, None)
    assert {"partition": 3, "cause": cause.value} == gap.fields()
    assert "`dispatcher " in gap.hint


@pytest.mark.parametrize(
    ("position", "metadata", "is_former"),
    [
        (7, CommitNote(BEFORE, 1, 1, 7).encode(), True),
        (7, CommitNote(NOW, 1, 1, 7).encode(), False),
        (0, CommitNote(BEFORE, 1, 1).encode(), False),
        (7, None, False),
        (7, "hello", False),
    ],
)
def test_a_position_of_a_former_topic_is_told_by_the_note_beside_it(position: int, metadata: str | None, *, is_former: bool) -> None:
    """The start is the same in any topic; what another tool commits says nothing, and counts."""
    assert (Gap(0, Cause.FORMER_TOPIC, position) if is_former else None) == former(0, position, metadata, NOW)
