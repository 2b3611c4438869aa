"""Waiting for replies: the thread that reads them (`_Poller`), and the event loop's side that decides what is read (`Listener`)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from dispatcher.adapters.kafka.inquiry import Inquiry
from dispatcher.adapters.kafka.loop import fill
from dispatcher.adapters.kafka.offsets import Place
from dispatcher.adapters.kafka.tail import Tail
from dispatcher.client.shared import Shared, closed
from dispatcher.core.messages.glance import reply_names
from dispatcher.core.messages.record import Record
from dispatcher.errors import DispatcherError
from dispatcher.settings import Settings

# One wait for records; what is to be read in addition waits for at most this long.
POLL_S = 0.02
# Without anything to read: how often librdkafka may tell what it has to tell.
IDLE_S = 5.0
# A partition that nobody waits in is read on for so long: who asks again soon need not look up its end again.
LINGER_S = 30.0
END_S = 5.0


@dataclass(slots=True, eq=False)
class Watch:
    """Somebody who waits for the reply to `name` (an id, or a position with its topic's id) in `places`.

    `found` is the first record of that name which was not passed over. Belongs to the event loop; the thread calls `told`.
    """

    name: str
    places: tuple[Place, ...]
    found: asyncio.Future[Record]
    later: deque[Record | DispatcherError] = field(default_factory=deque)

    def told(self, record: Record) -> None:
        """Hear from the thread. The loop may be gone."""
        with contextlib.suppress(RuntimeError):
            self.found.get_loop().call_soon_threadsafe(self.hear, record)

    def hear(self, outcome: Record | DispatcherError) -> None:
        """Take what came, in its order."""
        if self.found.done():
            self.later.append(outcome)
        else:
            fill(self.found, outcome)

    def pass_over(self) -> None:
        """Wait for the next one: what was found is not what is waited for."""
        self.found = self.found.get_loop().create_future()
        if self.later:
            fill(self.found, self.later.popleft())


@dataclass(frozen=True, slots=True)
class _Add:
    place: Place
    offset: int


@dataclass(frozen=True, slots=True)
class _Drop:
    place: Place


@dataclass(frozen=True, slots=True)
class _Await:
    watch: Watch


@dataclass(frozen=True, slots=True)
class _Forget:
    watch: Watch


_Letter = _Add | _Drop | _Await | _Forget | None


@dataclass(slots=True)
class _Reading:
    """A partition that is read, or will be once its end is known."""

    captured: Shared[None]
    watches: set[Watch] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None


class Listener:
    """Tells each watch its reply. Belongs to the event loop; the thread starts with the first watch.

    A partition is read from the end that it had before `watch` returned, so a reply to what is sent afterwards cannot be missed; one that
    is read already is at such an offset. Held in memory: the names that are waited for. Other replies are dropped by their headers.
    """

    def __init__(self, settings: Settings, inquiry: Inquiry) -> None:
        self._loop = asyncio.get_running_loop()
        self._inquiry = inquiry
        self._poller = _Poller(settings, self._fault)
        self._readings: dict[Place, _Reading] = {}
        self._closed = False

    async def watch(self, name: str, places: Iterable[Place]) -> Watch:
        """Wait for a name from now on. Once this returns nothing that comes is missed; `release` ends it. Errors as `Inquiry` has them."""
        if self._closed:
            raise closed()
        found: asyncio.Future[Record] = self._loop.create_future()
        made = Watch(name, tuple(places), found)
        self._poller.put(_Await(made))
        try:
            missing = [place for place in made.places if place not in self._readings]
            if missing:
                begun: dict[Place, _Reading] = {}
                captured = Shared(self._capture(begun))
                begun |= {place: _Reading(captured) for place in missing}
                self._readings |= begun
            readings = [self._readings[place] for place in made.places]
            for reading in readings:
                self._join(reading, made)
            for reading in readings:
                await reading.captured.result()
        except BaseException:
            self.release(made)
            raise
        return made

    def release(self, watch: Watch) -> None:
        """Wait no more; may be repeated. Partitions that nobody waits in are dropped after a while."""
        self._poller.put(_Forget(watch))
        watch.found.cancel()
        for place in watch.places:
            reading = self._readings.get(place)
            if reading is None or watch not in reading.watches:
                continue
            reading.watches.remove(watch)
            if not reading.watches:
                reading.timer = self._loop.call_later(LINGER_S, self._drop, place, reading)

    @property
    def reading(self) -> frozenset[Place]:
        """The partitions that are read now."""
        return frozenset(self._readings)

    async def close(self) -> None:
        """End the thread; open watches end with an error."""
        self._closed = True
        for reading in self._readings.values():
            reading.captured.cancel()
            if reading.timer is not None:
                reading.timer.cancel()
            for watch in reading.watches:
                watch.hear(closed())
        self._readings.clear()
        await asyncio.to_thread(self._poller.close)

    def _join(self, reading: _Reading, watch: Watch) -> None:
        reading.watches.add(watch)
        if reading.timer is not None:
            reading.timer.cancel()
            reading.timer = None

    async def _capture(self, begun: dict[Place, _Reading]) -> None:
        """Learn where partitions end, and read them from there."""
        try:
            ends = await self._inquiry.ends(begun)
        except BaseException:
            for place, reading in begun.items():
                self._end(place, reading)
            raise
        for place, reading in begun.items():
            if self._readings.get(place) is reading:
                self._poller.put(_Add(place, ends[place]))

    def _drop(self, place: Place, reading: _Reading) -> None:
        if not reading.watches and self._end(place, reading):
            self._poller.put(_Drop(place))

    def _end(self, place: Place, reading: _Reading) -> bool:
        """Count a reading as over; False where it was over before, and perhaps another one has begun."""
        if reading.timer is not None:
            reading.timer.cancel()
            reading.timer = None
        if self._readings.get(place) is not reading:
            return False
        del self._readings[place]
        return True

    def _fault(self, place: Place | None, error: DispatcherError) -> None:
        """Pass on that a partition (None: any) cannot be read. Called in the thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._failed, place, error)

    def _failed(self, place: Place | None, error: DispatcherError) -> None:
        for at in list(self._readings) if place is None else [place]:
            reading = self._readings.get(at)
            if reading is None:
                continue
            self._end(at, reading)
            self._poller.put(_Drop(at))
            for watch in reading.watches:
                watch.hear(error)


class _Poller:
    """The thread that owns the consumer and knows who waits for what."""

    def __init__(self, settings: Settings, fault: Callable[[Place | None, DispatcherError], None]) -> None:
        self._settings = settings
        self._fault = fault
        self._letters: SimpleQueue[_Letter] = SimpleQueue()
        self._thread: threading.Thread | None = None
        # Of the thread:
        self._reads: set[Place] = set()
        self._awaited: dict[str, list[Watch]] = {}

    def put(self, letter: _Letter) -> None:
        """Send the thread a letter. Belongs to the event loop."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dispatcher-listener", daemon=True)
            self._thread.start()
        self._letters.put(letter)

    def close(self) -> None:
        """End the thread. Called once nobody puts letters any more."""
        if self._thread is not None:
            self._letters.put(None)
            self._thread.join(END_S)

    def _run(self) -> None:
        try:
            self._listen(Tail(self._settings))
        except Exception as error:  # noqa: BLE001 - a bug of ours, or a bad property, must not leave askers waiting
            known = error if isinstance(error, DispatcherError) else DispatcherError(f"the client's listener ended: {type(error).__name__}")
            self._fault(None, known)
            while (letter := self._letters.get()) is not None:
                if isinstance(letter, _Add):
                    self._fault(letter.place, known)

    def _listen(self, tail: Tail) -> None:
        try:
            while self._take_letters(tail, wait=not self._reads):
                batch = tail.read(POLL_S if self._reads else 0)
                # Whoever sent a request has put its letter before: it is read before a reply is looked at.
                if not self._take_letters(tail, wait=False):
                    break
                for place, error in batch.faults.items():
                    self._fault(place, error)
                for record in batch.records:
                    self._hear(record)
        finally:
            tail.close()

    def _take_letters(self, tail: Tail, *, wait: bool) -> bool:
        """Do what the letters say; False at the last one."""
        with contextlib.suppress(Empty):
            while (letter := self._letters.get(block=wait, timeout=IDLE_S)) is not None:
                wait = False
                self._take(letter, tail)
            return False
        return True

    def _take(self, letter: _Letter, tail: Tail) -> None:
        match letter:
            case _Add(place, offset) if place not in self._reads:
                tail.add(place, offset)
                self._reads.add(place)
            case _Drop(place) if place in self._reads:
                tail.drop(place)
                self._reads.remove(place)
            case _Await(watch):
                self._awaited.setdefault(watch.name, []).append(watch)
            case _Forget(watch):
                self._forget(watch)

    def _forget(self, watch: Watch) -> None:
        waiting = self._awaited.get(watch.name, [])
        if watch in waiting:
            waiting.remove(watch)
        if not waiting:
            self._awaited.pop(watch.name, None)

    def _hear(self, record: Record) -> None:
        place = record.topic, record.partition
        for name in reply_names(record):
            # In another partition than it must be in, a reply is somebody else's idea.
            for watch in self._awaited.get(name, ()):
                if place in watch.places:
                    watch.told(record)
