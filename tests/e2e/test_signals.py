"""SIGTERM, SIGINT and SIGHUP at any moment of a worker's life: it ends, in time, with the exit code that says how."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.stage import Stage, Worker, ids, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually, let_pass

# As long as an idle worker and one with calls of this stage need on a loaded machine; its own grace is far longer.
END_S = 30
LIFE_S = 2.0
INTERRUPTED = 130


def ended(set_up: Stage, ending: signal.Signals, after_s: float, *, is_early: bool, ordering: str) -> Worker:
    """Start a worker, let it live for so long from its first line on (or from its process's start), end it, and check how it ended."""
    worker = set_up.worker(ordering=ordering)
    if not is_early:
        worker.url()
    let_pass(after_s, "a random moment of its life")
    was_started = bool(worker.events("started"))
    worker.signal(ending)
    signalled = time.monotonic()
    code = worker.wait(END_S)
    told = f"{ending.name} after {after_s:.2f} s: exit {code} after {time.monotonic() - signalled:.1f} s\n{worker.text()[-2000:]}"
    if ending is signal.SIGINT and code == 1 and "init_import_site" in worker.text():
        return worker  # Python itself had not begun: in an editable install it imports its finder before our first line
    # Before the program has come to its own handlers, a signal is the operating system's.
    assert code in ({0} if was_started else {0, INTERRUPTED, -ending}), told
    # Nor is what Python says of it while it reads our first line.
    assert "Traceback" not in worker.text() or code == -ending, told
    assert "Fatal" not in worker.text(), told
    return worker


@pytest.mark.parametrize("times", [3, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_a_signal_at_any_moment_is_an_end_in_time(settings: SettingsFactory, tmp_path: Path, times: int) -> None:
    """While it starts, joins, calls, publishes: exit 0 within its time, nobody is left in the group, and nothing is lost or doubled."""
    # Not from the seeded `random`: another run tries other moments.
    chance = random.Random(time.time_ns())
    with stage(settings, tmp_path, latency_ms=20, partitions=3) as set_up:
        replies = set_up.replies()
        names = []
        for number in range(times):
            names += set_up.submit([f"doc:{n}" for n in range(40)], prefix=f"r{number}")
            ending = chance.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
            ordering = chance.choice(("partition", "key"))
            ended(set_up, ending, chance.uniform(0, LIFE_S), is_early=number % 3 == 0, ordering=ordering)
        eventually(lambda: set_up.members() == 0, what="nobody is left in the group")
        set_up.worker()
        replies.await_count(len(names), 120)
        assert ids(replies.read()) == dict.fromkeys(names, 1)
        assert set_up.witness()["out_of_order"]["key"] == 0
