"""How many calls of one worker may begin in a window, and be open at once, where a limit is configured."""

from __future__ import annotations

import math
from collections import defaultdict

from tests.guarantees.events import CallEnded, CallStarted, Crashed, Event

# Windows that touch share no call; times are doubles.
ROUNDING_S = 1e-6


class WithinLimits:
    """No more calls of a worker begin in any window than `requests`, and no more are open at once than `concurrency`; None: any number.

    Where they share it (`is_shared`), no more calls of all of them. A call is open until its worker knows that it has ended; where that one
    has died, or where it stands still, for as long as a call may last. One that never left has not begun. Of a bucket (`is_bucket`) a whole
    one and a refill fit into a window.

    >>> def begun(*starts, **limit):
    ...     judge = WithinLimits(**limit)
    ...     for call, at in enumerate(starts):
    ...         judge.see(CallStarted(call, 0, call, 1, "a", at=at))
    ...     return judge.findings()
    >>> begun(0, 1, 10, 11, requests=2, window_s=10)
    []
    >>> begun(0, 1, 9, requests=2, window_s=10)
    ['a began 3 calls in 9 s, and 2 may begin in 10 s']
    >>> begun(0, 1, 6, 7, requests=2, window_s=10, is_bucket=True)
    ['a began 4 calls in 7 s, and 3.4 may begin then']
    >>> begun(0, 1, concurrency=1)
    ['a has 2 calls open, and 1 may be']
    >>> judge = WithinLimits(concurrency=1)
    >>> for event in (CallStarted(1, 0, 1, 1, "a"), CallEnded(1), CallStarted(2, 0, 2, 1, "a"), CallStarted(3, 0, 3, 1, "b")):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> judge = WithinLimits(concurrency=1, is_shared=True)
    >>> for event in (CallStarted(1, 0, 1, 1, "a", timeout_s=9), Crashed("a"), CallStarted(2, 0, 2, 1, "b", at=9, timeout_s=9)):
    ...     judge.see(event)
    >>> judge.findings()
    []
    >>> judge.see(CallStarted(3, 0, 3, 1, "c", at=17.9, timeout_s=9))
    >>> judge.findings()
    ['they have 2 calls open, and 1 may be']
    >>> judge = WithinLimits(requests=1)
    >>> for event in (CallStarted(1, 0, 1, 1, "a"), CallEnded(1, unsent=True), CallStarted(2, 0, 1, 1, "a", 2)):
    ...     judge.see(event)
    >>> judge.findings()
    []
    """

    def __init__(
        self,
        *,
        requests: int | None = None,
        window_s: float = 1.0,
        concurrency: int | None = None,
        is_bucket: bool = False,
        is_shared: bool = False,
    ) -> None:
        self._requests = requests
        self._window_s = window_s
        self._concurrency = concurrency
        self._is_bucket = is_bucket
        self._starts: defaultdict[str, dict[int, float]] = defaultdict(dict)
        self.is_shared = is_shared
        self._open: defaultdict[str, dict[int, float]] = defaultdict(dict)  # calls, and when they are over at the latest
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in calls, and workers that die with theirs."""
        match event:
            case CallStarted(call=call, worker=name, at=at, timeout_s=timeout_s):
                worker = "they" if self.is_shared else name
                self._begin(worker, call, at)
                if self.is_shared:
                    self._open[worker] = {one: until for one, until in self._open[worker].items() if until > at}
                self._open[worker][call] = math.inf if timeout_s is None else at + timeout_s
                count, have = len(self._open[worker]), "have" if self.is_shared else "has"
                if self._concurrency is not None and count > self._concurrency:
                    self._found.append(f"{worker} {have} {count} calls open, and {self._concurrency} may be")
            case CallEnded(call, unsent=unsent):
                for of in self._open.values():
                    of.pop(call, None)
                for starts in self._starts.values() if unsent else ():
                    starts.pop(call, None)
            case Crashed(worker):
                self._open.pop(worker, None)  # where they share it, this is nobody's
            case _:
                pass

    def findings(self) -> list[str]:
        """Say who began too many."""
        return self._found

    def _begin(self, worker: str, call: int, at: float) -> None:
        if self._requests is None:
            return
        since = at - self._window_s + ROUNDING_S
        starts = self._starts[worker] = {one: begun for one, begun in self._starts[worker].items() if begun > since} | {call: at}
        lasted_s = at - min(starts.values())
        if not self._is_bucket and len(starts) > self._requests:
            self._found.append(
                f"{worker} began {len(starts)} calls in {lasted_s:.3g} s, and {self._requests} may begin in {self._window_s:g} s"
            )
        most = self._requests * (1 + lasted_s / self._window_s)
        if self._is_bucket and len(starts) > most + ROUNDING_S:
            self._found.append(f"{worker} began {len(starts)} calls in {lasted_s:.3g} s, and {most:.3g} may begin then")
