"""The history of one lane (a partition, or a key) as a callee saw it, judged for order and overlap. Pure.

The order oracle: *without the re-executed suffix of each owner epoch, starts are in log order*. In words: within one epoch, offsets
never go back (an attempt of the same offset may follow itself). A new epoch may begin again at what its predecessor had not
committed; what it goes back over has to be started again, in order, by the new epoch, since it is only then a *re-executed* suffix.

What a callee cannot know, and how it is judged: commits. A new epoch cannot begin below the first start of the epoch before it
(that one began at a committed position), so a jump back beyond it counts as out of order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

# Offsets remembered per lane. A rewind reaches back to what was not committed, at most the buffer of a lane (4,000 records by default).
STARTS_KEPT_MAX = 50_000


class LaneHistory:
    """What one lane did: which offsets started in which order, which calls are open. Owned by the `Witness`; no clock.

    `starts` are the offsets of the history without re-executed suffixes, ascending. `owed` are offsets that a rewind went back over
    and that have not been started again yet, ascending, all above `starts`. While calls go on, something may be owed; at the end
    nothing may be.

    >>> one_owner = LaneHistory()
    >>> [one_owner.start(epoch=1, offset=o) for o in (1, 3)], one_owner.start(epoch=1, offset=2)
    ([None, None], 'offset 2 started after offset 3 in epoch 1')
    >>> crashed = LaneHistory()
    >>> [crashed.start(epoch=e, offset=o) for e, o in ((1, 1), (1, 2), (2, 1), (2, 2), (2, 3))], crashed.owed
    ([None, None, None, None, None], deque([]))
    >>> skipping = LaneHistory()
    >>> [skipping.start(epoch=e, offset=o) for e, o in ((1, 1), (1, 3), (2, 2))], skipping.owed
    ([None, None, None], deque([3]))
    >>> skipping.start(epoch=2, offset=4)
    'offset 4 started in epoch 2, but offset 3 of an earlier epoch was not started again before it'
    """

    __slots__ = ("epoch", "first", "open", "out_of_order", "overlaps_other_epoch", "overlaps_same_epoch", "owed", "starts")

    def __init__(self) -> None:
        self.epoch = -1
        self.first = -1  # first offset that the present epoch started
        self.starts: list[int] = []
        self.owed: deque[int] = deque()
        self.out_of_order = 0
        self.open: dict[int, int] = {}  # number of an open call -> its epoch
        self.overlaps_same_epoch = 0
        self.overlaps_other_epoch = 0

    def opened(self, number: int, epoch: int) -> None:
        """Note that a call of this lane begins: another one still open is an overlap, told apart by whether its owner is the same."""
        if self.open:
            if epoch in self.open.values():
                self.overlaps_same_epoch += 1
            else:
                self.overlaps_other_epoch += 1
        self.open[number] = epoch

    def closed(self, number: int) -> None:
        """Note that the call with this number has ended."""
        del self.open[number]

    def start(self, *, epoch: int, offset: int) -> str | None:
        """Take in one start; None if it is in order, else a sentence that says what overtook what."""
        finding = self._judge(epoch, offset)
        if finding is not None:
            self.out_of_order += 1
        return finding

    def _judge(self, epoch: int, offset: int) -> str | None:
        if epoch < self.epoch:
            # A late call of an old owner. Above `first` it belongs to the suffix that the new owner runs again.
            late = offset < self.first
            return f"offset {offset} started in epoch {epoch} after epoch {self.epoch} began at {self.first}" if late else None
        if epoch > self.epoch:
            if not self._begin(epoch, offset):
                return f"epoch {epoch} began at offset {offset}, before everything that the epoch before it had started"
        elif offset < self.starts[-1]:
            return f"offset {offset} started after offset {self.starts[-1]} in epoch {epoch}"
        return self._append(epoch, offset)

    def _begin(self, epoch: int, offset: int) -> bool:
        """Hand over to a new owner at `offset`: what the history holds from there on is owed again. False if that goes back too far."""
        too_far = bool(self.starts) and offset < self.first
        self.epoch, self.first = epoch, offset
        cut = bisect_left(self.starts, offset)
        self.owed.extendleft(reversed(self.starts[cut:]))
        del self.starts[cut:]
        if too_far:
            self._append(epoch, offset)
        return not too_far

    def _append(self, epoch: int, offset: int) -> str | None:
        passed = None
        while self.owed and self.owed[0] < offset:
            passed = self.owed.popleft()
        if self.owed and self.owed[0] == offset:
            self.owed.popleft()
        if not self.starts or self.starts[-1] != offset:
            self.starts.append(offset)
            if len(self.starts) > STARTS_KEPT_MAX:
                del self.starts[: STARTS_KEPT_MAX // 2]
        if passed is None:
            return None
        return f"offset {offset} started in epoch {epoch}, but offset {passed} of an earlier epoch was not started again before it"
