"""What an outage of a callee may cost: the calls that it takes to see it, and one at a time to see whether it is over."""

from __future__ import annotations

from dataclasses import dataclass

from tests.guarantees.events import CallEnded, CallStarted, CameBack, Event, WentDown

# A call that was answered may have been cut off in that very turn: the worker has not seen its failure then.
UNSEEN = 2


@dataclass(slots=True)
class _Seen:
    """What one worker has seen of the outage. Once it has seen enough: since when, the calls that it has begun, those that told nothing."""

    in_row: int = 0
    since: float | None = None
    begun: int = 0
    told_nothing: int = 0


class OneProbe:
    """A worker that has seen that a callee is down asks it again once in a while: with one call per open period, and no more.

    >>> def outage(*starts, open_s=10.0):
    ...     judge = OneProbe()
    ...     judge.see(WentDown(2, open_s))
    ...     for call, at in enumerate((0, 1, *starts)):
    ...         judge.see(CallStarted(call, 0, call, 1, "a", at=at))
    ...         judge.see(CallEnded(call, at + 0.1, "failed"))
    ...     return judge
    >>> outage(11, 22, 33, 44).findings()
    []
    >>> outage(2, 3, 4, 5).findings()
    ['a has made 4 calls in the 3.9 s since it saw that the callee is down']
    """

    def __init__(self) -> None:
        self._down: WentDown | None = None
        self._calls: dict[int, tuple[str, bool]] = {}  # of which worker, and whether it began while the callee was down
        self._workers: dict[str, _Seen] = {}
        self._found: dict[str, str] = {}

    def see(self, event: Event) -> None:
        """Take in calls, and how the callee is."""
        match event:
            case WentDown():
                self._down, self._workers = event, {}
            case CameBack():
                self._down = None
            case CallStarted(call=call, worker=worker, at=at):
                self._calls[call] = worker, self._down is not None
                self._begin(worker, at)
            case CallEnded(call, at, says) if call in self._calls:
                self._end(*self._calls.pop(call), says, at)
            case _:
                pass

    def findings(self) -> list[str]:
        """Say who went on calling."""
        return list(self._found.values())

    def _begin(self, worker: str, at: float) -> None:
        seen = self._workers.get(worker)
        if self._down is None or seen is None or seen.since is None:
            return
        seen.begun += 1
        passed_s = at - seen.since
        if seen.begun > 1 + passed_s / self._down.open_s + seen.told_nothing + UNSEEN:
            self._found[worker] = f"{worker} has made {seen.begun} calls in the {passed_s:.1f} s since it saw that the callee is down"

    def _end(self, worker: str, was_down: bool, says: str, at: float) -> None:  # noqa: FBT001 - as it was kept
        seen = self._workers.setdefault(worker, _Seen())
        if says == "ok":
            self._workers[worker] = _Seen()
        elif says == "failed" and was_down and self._down is not None:
            seen.in_row += 1
            if seen.in_row >= self._down.failures and seen.since is None:
                seen.since = at
        elif seen.since is not None:
            seen.told_nothing += 1
