"""What a look at the group finds: only what the client has missed for good makes it join again."""

from __future__ import annotations

from typing import Any

import pytest

from dispatcher.adapters.kafka.membership import Given, Held
from dispatcher.worker.attendance import Attendance

HEARTBEAT_S = 2.0
LOOKS = 4  # two heartbeats and four seconds, one look every two seconds


class Log:
    """Counts what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def warning(self, event: str, **_: object) -> None:
        self.said.append(event)


def held(*partitions: int, changes: int = 1) -> Held:
    """Give what a client has."""
    return Held("m", changes, frozenset(partitions))


def given(has: set[int], wanted: set[int]) -> Given:
    """Give what the group says."""
    return Given(frozenset(has), frozenset(wanted))


def looks(*seen: tuple[Held | None, Given | None]) -> tuple[list[int], list[str]]:
    """Look as often as there is something to be seen; give the changes for which the client was to join again, and what was said."""
    rejoined: list[int] = []
    log, at = Log(), [0]
    attendance = Attendance(lambda: seen[at[0]][0], lambda _: seen[at[0]][1], rejoined.append, log, HEARTBEAT_S)
    for at[0] in range(len(seen)):
        attendance.look()
    return rejoined, log.said


@pytest.mark.parametrize(
    ("has", "group"),
    [
        (held(0, 1), given({0, 1}, {0})),  # it was to give one up
        (held(0, 1), given({0}, {0})),  # and the group waits to hear that it has
        (held(0), given({0, 1}, {0, 1})),  # it was to take one
    ],
)
def test_what_the_client_has_missed_makes_it_join_again(has: Held, group: Given) -> None:
    """Once so many looks agree, and not before."""
    assert ([], []) == looks(*[(has, group)] * (LOOKS - 1))
    assert ([1], ["rejoining"]) == looks(*[(has, group)] * LOOKS)


def test_what_takes_its_time_is_waited_for() -> None:
    """What is to be ours and is another's still, a change under way, a client that hears of something in between, and silence."""
    missed: Any = held(0, 1), given({0}, {0})
    assert ([], []) == looks(*[(held(0), given({0}, {0, 1}))] * 3 * LOOKS)
    assert ([], []) == looks(*[(None, None)] * 3 * LOOKS)
    for between in ((None, None), (held(0, 1), None), (held(0, 1, changes=2), missed[1])):
        assert ([], []) == looks(*[missed] * (LOOKS - 1), between, *[missed] * (LOOKS - 1))


@pytest.mark.parametrize(("heartbeat_s", "looks"), [(2.0, 4), (5.0, 7), (15.0, 17)])
def test_rare_heartbeats_are_waited_for(heartbeat_s: float, looks: int) -> None:
    """What is to be given up is told with the answer to the next one: a healthy worker must not be made to hand over all it has."""
    assert looks == Attendance(lambda: None, lambda _: None, lambda _: None, Log(), heartbeat_s).looks
