"""Gaps: which partitions stand, which are read on, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dispatcher.adapters.kafka.source import Committed, Unsettled
from dispatcher.core.progress.commit_note import CommitNote, decode
from dispatcher.core.progress.gap import Cause
from dispatcher.errors import BrokerError
from dispatcher.worker.gaps import ASK_AGAIN_S, REMIND_S, Gaps
from tests.specimens import alone

TOPIC, FORMER = bytes(range(16)), bytes(16)
START, END = 50, 60
STALE = Committed(7, CommitNote(FORMER, 1, 1, 7).encode())


class Source:
    """Three partitions whose logs hold START to END; `committed` is what the group has."""

    def __init__(self, group: dict[int, Committed] | None = None) -> None:
        self.group = {n: Committed(None, None) for n in range(3)} | (group or {})
        self.is_away = False
        self.asked = 0
        self.paused: set[int] = set()
        self.sought: dict[int, int] = {}

    def pause(self, partition: int) -> None:
        self.paused.add(partition)

    def restart(self, partition: int, position: int) -> None:
        self.sought[partition] = position

    def committed(self, partitions: Iterable[int], timeout_s: float) -> dict[int, Committed]:
        if self.is_away:
            raise Unsettled(f"no answer within {timeout_s} s")
        return {n: self.group[n] for n in partitions}

    def edges(self, partition: int, timeout_s: float) -> tuple[int, int]:
        self.asked += 1
        if self.is_away:
            raise Unsettled(f"no answer of partition {partition} within {timeout_s} s")
        return START, END


class Diary:
    """Keeps the errors that are logged."""

    def __init__(self) -> None:
        self.errors: list[dict[str, object]] = []

    def info(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None:
        self.errors.append({"event": event, **fields})


def gaps(source: Source, log: Diary | None = None, *, passes: bool = False) -> Gaps:
    """Make the gaps of a worker that has all three partitions."""
    return Gaps(source, log or Diary(), alone(TOPIC, 3), passes=passes)


def test_what_retention_removed_stops_its_partition_and_no_other() -> None:
    """It is paused, so that no other command makes it read on; others are not touched."""
    source = Source()
    found = gaps(source)
    found.refuse(1, 5)
    assert [] == found.bridge({0, 1, 2}, 0.0)
    assert {1: (Cause.RETENTION, 45)} == {n: (gap.cause, gap.lost) for n, gap in found.standing.items()}
    assert ({1}, {}) == (source.paused, source.sought)
    found.refuse(1, 5)
    assert [] == found.bridge({0, 1, 2}, 100.0)
    assert 1 == source.asked, "one that stands is not asked about again"


def test_it_is_passed_where_the_settings_say_so() -> None:
    """Reading goes on at the first record that is there."""
    source = Source()
    found = gaps(source, passes=True)
    found.refuse(1, 5)
    assert [(1, Cause.RETENTION, 45)] == [(gap.partition, gap.cause, gap.lost) for gap in found.bridge({1}, 0.0)]
    assert ({1: START}, set(), {}) == (source.sought, source.paused, found.standing)


def test_where_all_that_was_removed_is_settled_nothing_is_lost() -> None:
    """A paused partition has not read the holes behind its last record, which its position counts, and retention removes up to that."""
    source = Source({1: Committed(START, None)})
    found = gaps(source)
    found.refuse(1, START - 1)
    assert ([], {}) == (found.bridge({1}, 0.0), found.standing)
    assert {1: START} == source.sought


def test_a_position_beyond_the_end_is_never_passed() -> None:
    """Another tool set it: what it meant nobody knows."""
    found = gaps(Source(), passes=True)
    found.refuse(1, END + 1)
    assert [] == found.bridge({1}, 0.0)
    assert Cause.BEYOND_END is found.standing[1].cause


def test_a_position_that_the_log_holds_by_now_is_read_again() -> None:
    """The broker refused it, and says otherwise when it is asked: the client is told to go on, since by itself it does not."""
    source = Source()
    found = gaps(source)
    found.refuse(1, END)
    found.bridge({1}, 0.0)
    assert ({1: END}, {}) == (source.sought, found.standing)


def test_who_does_not_answer_is_asked_again_after_a_while() -> None:
    """The leader is away: the partition neither stands nor goes on, and the poller is not held up in each round."""
    source = Source()
    source.is_away = True
    found = gaps(source)
    found.refuse(1, 5)
    for now in (0.0, ASK_AGAIN_S / 2):
        found.bridge({1}, now)
    assert (1, {}) == (source.asked, found.standing)
    source.is_away = False
    found.bridge({1}, ASK_AGAIN_S)
    assert {1} == found.standing.keys()


def test_a_partition_that_is_not_live_yet_waits_with_its_gap() -> None:
    """Only an owner can say that something is lost; and one that went is forgotten."""
    found = gaps(Source(), passes=True)
    found.refuse(1, 5)
    assert [] == found.bridge({0}, 0.0)
    assert 1 == len(found.bridge({0, 1}, 0.0))
    found.refuse(2, 5)
    found.forget([2])
    assert [] == found.bridge({2}, 0.0)


def test_what_stands_is_said_at_once_and_every_minute_until_it_is_gone() -> None:
    """With what is missing, and what to do."""
    diary = Diary()
    found = gaps(Source(), diary)
    found.refuse(1, 5)
    found.bridge({1}, 1.0)
    for now in (1.0, 2.0, REMIND_S, 1.0 + REMIND_S):
        found.remind(now)
    told = {"event": "gap", "partition": 1, "cause": "retention", "position": 5, "log_start": START, "log_end": END}
    assert [told | {"hint": diary.errors[0]["hint"]}] * 2 == diary.errors
    before = found.standing
    found.forget([1])
    found.remind(1000.0)
    assert (2, {}, [1]) == (len(diary.errors), found.standing, list(before))


def test_a_partition_without_a_position_stands_whatever_the_settings_say() -> None:
    """From its start it might all be called again, from its end requests would be lost."""
    source = Source({0: Committed(3, None), 2: Committed(3, None)})
    found = gaps(source, passes=True)
    sound, passed = found.sound({0: Committed(3, None), 1: Committed(None, None)})
    assert ({0: 3}, []) == (sound, passed)
    assert {1: Cause.NO_POSITION} == {n: gap.cause for n, gap in found.standing.items()}
    assert {1} == source.paused


def test_a_group_without_any_position_is_not_started() -> None:
    """That is a first start, and no gap: it has its own command."""
    with pytest.raises(BrokerError) as caught:
        gaps(Source()).sound({1: Committed(None, None)})
    assert "dispatcher topics init" in caught.value.hint


def test_partitions_that_were_added_while_nobody_looked_are_no_gap() -> None:
    """The last ones have no position, and all before them have: keys have moved, and not only where partitions are new."""
    with pytest.raises(BrokerError, match="has grown beyond the 1 partitions") as caught:
        gaps(Source({0: Committed(3, None)})).sound({0: Committed(3, None), 2: Committed(None, None)})
    assert "--fill-gaps" in caught.value.hint


def test_while_nobody_can_say_whether_it_is_a_first_start_the_others_go_on() -> None:
    """The partition is looked at again."""
    source = Source()
    source.is_away = True
    found = gaps(source)
    assert ({0: 3}, []) == found.sound({0: Committed(3, None), 1: Committed(None, None)})
    assert {} == found.standing


def test_a_position_of_a_former_topic_stands_or_begins_at_the_start() -> None:
    """The settings decide; in no case is the new topic read from the old position."""
    standing = gaps(Source())
    assert ({}, []) == standing.sound({1: STALE})
    assert {1: Cause.FORMER_TOPIC} == {n: gap.cause for n, gap in standing.standing.items()}
    passing = gaps(Source(), passes=True)
    sound, passed = passing.sound({1: STALE})
    assert ({1: START}, [0], {}) == (sound, [gap.lost for gap in passed], passing.standing)


def test_a_start_that_nobody_tells_is_not_made_up() -> None:
    """The leader of the partition is away; others go on."""
    source = Source()
    source.is_away = True
    found = gaps(source, passes=True)
    assert ({0: 3}, []) == found.sound({1: STALE, 0: Committed(3, None)})
    assert {} == found.standing


def test_a_log_that_has_lost_its_end_stops_its_partition() -> None:
    """New requests get the offsets of what has ended there, and would be taken for it. Others, and whoever has no map, are not touched."""
    beyond, within = ((55, 58), (59, END + 3), (END + 5, END + 9)), ((55, END),)
    group = {n: Committed(52, CommitNote(TOPIC, 4, 1, 52, settled).encode()) for n, settled in enumerate((beyond, within, ()))}
    source, log = Source(), Diary()
    standing = gaps(source, log)
    assert ({1: 52, 2: 52}, []) == standing.sound(group)
    assert {0: Cause.LOG_CUT} == {n: gap.cause for n, gap in standing.standing.items()}
    assert ({0}, 2) == (source.paused, source.asked)
    standing.remind(0.0)
    assert [("gap", "log_cut", 52, END)] == [(e["event"], e["cause"], e["position"], e["log_end"]) for e in log.errors]
    passing = gaps(Source(), passes=True)
    sound, (passed,) = passing.sound(group)
    note = decode(passed.metadata, TOPIC)
    assert note is not None
    assert ({0: 52, 1: 52, 2: 52}, 52) == (sound, passed.goes_on_at)
    assert (4, ((55, 58), (59, END))) == (note.epoch, note.settled_at(52))


def test_where_nobody_tells_the_end_of_a_log_its_map_is_not_believed() -> None:
    """The partition is looked at again; whoever has no map goes on."""
    source = Source()
    source.is_away = True
    found = gaps(source)
    mapped = Committed(52, CommitNote(TOPIC, 4, 1, 52, ((55, 58),)).encode())
    assert ({1: 3}, [], {}) == (*found.sound({0: mapped, 1: Committed(3, None), 2: mapped}), found.standing)
