"""A quota as strict providers count it: a sliding window of one second and calls that are open, for each caller by itself. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque

# The window, and what a refused caller is told to wait where only the end of another call makes room.
WINDOW_S = 1.0
BUSY_S = 0.1
# Callers that are counted; the one that was heard of longest ago is forgotten first.
CALLERS_MAX = 10_000


class _Caller:
    __slots__ = ("open", "starts")

    def __init__(self) -> None:
        self.open = 0
        self.starts: deque[float] = deque()


class Quota:
    """Owned by the server. `per_s` calls in any second, `at_once` open ones; None: any number. What is refused counts for nothing.

    >>> quota = Quota(per_s=2, at_once=None)
    >>> [quota.enter("a", now) for now in (0.0, 0.9, 0.95, 1.0, 1.5)]
    [0.0, 0.0, 0.05, 0.0, 0.4]
    >>> busy = Quota(per_s=None, at_once=1)
    >>> busy.enter("a", 0.0), busy.enter("a", 5.0), busy.enter("b", 5.0), busy.leave("a"), busy.enter("a", 5.0)
    (0.0, 0.1, 0.0, None, 0.0)
    """

    def __init__(self, per_s: int | None = None, at_once: int | None = None) -> None:
        self._per_s = per_s
        self._at_once = at_once
        self._callers: OrderedDict[str, _Caller] = OrderedDict()

    def enter(self, name: str, now: float) -> float:
        """A call begins: 0.0 where it may, else seconds after which it may be tried again. Those that may have to `leave`."""
        caller = self._callers.setdefault(name, _Caller())
        self._callers.move_to_end(name)
        if len(self._callers) > CALLERS_MAX:
            self._callers.popitem(last=False)
        starts = caller.starts
        while starts and starts[0] + WINDOW_S <= now:
            starts.popleft()
        if self._at_once is not None and caller.open >= self._at_once:
            return BUSY_S
        if self._per_s is not None and len(starts) >= self._per_s:
            return round(starts[len(starts) - self._per_s] + WINDOW_S - now, 6)
        caller.open += 1
        if self._per_s is not None:
            starts.append(now)
        return 0.0

    def leave(self, name: str) -> None:
        """A call of that caller has ended."""
        if (caller := self._callers.get(name)) is not None and caller.open:
            caller.open -= 1
