"""The callee of a simulated world, as the worker's HTTP engine: how each call ends is the plan's or chance's business."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from random import Random

from dispatcher.core.callees.finding import Party, find
from dispatcher.core.messages.call import Ambiguous, Answered, Call, CallResult, NotSent
from tests.guarantees.budgets import CALL_CENTS
from tests.guarantees.events import CallEnded, CallStarted, Event
from tests.sim.process import Process

# How long a transport may need to let go of a call that is cut off: at most.
LETTING_GO_S = 1.0
OUT_OF_TIME = Ambiguous("timeout", "no whole answer in time")
_SAYS = {Party.NOBODY: "ok", Party.CALLEE: "failed"}
JSON = (("content-type", "application/json"),)
# The model that answers where calls have a price, at a dollar for a million tokens.
MODEL, TOKENS_PER_CENT = "m", 10_000


@dataclass(frozen=True, slots=True)
class Manners:
    """Weights of how calls end, and how long they take in seconds."""

    fails: float = 0.2  # chance that a call does not end in 200 or 404
    slow: float = 0.05
    hangs: float = 0.0
    latency_s: float = 0.2
    slow_s: float = 5.0
    hang_s: float = 60.0  # a call's own timeout
    long_hints: float = 0.0  # chance that a hint says to wait for long


class Callee:
    """One for all processes; `engine` is what a process calls by."""

    def __init__(
        self,
        manners: Manners,
        tell: Callable[[Event], None],
        key_of: Callable[[int, int], str] = lambda *_: "",
        strand_of: Callable[[str, int], int] = lambda _, partition: partition,
    ) -> None:
        self.manners = manners
        self.tell = tell
        self._key_of = key_of
        self._strand_of = strand_of
        self.quiet = False  # the faults are over: every call succeeds soon
        self.down = False  # every call fails
        self.is_guarded = False  # by a circuit breaker, which spares requests the cost of an outage
        self.prices: Random | None = None  # of chance of its own, where calls cost something
        self.free_from = math.inf  # from then on they cost nothing
        self._numbers = count(1)

    def engine(self, process: Process) -> CalleeEngine:
        """Give a process its way to call."""
        return CalleeEngine(self, process)

    def price(self, at: float) -> int:
        """What a call will cost that begins at that time, in cents."""
        return 0 if self.prices is None or at >= self.free_from else self.prices.randint(1, CALL_CENTS)

    def begin(self, call: Call, worker: str, at: float, price: int) -> int:
        """Note a call's start, at that time, and what it will cost; returns its number."""
        number = next(self._numbers)
        told = dict(call.headers)
        partition, offset, epoch, attempt = (int(told[f"Dispatcher-{name}"]) for name in ("Partition", "Offset", "Epoch", "Attempt"))
        partition = self._strand_of(told["Dispatcher-Topic"], partition)
        key = self._key_of(partition, offset)
        self.tell(CallStarted(number, partition, offset, epoch, worker, attempt, key, at, call.timeout_s, price))
        return number


class CalleeEngine:
    """`dispatcher.worker.engine.HttpEngine` of one process."""

    def __init__(self, callee: Callee, process: Process) -> None:
        self._callee = callee
        self._process = process

    async def call(self, call: Call, sent: Callable[[], None]) -> CallResult:
        """Make a call; raises for how it ends only where an adapter would have a bug."""
        sent()
        price = self._callee.price(self._process.now)
        number = self._callee.begin(call, self._process.name, self._process.now, price)
        ended = CallEnded(number, charged=price)
        try:
            result = await self._answer(number, price, self._process.now + call.timeout_s)
        except ValueError:
            ended = CallEnded(number, spent=True, charged=price)
            raise
        except asyncio.CancelledError:
            if self._process.chance.random() < 0.3:
                # A transport may need a moment to let go.
                await self._after(self._process.chance.random() * LETTING_GO_S, None, math.inf)
            raise
        else:
            # One that its deadline has cut off says nothing.
            is_cut = result == OUT_OF_TIME and call.timeout_s < self._callee.manners.hang_s
            of = _SAYS.get(find(result, 0).fault, "")
            undone, spent = _known(result)
            may_be_spared = spent and of == "failed" and self._callee.is_guarded
            charged = price if _is_charged(result) else 0
            ended = CallEnded(number, 0.0, "" if is_cut else of, undone=undone, spent=spent, may_be_spared=may_be_spared)
            ended = replace(ended, unsent=isinstance(result, NotSent), charged=charged)
            return result
        finally:
            if self._process.alive:
                self._callee.tell(replace(ended, at=self._process.now))

    async def _answer(self, number: int, price: int, until: float) -> CallResult:
        chance, manners = self._process.chance, self._callee.manners
        tokens = b',"model":"m","usage":{"prompt_tokens":%d}' % (price * TOKENS_PER_CENT) if self._callee.prices is not None else b""
        done = Answered(200, JSON, b'{"call":%d%s}' % (number, tokens))
        latency_s = chance.expovariate(1 / manners.latency_s)
        if self._callee.quiet:
            return await self._after(min(latency_s, 1.0), done, until)
        if self._callee.down:
            return await self._after(latency_s, Answered(chance.choice((500, 503, 529)), JSON, b"{}"), until)
        if chance.random() < manners.slow:
            latency_s = chance.uniform(0, manners.slow_s)
        if chance.random() < manners.hangs:
            return await self._after(manners.hang_s, OUT_OF_TIME, until)
        if chance.random() >= manners.fails:
            ending = done if chance.random() < 0.9 else Answered(404, JSON, b'"no"')
            return await self._after(latency_s, ending, until)
        return await self._failing(latency_s, until)

    async def _failing(self, latency_s: float, until: float) -> CallResult:
        chance = self._process.chance
        kind = chance.randrange(7)
        longest_s = 60 if chance.random() < self._callee.manners.long_hints else 2
        hint = (("retry-after", str(round(chance.uniform(0, longest_s), 1))),)
        if kind == 6:
            await self._after(latency_s, None, until)
            raise ValueError("a bug of an adapter")
        endings: list[CallResult] = [
            Answered(429, hint, b""),
            Answered(503, hint, b""),
            Answered(503, JSON, b"{}"),
            OUT_OF_TIME,
            Ambiguous("reset", "the connection broke"),
            NotSent("connect", "refused"),
        ]
        large = Answered(200, (), b"x" * 5000)
        return await self._after(latency_s, large if chance.random() < 0.1 else endings[kind], until)

    async def _after(self, delay_s: float, ending: CallResult | None, until: float) -> CallResult:
        """Let a call end so in `delay_s`; as one that took too long where that is later than `until`."""
        future = self._process.loop.create_future()
        left_s = until - self._process.now
        if left_s < delay_s:
            delay_s, ending = left_s, OUT_OF_TIME
        self._process.after(delay_s, _set, future, ending)
        result: CallResult = await future
        return result


def _is_charged(result: CallResult) -> bool:
    """Whether a call that ended so has to be paid for: what was done, or may have been."""
    return isinstance(result, Ambiguous) or (isinstance(result, Answered) and result.status == 200)


def _known(result: CallResult) -> tuple[bool, bool]:
    """Whether the callee cannot have done it, and whether it has cost an attempt."""
    match result:
        case NotSent():
            return True, True
        case Answered(status=429 | 503, headers=headers):
            return True, "retry-after" not in dict(headers)
        case Answered(status=status):
            return False, status >= 500
        case _:
            return False, True


def _set(future: asyncio.Future[CallResult | None], ending: CallResult | None) -> None:
    if not future.done():
        future.set_result(ending)
