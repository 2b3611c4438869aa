"""How long requests of a strict lane waited behind records of *other* keys: what a lane for each key would save them."""

from __future__ import annotations

from collections import Counter


class BehindOthers:
    """Owned by one strict Lane. Times are monotonic seconds."""

    __slots__ = ("_free_since", "_queued")

    def __init__(self) -> None:
        self._queued: Counter[bytes | None] = Counter()  # by key
        # Keys with queued records: since when no earlier record of that key was in their way.
        self._free_since: dict[bytes | None, float] = {}

    def __getitem__(self, key: bytes | None) -> int:
        """How many records of a key are queued."""
        return self._queued[key]

    def came(self, key: bytes | None) -> None:
        """A record of this key is queued."""
        self._queued[key] += 1

    def went(self, key: bytes | None) -> None:
        """One is queued no more: its turn has come, or it ends early."""
        self._queued[key] -= 1
        if self._queued[key] <= 0:
            del self._queued[key]

    def ended(self, key: bytes | None, now: float) -> None:
        """The request at the head of the lane has ended: only others are in the way of the next of its key."""
        if key in self._queued:
            self._free_since[key] = now
        else:
            self._free_since.pop(key, None)

    def waited_s(self, key: bytes | None, arrived: float, now: float) -> float:
        """The first call of a request that arrived then begins: how long others alone were in its way."""
        return now - max(arrived, self._free_since.pop(key, arrived))

    def clear(self) -> None:
        """Forget all."""
        self._queued.clear()
        self._free_since.clear()


class _Alone(BehindOthers):
    """Of the lane of one key, in which nobody waits behind others. It knows nothing, and there is one for all of them."""

    def came(self, key: bytes | None) -> None:
        """As in `BehindOthers`."""

    def went(self, key: bytes | None) -> None:
        """As in `BehindOthers`."""

    def ended(self, key: bytes | None, now: float) -> None:
        """As in `BehindOthers`."""

    def waited_s(self, key: bytes | None, arrived: float, now: float) -> float:
        """As in `BehindOthers`."""
        del key, arrived, now
        return 0.0

    def clear(self) -> None:
        """As in `BehindOthers`."""


ALONE = _Alone()
