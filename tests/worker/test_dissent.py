"""Workers of one group that read different request topics are told of: lanes would wait for siblings that never come."""

from __future__ import annotations

from typing import Any

from dispatcher.worker.dissent import Dissent

OURS, OTHER = "d.requests.fast", "d.requests.slow"


class Log:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def warning(self, event: str, **fields: object) -> None:
        """Take a warning."""
        self.events.append((event, fields["topics"]))

    def info(self, event: str, **fields: object) -> None:
        """Take what is less."""
        self.events.append((event, fields.get("topics")))


def told(*looks: set[str] | None) -> list[tuple[str, Any]]:
    """What is said, if the members' topics are these, look by look."""
    log, seen = Log(), iter([None if look is None else frozenset(look) for look in looks])
    dissent = Dissent([OURS], lambda: next(seen), log)
    for _ in looks:
        dissent.look()
    assert dissent.fault is None
    return log.events


def test_a_topic_that_others_read_is_told_of_once() -> None:
    """And that it is over; not what one look alone has seen, nor where nobody answers."""
    both = {OURS, OTHER}
    assert [] == told({OURS}, both, {OURS}, both, None, set())
    assert [("group_divided", [OTHER])] == told(both, both, None, both, both)
    assert [("group_divided", [OTHER]), ("group_agrees", None)] == told(both, {OTHER}, {OURS}, {OURS})
