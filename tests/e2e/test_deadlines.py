"""Deadlines on a real broker: what waits ends when its time is over, wherever it waits, and what is called is cut off then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from dispatcher.client.lanes import Lanes, lane
from tests.e2e.conftest import Run
from tests.e2e.stage import Stage, by_request, header, kill, stage, value
from tests.topics import SettingsFactory

WITHIN_S = 60.0


@pytest.fixture(params=["partition", pytest.param("key", marks=pytest.mark.soak)])
def set_up(request: pytest.FixtureRequest, settings: SettingsFactory, tmp_path: Path) -> Iterator[Stage]:
    """One partition, in both orderings."""
    with stage(settings, tmp_path, partitions=1, worker={"ordering": request.param, "report_interval_s": 0.2}) as made:
        yield made


def later(seconds: float) -> str:
    """A deadline so long from now."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def test_deadlines_end_what_waits_and_cut_what_is_called(set_up: Stage) -> None:
    """Passed when it came; behind a call that goes on; in a key that is paused, across a crash of its worker; while it is called.

    The first three are answered out of turn as `expired`, without a call or a dead letter. The last is a dead letter, and its connection
    was closed by us, long before its answer would have come.
    """
    Lanes(set_up.settings, timeout_s=WITHIN_S).pause(lane("doc:held"))
    worker = set_up.worker().ready()
    replies, letters = set_up.replies(), set_up.replies(set_up.settings.topics.dead_letters)
    set_up.submit(["doc:a"], "/echo?latency_ms=3000", prefix="slow")
    set_up.submit(["doc:a"], deadline=later(-1), prefix="late")
    set_up.submit(["doc:a"], deadline=later(0.5), prefix="behind")
    set_up.submit(["doc:held"], deadline=later(8), prefix="held")
    first = [header(record, "ce_causationid") for record in replies.await_count(3)]
    assert (["late-0", "behind-0", "slow-0"], []) == (first, set_up.calls(key="doc:held"))
    kill(worker)
    set_up.worker().ready()
    found = by_request(replies.await_count(4))
    for name in ("late-0", "behind-0", "held-0"):
        assert ("expired", "0") == (header(found[name], "dispatcher-status"), header(found[name], "dispatcher-attempt"))
    assert (0, 1) == (len(letters.read()), len(set_up.calls()))
    set_up.submit(["doc:b"], "/echo?latency_ms=60000", deadline=later(1), prefix="cut")
    dead = by_request(replies.await_count(5))["cut-0"]
    assert ("dead", "deadline_exceeded") == (header(dead, "dispatcher-status"), value(dead)["reason"])
    assert 1 == len(letters.await_count(1))
    (cut,) = set_up.calls(id="cut-0")
    assert ("client_closed", True) == (cut["outcome"], cut["end_s"] - cut["t_s"] < 30)


def test_the_command_line_sets_one(settings: SettingsFactory, tmp_path: Path, run: Run) -> None:
    """`--deadline` takes a length of time or a time; what is neither is exit code 2 and a sentence."""
    with stage(settings, tmp_path, partitions=1) as made:
        config = tmp_path / "c.toml"
        config.write_text(made._config(None, {}))
        made.worker().ready()
        asked = run("--config", str(config), "ask", "-k", "doc:1", "-u", "sample", "/echo", "--deadline", "5m", "-d", "{}")
        assert (0, {}) == (asked.returncode, orjson.loads(asked.stdout))
        late = run("--config", str(config), "ask", "-k", "doc:1", "-u", "sample", "/echo", "--deadline", later(-60))
        assert 1 == late.returncode
        assert "expired" in late.stderr
        wrong = run("--config", str(config), "submit", "-k", "doc:1", "-u", "sample", "/echo", "--deadline", "noon")
        assert 2 == wrong.returncode
        assert "--deadline" in wrong.stderr
