"""An engine on a real event loop, with an upstream that answers when it is told to, and its three neighbours played by the test."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from dispatcher.core.callees.billing import Bill
from dispatcher.core.callees.breaker import State
from dispatcher.core.callees.gate import Turned
from dispatcher.core.callees.verdict import Dead, Retry, Settled
from dispatcher.core.internal.control import CANCEL, SKIP, Command, message, request_target
from dispatcher.core.internal.finished import Finished
from dispatcher.core.internal.journal import Journal
from dispatcher.core.internal.parked import Entry
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room
from dispatcher.core.lanes.steps import Start
from dispatcher.core.messages.call import Ambiguous, Call, CallResult
from dispatcher.core.messages.envelope import position_id
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.recorded import Recorded, read_recorded
from dispatcher.core.messages.request import Decoder, Request
from dispatcher.core.progress.gap import Gap
from dispatcher.settings import Settings
from dispatcher.worker import letters
from dispatcher.worker.clock import Clock, SystemClock
from dispatcher.worker.engine import Engine
from dispatcher.worker.letters import Began, Fetch, Recall, Restore
from tests.core.aside import Aside
from tests.core.notes import Notes
from tests.specimens import REPLY_TOPICS, TOPIC_ID, answer, record, settings
from tests.waiting import eventually_async

LETTER = TypeVar("LETTER")
CONTROL = "dispatcher.control"
ROOM = Room(records=100_000, size_bytes=1 << 30, unpublished_s=1000)


def keyed(**worker: Any) -> Settings:
    """Settings with a lane per key; `worker` changes them."""
    return settings(worker={"ordering": "key", "on_wrong_partition": "warn", **worker})


class Callee:
    """The upstream: holds every call until the test answers it. A call that is cut off ends once `lets_go` is set."""

    def __init__(self) -> None:
        self.calls: dict[int, asyncio.Future[CallResult]] = {}
        self.started: list[int] = []
        self.made: list[Call] = []
        self.most = 0
        self.lets_go = asyncio.Event()
        self.lets_go.set()

    async def call(self, call: Call, sent: Callable[[], None]) -> CallResult:
        """As an HTTP engine does."""
        sent()
        offset = int(dict(call.headers)["Dispatcher-Offset"])
        assert offset not in self.calls, "two calls of one request at once"
        self.started.append(offset)
        self.made.append(call)
        future = self.calls[offset] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.calls))
        try:
            result: CallResult = await future
        except asyncio.CancelledError:
            await self.lets_go.wait()
            raise
        else:
            return result
        finally:
            del self.calls[offset]

    def answer(self, offset: int, status: int = 200, retry_after_s: float | None = None) -> None:
        """Answer the open call of a request."""
        headers = () if retry_after_s is None else (("retry-after", str(retry_after_s)),)
        self.calls[offset].set_result(answer(status, headers=headers))

    def time_out(self, offset: int) -> None:
        """Let the open call of a request end as one that took too long."""
        self.calls[offset].set_result(Ambiguous("timeout", "no whole answer in time"))


class Ear:
    """Hears what the engine tells, and remembers what tests ask for."""

    def __init__(self) -> None:
        self.bugs: list[tuple[str, BaseException]] = []
        self.lost: list[tuple[Owner, int]] = []
        self.full: list[tuple[Owner, bool]] = []
        self.aside: list[tuple[Owner, int]] = []
        self.breakers: list[tuple[str, State]] = []
        self.shares: dict[tuple[str, str], int] = {}

    def started(self, start: Start) -> None: ...
    def answered(self, start: Start, result: CallResult, verdict: Retry | Settled | Dead, seconds: float) -> None: ...
    def billed(self, upstream: str, bill: Bill) -> None: ...
    def cancelled(self, request: Request, seconds: float) -> None: ...
    def settled(self, outcome: Outcome, *, misplaced: bool) -> None: ...
    def acknowledged(self, outcome: Outcome) -> None: ...
    def assigned(self, partition: Partition) -> None: ...
    def measured(self, partition: Partition, end: int, now: float) -> None: ...
    def stood(self, gaps: Mapping[int, Gap]) -> None: ...
    def passed(self, gap: Gap) -> None: ...
    def gone(self, owner: Owner) -> None: ...

    def parked(self, partition: Partition, outcomes: Sequence[Outcome]) -> None:
        """Remember what was moved aside."""
        self.aside += [(partition.owner, one.record.offset) for one in outcomes if one.record is not None]

    def lent(self, limit: str, quantity: str, amount: int) -> None:
        """Remember what of a limit is ours."""
        self.shares[limit, quantity] = amount

    def missing(self, owner: Owner, entries: Sequence[Entry]) -> None:
        """Remember what was not found again."""
        self.lost += [(owner, entry.offset) for entry in entries]

    def map_full(self, partition: Partition, *, is_full: bool) -> None:
        """Remember when a map was full, and no longer."""
        self.full.append((partition.owner, is_full))

    def breaker_turned(self, turned: Turned) -> None:
        """Remember what breakers did."""
        self.breakers.append((turned.upstream, turned.state))

    def bug(self, error: BaseException, where: str) -> None:
        """Remember it."""
        self.bugs.append((where, error))


class Stage:
    """`play` does what poller, publisher and restorer would, until nothing moves any more."""

    def __init__(self, of: Settings | None = None, room: Room = ROOM, chance: float = 0.5, clock: Clock | None = None) -> None:
        self.callee, self.ear = Callee(), Ear()
        self.commands: SimpleQueue[letters.Command] = SimpleQueue()
        self.outcomes: SimpleQueue[object] = SimpleQueue()
        self.wishes: SimpleQueue[object] = SimpleQueue()
        self.decoder = Decoder(of or keyed(), TOPIC_ID, 2, REPLY_TOPICS)
        queues = (self.commands, self.outcomes, self.wishes)
        self.engine = Engine([self.decoder], self.callee, *queues, self.ear, clock or SystemClock(), lambda: chance, room)
        self.replies: list[Record] = []  # that are published
        self.remembered: list[Finished] = []  # what the journal holds
        self.recalls = self.fetches = 0
        self.asides: dict[int, Aside] = defaultdict(Aside)
        self.notes: dict[int, Notes] = defaultdict(Notes)
        self.published: list[Outcome] = []
        self.heard: list[letters.Command] = []
        self._control = 0

    # --- the poller's part ----------------------------------------------------------------------------------------------------------

    def assign(self, partition: int = 0, epoch: int = 7, position: int = 0) -> Owner:
        """A partition comes."""
        owner = Owner(partition, epoch)
        self.engine.assigned(owner, position)
        return owner

    def deliver(self, owner: Owner, *sent: tuple[int, bytes], **fields: Any) -> None:
        """Requests come: their offsets and keys."""
        self.engine.delivered({owner: [record(offset=n, key=key, partition=owner.partition, **fields) for n, key in sent]}, {})

    # --- what people want -----------------------------------------------------------------------------------------------------------

    def want(self, target: str, state: str, name: str = "a", key: str = "") -> None:
        """Somebody writes a command."""
        self.engine.commanded([self.command(target, state, name, key)])

    def command(self, target: str, state: str, name: str = "a", key: str = "") -> Record:
        """A command as it is read."""
        written = message(Command(f"{name}-{self._control}", target, state, "", "ann", "no need", key=key), CONTROL)
        self._control += 1
        return Record(CONTROL, 0, self._control - 1, written.key, written.value, written.headers)

    def skip(self, offset: int, partition: int = 0) -> None:
        """Somebody skips a request."""
        self.want(target_of(offset, partition), SKIP)

    def cancel(self, offset: int, key: str = "", partition: int = 0) -> None:
        """Somebody cancels a request, and says whose it is where `key` does."""
        self.want(target_of(offset, partition), CANCEL, key=key)

    # --- the others' parts ----------------------------------------------------------------------------------------------------------

    async def play(self, *, publish: bool = True, restore: bool = True) -> None:
        """Let the loop run, publish what is ready and read what is asked for, until nothing is left to do."""
        while True:
            for _ in range(4):
                await asyncio.sleep(0)
            self.heard += _drained(self.commands)
            done = self._publish() if publish else 0
            done += self._restore() if restore else 0
            if not done:
                return

    async def until(self, condition: Callable[[], bool]) -> None:
        """Play on until this has come true."""

        async def played() -> bool:
            await self.play()
            return condition()

        await eventually_async(played)  # type: ignore[arg-type] # mypy finds no T for a coroutine

    def _publish(self) -> int:
        outcomes = []
        for letter in _drained(self.outcomes):
            if isinstance(letter, Outcome):
                self._keep(letter)
                self.notes[letter.owner.partition].publish(letter)
                outcomes.append(self.asides[letter.owner.partition].publish(letter))
            else:
                assert isinstance(letter, Began)
        self.published += outcomes
        if outcomes:
            self.engine.acknowledged(outcomes)
        return len(outcomes)

    def _keep(self, outcome: Outcome) -> None:
        if outcome.reply is not None:
            message = outcome.reply.message()
            self.replies.append(Record(message.topic, message.partition, len(self.replies), message.key, message.value, message.headers))
        if outcome.finished is not None:
            self.remembered.append(outcome.finished)

    def _journal(self, owner: Owner) -> Journal:
        worker = self.decoder.settings.worker
        journal = Journal(worker.dedup_window_s, worker.dedup_max_entries, is_fenced=worker.publishing == "exactly_once")
        for finished in self.remembered:
            if finished.partition == owner.partition:
                journal.add(finished, finished.at)
        return journal

    def _recorded(self, recall: Recall) -> Recorded | None:
        self.recalls += 1
        offset = str(recall.known.offset).encode()
        found = [reply for reply in self.replies if dict(reply.headers or ())["dispatcher-request-offset"] == offset]
        return read_recorded(found[0]) if found else None

    def _restore(self) -> int:
        wishes = _drained(self.wishes)
        for letter in wishes:
            match letter:
                case Restore(owner):
                    about = self.asides[owner.partition].entries(), self._journal(owner), self.notes[owner.partition].noted()
                    self.engine.restored(owner, *about)
                case Recall():
                    self.engine.recalled(letter, self._recorded(letter))
                case Fetch(owner, entries):
                    self.fetches += 1
                    self.engine.fetched(owner, *self.asides[owner.partition].read(entries))
                case _:
                    pass
        return len(wishes)

    # --- what came of it ------------------------------------------------------------------------------------------------------------

    def answered(self) -> list[tuple[int, str]]:
        """Offsets and statuses of the replies that were published, in order."""
        return [(one.record.offset, one.reply.status.value) for one in self.published if one.record is not None and one.reply is not None]

    def replied(self) -> list[Outcome]:
        """The outcomes with replies, in order."""
        return [one for one in self.published if one.reply is not None]

    def parked(self, partition: int = 0) -> list[int]:
        """Offsets of what is parked."""
        return self.asides[partition].offsets

    def told(self, kind: type[LETTER]) -> list[LETTER]:
        """What the poller was told of this kind."""
        self.heard += _drained(self.commands)
        return [letter for letter in self.heard if isinstance(letter, kind)]

    def answer_all(self, offsets: Iterable[int] | None = None) -> None:
        """Answer all open calls, or those of these requests."""
        for offset in list(self.callee.calls) if offsets is None else offsets:
            self.callee.answer(offset)


def target_of(offset: int, partition: int = 0) -> str:
    """What a command about a request names."""
    return request_target(position_id(record(offset=offset, partition=partition), TOPIC_ID))


def _drained(queue: SimpleQueue[LETTER]) -> list[LETTER]:
    drained = []
    while True:
        try:
            drained.append(queue.get_nowait())
        except Empty:
            return drained
