"""What the simulator found in the worker, each as the smallest world that shows it.

More are shown without a world, since only few of them meet the moment: see tests/worker/test_giving_up.py, what tests/worker/test_poller.py
says of a pause, tests/worker/test_parted.py and test_at_least_once.py, tests/core/lanes/test_lane_restored.py and
test_partition_restored.py, and tests/worker/test_skips.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from queue import SimpleQueue
from random import Random

import pytest

from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.request import Decoder
from dispatcher.worker.engine import Engine
from dispatcher.worker.letters import Command, Cut
from tests.guarantees.events import CallStarted, Event
from tests.sim.callee import Callee, Manners
from tests.sim.cluster import REPLIES, TOPIC_ID_TEXT, request_record
from tests.sim.plan import CALM, Fault, Write, draw, keys_of, settings_of, staged
from tests.sim.process import Process, ProcessClock
from tests.sim.schedule import Schedule
from tests.sim.worker import Ear
from tests.sim.world import run

SEEDS = range(12)
STEADY = tuple(Write(0.2 * n, n % 2, "request") for n in range(30))
SLOW = Manners(fails=0.0, slow=1.0, latency_s=0.5, slow_s=3.0)
HINTING = Manners(fails=0.6, slow=0.0, latency_s=0.05, long_hints=0.3)
BUSY = tuple(Write(0.05 * n, 0, "request") for n in range(40))
KILLS = tuple(Fault(1.5 + 2.5 * n, "kill", n % 2, 1) for n in range(4))


def test_a_call_that_is_cut_before_its_first_step_does_not_block_its_partition() -> None:
    """Records and the end of their assignment come in one turn of the loop; the next assignment calls.

    A task that is cancelled before it has begun never runs a line, its `finally` neither: the partition stood for ever.
    """
    calls: list[Event] = []
    schedule = Schedule(Random(1))
    process = Process(schedule, Random(2), "w", lambda error: pytest.fail(repr(error)))
    settings = settings_of((("slot", "w"),))
    to_poller: SimpleQueue[Command] = SimpleQueue()
    asyncio._set_running_loop(process.loop)
    try:
        decoder = Decoder(settings, TOPIC_ID_TEXT, 1, {REPLIES: 1})
        ear, clock = Ear("w", process, Counter(), None), ProcessClock(process)
        engine = Engine(
            [decoder], Callee(CALM, calls.append).engine(process), to_poller, SimpleQueue(), SimpleQueue(), ear, clock, Random(3).random
        )
    finally:
        asyncio._set_running_loop(None)
    record = request_record(0, 0, keys_of(0, 1)[0], b'{"upstream":"sample"}', "r-0")
    process.post(engine.assigned, Owner(0, 1), 0)
    process.post(engine.restored, Owner(0, 1), [])
    process.post(engine.delivered, {Owner(0, 1): [record]}, {})
    process.post(engine.abandon, {Owner(0, 1)})
    schedule.run(1)
    assert ([], Cut(Owner(0, 1))) == (calls, to_poller.get_nowait())

    process.post(engine.assigned, Owner(0, 2), 0)
    process.post(engine.restored, Owner(0, 2), [])
    process.post(engine.delivered, {Owner(0, 2): [record]}, {})
    schedule.run(2)
    process.kill()
    assert [2] == [event.epoch for event in calls if isinstance(event, CallStarted)]


@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
def test_a_stalled_loop_still_gives_up_its_calls_before_its_partitions(publishing: str) -> None:
    """The drain expires while the event loop stands: the next owner's call begins only when the old one has been cut.

    The poller went on at once, and the loop's call was still open when the next owner's began.
    """
    faults = (Fault(1.8, "stall_loop", 0, 9), Fault(2.0, "join", 0, 1))
    for seed in SEEDS:
        assert [] == run(staged(seed, STEADY, faults, publishing=publishing, drain_s=0.5, manners=SLOW)).findings, f"seed {seed}"


@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
def test_a_parked_request_is_never_between_two_topics(publishing: str) -> None:
    """Keys are told to wait and are parked, and workers are killed in the middle of it: each request is parked, or has its reply.

    At least once the tombstone stood there before the reply did: whoever was killed in between left neither.
    """
    tally: Counter[str] = Counter()
    for seed in SEEDS:
        plan = staged(seed, BUSY, KILLS, workers=2, manners=HINTING, publishing=publishing, ordering="key", lane_buffer_max_records=12)
        result = run(replace(plan, room=(("park_s", 0.1),), broker=replace(plan.broker, partitions=1)))
        assert [] == result.findings, f"seed {seed}"
        tally += result.tally
    assert 100 < tally["parked"]


@pytest.mark.parametrize("seed", [5109, 5284])
def test_lanes_that_wait_for_a_slot_and_for_a_callee_do_not_take_turns_for_ever(seed: int) -> None:
    """The gate's turn of one was lost while it stood in line for a slot, and given to another: the event loop went round without an end.

    The worlds as they were drawn: the moment needs a full map, a breaker that has just closed, and few slots at once.
    """
    assert () == tuple(run(draw(seed)).findings)


def test_a_process_that_froze_before_its_call_began_keeps_the_deadline() -> None:
    """The call had the time that was left when it was decided on, and ran past its request's deadline by as long as the freeze was."""
    assert () == tuple(run(draw(4100001781)).findings)


@pytest.mark.parametrize("seed", [1858406917, 1858407086])
def test_turns_of_a_scarce_limit_last_until_who_was_parked_is_back(seed: int) -> None:
    """One call at once for two workers: each had its turn while its lanes were parked, and nobody called until a session ran out."""
    assert () == tuple(run(draw(seed)).findings)
