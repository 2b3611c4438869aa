"""What the owners of a worker tell the outside: metrics and log lines. Whatever breaks in here stays in here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from dispatcher.adapters.logs import logger
from dispatcher.adapters.metrics import Metrics
from dispatcher.core.callees.billing import Bill
from dispatcher.core.callees.breaker import State
from dispatcher.core.callees.gate import Turned
from dispatcher.core.callees.verdict import Dead, Retry, Settled, kind_of
from dispatcher.core.internal.parked import Entry
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.steps import Start
from dispatcher.core.messages.call import Answered, CallResult
from dispatcher.core.messages.envelope import Envelope
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.reply import Reply
from dispatcher.core.messages.request import Request
from dispatcher.core.progress.gap import Gap
from dispatcher.worker.clock import Clock

STANDS = 4  # of dispatcher_lane_state
# Which clock of a call said that its time was over, by the kind of its end.
_CLOCKS = {"connect_timeout": "connect", "first_byte_timeout": "first_byte", "idle_timeout": "idle", "timeout": "call"}
# What is told of a partition that is held up by what waits in it, and what can be done, by what there is not enough of.
_SHORT = {
    "parked limit": ("parked_limit", "worker.parked_max_records"),
    "memory": ("memory_short", "worker.lane_buffer_max_records, worker.lane_buffer_max_bytes and the parked topic's max.message.bytes"),
}

_P = ParamSpec("_P")


_Self = TypeVar("_Self")


def guarded(method: Callable[Concatenate[_Self, _P], None]) -> Callable[Concatenate[_Self, _P], None]:
    """An observer cannot stop the core: its exceptions end as a log line."""

    @wraps(method)
    def call(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - as said
            logger().warning("observer_failed", error_type=type(error).__name__)

    return call


class WorkerObserver:
    """Called by engine (event loop) and publisher (its thread)."""

    def __init__(self, metrics: Metrics, clock: Clock, label: Callable[[int], int | str] = lambda strand: strand) -> None:
        self._metrics = metrics
        self._label_of = label  # what people call a strand
        self._clock = clock
        self._standing: frozenset[int] = frozenset()
        self._dropped: dict[Owner, int] = {}  # how many entries of an assignment's journal went before their time, as was told
        self._short: dict[int, str] = {}  # partitions that are held up, and what there is not enough of
        # Asked once: a line that nobody reads costs as much to put together as the call's verdict.
        self._is_verbose = logger().is_enabled_for(logging.DEBUG)

    @guarded
    def started(self, start: Start) -> None:
        """A call begins."""
        if start.limited_s is not None:
            self._metrics.limiter_wait.labels(start.call.upstream).observe(start.limited_s)
        if start.first:
            self._metrics.queue_wait.observe(start.waited_s)
            if start.behind_others_s > 0:
                self._metrics.behind_others.inc(start.behind_others_s)

    @guarded
    def answered(self, start: Start, result: CallResult, verdict: Retry | Settled | Dead, seconds: float) -> None:
        """A call has ended."""
        upstream = start.call.upstream
        kind = f"{result.status // 100}xx" if isinstance(result, Answered) else kind_of(result)
        self._metrics.call_duration.labels(upstream, kind).observe(seconds)
        if (clock := _CLOCKS.get(kind)) is not None:
            self._metrics.timeouts.labels(upstream, "adaptive" if start.is_fitted and clock == "call" else clock).inc()
        if isinstance(verdict, Retry):
            self._metrics.retries.labels(upstream, verdict.why).inc()
            if verdict.why == "retry_after":
                self._metrics.throttled.labels(upstream).inc()
        if isinstance(verdict, Settled) and not self._is_verbose:
            return
        level = logger().debug if isinstance(verdict, Settled) else logger().info
        level(
            "call_ended",
            **_where(start.request.record),
            **_whose(start.request.envelope),
            upstream=upstream,
            attempt=start.attempt,
            outcome=verdict.status.value if isinstance(verdict, Settled) else type(verdict).__name__.lower(),
            http_status=result.status if isinstance(result, Answered) else None,
            duration_ms=round(seconds * 1000),
            error_type=None if isinstance(verdict, Settled) else kind_of(result),
            **({"why": verdict.why} if isinstance(verdict, Retry) else {}),
        )

    @guarded
    def billed(self, upstream: str, bill: Bill) -> None:
        """An answer said what it will be billed for."""
        metrics, usage = self._metrics, bill.usage
        for kind, count in usage.tokens.kinds.items():
            metrics.tokens.labels(upstream, bill.label, kind).inc(count)
        if usage.cost is None:
            metrics.price_unknown.labels(upstream, bill.label).inc()
        else:
            metrics.cost.labels(upstream, bill.label).inc(float(usage.cost))
        if usage.savings is not None:
            metrics.savings.labels(upstream, bill.label).inc(max(0.0, float(usage.savings)))

    @guarded
    def cancelled(self, request: Request, seconds: float) -> None:
        """A call was cut off, since somebody wants its request ended."""
        upstream = request.call.upstream
        self._metrics.call_duration.labels(upstream, "cancelled").observe(seconds)
        who = {**_where(request.record), **_whose(request.envelope)}
        logger().info("call_ended", **who, upstream=upstream, outcome="cancelled", duration_ms=round(seconds * 1000))

    @guarded
    def settled(self, outcome: Outcome, *, misplaced: bool) -> None:
        """A record has ended; its outcome is on the way to the publisher."""
        del outcome
        if misplaced:
            self._metrics.wrong_partition.inc()

    @guarded
    def acknowledged(self, outcome: Outcome) -> None:
        """An outcome is published, as it stands here, and its position committed."""
        self._metrics.last_progress.set(self._clock.now().wall)
        if outcome.reply is not None:
            self._metrics.requests.labels(outcome.reply.status.value).inc()
            if outcome.reply.is_duplicate and outcome.record is not None:
                self._duplicate(outcome.record, outcome.reply)
        if outcome.letter is not None and outcome.record is not None and outcome.reply is not None:
            self._metrics.dead_letters.labels(outcome.letter.reason.value).inc()
            logger().warning(
                "dead_letter",
                **_where(outcome.record),
                **_whose(outcome.reply.envelope),
                outcome=outcome.letter.reason.value,
                reason=outcome.letter.message,
            )

    def _duplicate(self, record: Record, reply: Reply) -> None:
        self._metrics.duplicates.inc()
        logger().info("duplicate", **_where(record), **_whose(reply.envelope), outcome=reply.status.value)

    @guarded
    def assigned(self, partition: Partition) -> None:
        """A partition came."""
        self._metrics.rebalances.labels("assigned").inc()
        self.measured(partition, partition.progress.acknowledged, self._clock.now().mono)

    @guarded
    def measured(self, partition: Partition, end: int, now: float) -> None:
        """The once-a-second look at a partition."""
        label, progress = str(self._label_of(partition.owner.strand)), partition.progress
        arrivals = [arrived for lane in partition.lanes.values() if (arrived := lane.oldest_arrival) is not None]
        # What has ended and cannot be published holds up readers as what has not ended does.
        ages = arrivals if partition.unpublished_since is None else [*arrivals, partition.unpublished_since]
        self._metrics.lag.labels(label).set(max(0, end - progress.acknowledged))
        self._metrics.oldest.labels(label).set(now - min(ages) if ages else 0)
        self._metrics.inflight.labels(label).set(partition.calls)
        self._metrics.parked.labels(label).set(partition.parked)
        self._metrics.map_ranges.labels(label).set(progress.ranges)
        self._remembered(partition)
        state = 3 if partition.closed else 1 if partition.calls else 2 if arrivals or partition.parked else 0
        is_short = self._is_short(partition)
        self._metrics.state.labels(label).set(STANDS if is_short or partition.owner.strand in self._standing else state)

    def _remembered(self, partition: Partition) -> None:
        """How much is remembered of a partition; that the window is shorter than it should be is told once for each assignment."""
        owner, journal = partition.owner, partition.journal
        self._metrics.dedup_entries.labels(str(self._label_of(owner.strand))).set(len(journal))
        known = self._dropped.get(owner, 0)
        if journal.dropped > known:
            self._metrics.dedup_dropped.inc(journal.dropped - known)
            self._dropped[owner] = journal.dropped
        if journal.dropped and not known:
            hint = "what is sent again after that is called again: raise worker.dedup_max_entries, or have more partitions"
            logger().warning("dedup_window_short", partition=self._label_of(owner.strand), entries=len(journal), hint=hint)

    def _is_short(self, partition: Partition) -> bool:
        """Whether a partition is held up by what waits long in it; told when that begins and when it ends."""
        number, short_of = partition.owner.strand, partition.short_of
        known = self._short.pop(number, "")
        if short_of:
            self._short[number] = short_of
        if short_of != known:
            if known:
                logger().info(f"{_SHORT[known][0]}_eased", partition=self._label_of(number), parked=partition.parked)
            if short_of:
                event, remedy = _SHORT[short_of]
                hint = f"requests that wait long fill the memory: see `dispatcher lanes list`, and {remedy}"
                logger().warning(event, partition=self._label_of(number), parked=partition.parked, held=partition.held_records, hint=hint)
        return bool(short_of)

    @guarded
    def lent(self, limit: str, quantity: str, amount: int) -> None:
        """So much of a limit is ours from now on: of calls at once, or of requests or tokens in a window."""
        self._metrics.limit_share.labels(limit, quantity).set(amount)

    @guarded
    def stood(self, gaps: Mapping[int, Gap]) -> None:
        """These partitions of ours, and no others, stand at a gap."""
        for n, gap in gaps.items():
            if n not in self._standing:
                self._metrics.gaps.labels(gap.cause.value, "stands").inc()
            self._metrics.state.labels(str(self._label_of(n))).set(STANDS)
        for n in self._standing - gaps.keys():
            # One that never went live has no other series, and goes with nobody else.
            with suppress(KeyError):
                self._metrics.state.remove(str(self._label_of(n)))
        self._standing = frozenset(gaps)

    @guarded
    def passed(self, gap: Gap) -> None:
        """A partition was read on behind a gap."""
        self._metrics.gaps.labels(gap.cause.value, "passed").inc()
        self._metrics.gap_offsets.inc(gap.lost)

    @guarded
    def parked(self, partition: Partition, outcomes: Sequence[Outcome]) -> None:
        """Requests that wait long leave memory and log for the parked topic."""
        self._metrics.parkings.inc(len(outcomes))
        logger().info("parked", partition=self._label_of(partition.owner.strand), requests=len(outcomes), parked=partition.parked)

    @guarded
    def missing(self, owner: Owner, entries: Sequence[Entry]) -> None:
        """Parked requests are not in their topic any more: somebody has removed them, and they cannot be executed."""
        self._metrics.parked_lost.inc(len(entries))
        hint = "the parked topic must be compacted, never trimmed or deleted: see `dispatcher topics check`"
        logger().error("parked_lost", partition=self._label_of(owner.strand), offsets=[entry.offset for entry in entries][:100], hint=hint)

    @guarded
    def map_full(self, partition: Partition, *, is_full: bool) -> None:
        """The commit of this partition cannot carry more ranges, or can again: nothing above what is settled starts meanwhile."""
        label = self._label_of(partition.owner.strand)
        if is_full:
            self._metrics.map_full.labels(str(label)).inc()
            hint = "many calls run far ahead of one that does not end: see `dispatcher lanes list`; more partitions spread them"
            logger().warning("commit_map_full", partition=label, ranges=partition.progress.ranges, hint=hint)
        else:
            logger().info("commit_map_eased", partition=label, ranges=partition.progress.ranges)

    @guarded
    def breaker_turned(self, turned: Turned) -> None:
        """The circuit breaker of an upstream has changed its state."""
        self._metrics.breaker_state.labels(turned.upstream).set(turned.state.value)
        if turned.state is State.OPEN:
            self._metrics.breaker_opens.labels(turned.upstream).inc()
            hint = "the callee fails: its lanes wait, and one of them is sent as a probe then"
            probe_in_s = round(turned.reopens_at - self._clock.now().mono, 3)
            logger().warning("breaker_open", upstream=turned.upstream, waiting=turned.waiting, probe_in_s=probe_in_s, hint=hint)
        else:
            logger().info(f"breaker_{turned.state.text}", upstream=turned.upstream, waiting=turned.waiting)

    @guarded
    def gone(self, owner: Owner) -> None:
        """A partition went."""
        self._metrics.rebalances.labels("gone").inc()
        self._metrics.forget(str(self._label_of(owner.strand)))
        self._short.pop(owner.strand, None)
        self._dropped.pop(owner, None)

    @guarded
    def publish_failed(self, what: str, name: str) -> None:
        """A step of publishing has to be done again."""
        self._metrics.publish_failures.labels(what).inc()
        logger().warning("publish_failed", step=what, error_type=name)

    @guarded
    def bug(self, error: BaseException, where: str) -> None:
        """Something raised that must not."""
        logger().error("bug", where=where, exc_info=error)


def _where(record: Any) -> dict[str, Any]:  # noqa: ANN401 - a record; the fields go into a log
    return {"topic": record.topic, "partition": record.partition, "offset": record.offset, "key": record.key}


def _whose(envelope: Envelope) -> dict[str, str | None]:
    """What ties a line to a request and to the sender's own names for it; a correlation id that is not text as hex."""
    raw = next((content for _, content in envelope.echoed if content is not None), None)
    correlation = None if raw is None else raw.decode() if raw.isascii() and raw.decode().isprintable() else raw.hex()
    trace = dict(envelope.trace).get("traceparent", "").split("-")
    return {"request_id": envelope.request_id, "correlation_id": correlation, "trace_id": trace[1] if len(trace) > 1 else None}
