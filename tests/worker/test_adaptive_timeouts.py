"""The engine fits the time of calls to what it has seen, over all partitions and lanes; and counts what ran out."""

from __future__ import annotations

from dispatcher.adapters.metrics import Metrics
from dispatcher.core.callees.latency import WHOLE_MIN
from dispatcher.core.callees.verdict import Patience, Tries, judge
from dispatcher.core.instant import Instant
from dispatcher.core.lanes.steps import Start
from dispatcher.core.messages.call import Ambiguous, CallResult, NotSent
from dispatcher.settings import Settings
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.observer import WorkerObserver
from tests.specimens import MONO, WALL, request, settings
from tests.worker.engine_stage import Stage


class Clock(SystemClock):
    """Time that the test puts forward."""

    later_s = 0.0

    def now(self) -> Instant:
        """See worker.clock.Clock."""
        now = super().now()
        return Instant(now.mono + self.later_s, now.wall + self.later_s)


def adaptive(ordering: str) -> Settings:
    """Settings with adaptive timeouts."""
    worker = {"ordering": ordering, "on_wrong_partition": "warn"}
    return settings({"adaptive_timeout": True, "timeout_floor_s": 2, "backoff_base_s": 0.001, "backoff_max_s": 0.001}, worker=worker)


async def test_what_one_lane_has_learnt_counts_for_all() -> None:
    """Twenty calls of 10 s in one partition give the next one 15 s, in another too; cut off, its second call has all the time."""
    clock = Clock()
    stage = Stage(adaptive("key"), clock=clock)
    first, second = stage.assign(0), stage.assign(1)
    await stage.play()
    stage.deliver(first, *((offset, b"doc:%d" % offset) for offset in range(WHOLE_MIN)))
    await stage.play()
    assert [60] * WHOLE_MIN == [call.timeout_s for call in stage.callee.made]
    clock.later_s = 10.0
    stage.answer_all()
    await stage.play()
    stage.deliver(second, (100, b"doc:7"))
    await stage.play()
    assert 15 <= stage.callee.made[-1].timeout_s < 60
    stage.callee.time_out(100)
    clock.later_s = 30.0
    await stage.until(lambda: 100 in stage.callee.calls)
    assert stage.callee.made[-1].timeout_s == 60
    stage.answer_all()
    await stage.play()
    assert [*((offset, "ok") for offset in range(WHOLE_MIN)), (100, "ok")] == stage.answered()


def test_each_clock_that_runs_out_is_counted_by_its_name() -> None:
    """The time to connect, to the head, between two parts, of the whole call; and of one that was fitted to what others took."""
    metrics = Metrics("key", "exactly_once")
    observer = WorkerObserver(metrics, SystemClock())
    asked = request()
    rows: list[tuple[CallResult, bool, str]] = [
        (NotSent("connect_timeout", ""), False, "connect"),
        (Ambiguous("first_byte_timeout", ""), False, "first_byte"),
        (Ambiguous("idle_timeout", ""), True, "idle"),
        (Ambiguous("timeout", ""), False, "call"),
        (Ambiguous("timeout", ""), True, "adaptive"),
        (Ambiguous("reset", ""), True, ""),
    ]
    for result, is_fitted, _ in rows:
        verdict = judge(result, Tries(1), Patience(3, 1, 30, 600), Instant(MONO, WALL), 0.5)
        observer.answered(Start(asked.call, asked, 1, 0.0, 0.0, is_fitted), result, verdict, 1.0)
    counted = {
        sample.labels["clock"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "dispatcher_timeouts_total"
    }
    assert dict.fromkeys([clock for _, _, clock in rows if clock], 1.0) == counted
