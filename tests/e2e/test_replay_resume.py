"""A replay that is taken up again: after many kills, beside another one, after retention; and keys that are no text."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from dispatcher.adapters.kafka.log import LogReader
from dispatcher.client import replay as client_replay
from dispatcher.client.replay import Replayer
from dispatcher.core.operations.positions import END, Span
from dispatcher.core.operations.replay_plan import Plan
from dispatcher.errors import RefusedError
from dispatcher.settings import Settings
from tests.e2e.conftest import Run, clean_environment
from tests.e2e.test_replay import ALL, VALUE, assert_replayed_once, environment, fill, produce, remove_before, replays
from tests.topics import SettingsFactory
from tests.waiting import eventually

pytestmark = pytest.mark.broker


@pytest.fixture
def made(settings: SettingsFactory) -> Settings:
    """Make topics of three partitions."""
    return settings(partitions=3)


def ends(made: Settings) -> int:
    """Add up where the partitions of the request topic end."""
    with LogReader(made, made.topics.requests, 60) as reader:
        return sum(extent.end for extent in reader.extents(Span(END)).values())


def execute_some(made: Settings, plan: Plan) -> int:
    """Do one group of a plan, and be interrupted; gives how many are there."""
    done = 0

    def stop(told: int) -> None:
        nonlocal done
        done = told
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Replayer(made).execute(plan, told=stop)
    # Kafka says that it is committed before every reader may see all of it.
    eventually(lambda: len(replays(made)) == done, what="what was written is visible")
    return done


@pytest.mark.soak
def test_twenty_kills_at_any_moment_replay_each_once(made: Settings, tmp_path: Path) -> None:
    """Row 22: SIGKILL before, in and between transactions, and in the count before them; the same plan always does the rest."""
    count, chance, kills = 3000, Random(22), 0
    fill(made, count)
    plan = Replayer(made).plan(ALL).plan
    line = [sys.executable, "-m", "dispatcher", "-b", made.kafka.bootstrap_servers, "replay", "--plan", plan.encode(), "--execute", "-y"]
    own = clean_environment() | environment(made) | {"PYTHONPATH": str(Path(__file__).parents[2])}
    code = -9
    while code == -9:
        process = subprocess.Popen(
            [*line, "--rate", "500/s"], cwd=tmp_path, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            if kills < 20:
                seen = ends(made) + chance.randrange(150)
                eventually(lambda seen=seen, process=process: process.poll() is not None or ends(made) >= seen, 60)  # type: ignore[misc]
                process.kill()
                kills += 1
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
        code = process.returncode
        assert code in {0, -9}, errors
    assert_replayed_once(made, count)


def test_two_that_run_at_once_replay_each_once(made: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both do all of it between them, or one is told of the other; whoever comes later does the rest."""
    monkeypatch.setattr(client_replay, "GROUP_MAX_RECORDS", 5)
    fill(made, 200)
    plan = Replayer(made).plan(ALL).plan

    def execute(_number: int) -> int:
        with suppress(RefusedError):
            return Replayer(made, timeout_s=60).execute(plan)
        return 0

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(execute, range(2)))
    Replayer(made).execute(plan)
    assert_replayed_once(made, 200)


def test_what_retention_took_of_the_rest_is_refused_before_more_is_called(made: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken up again after retention: what it took behind the last replayed one is missed, and nothing more is called."""
    monkeypatch.setattr(client_replay, "GROUP_MAX_RECORDS", 5)
    fill(made, 60)
    plan = Replayer(made).plan(ALL).plan
    before = execute_some(made, plan)
    last = plan.parts[-1]
    assert before < 60
    remove_before(made, last.partition, last.stop - 1)
    with pytest.raises(RefusedError, match=f"the set changed since the plan: partition {last.partition} has [0-9]+ fewer requests"):
        Replayer(made).execute(plan)
    assert before == len(replays(made))


def test_what_retention_took_of_what_is_done_is_not_missed(made: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The originals that were replayed already may go."""
    fill(made, 60)
    parts = Replayer(made).plan(ALL).plan.parts
    monkeypatch.setattr(client_replay, "GROUP_MAX_RECORDS", 60 - parts[-1].requests // 2)
    plan = Replayer(made).plan(ALL).plan
    before = execute_some(made, plan)
    per_partition = [sum(record.partition == part.partition for record in replays(made)) for part in parts]
    for part, done in zip(parts, per_partition, strict=True):
        remove_before(made, part.partition, part.start + done)
    assert 60 == before + Replayer(made).execute(plan)
    assert 60 == len(replays(made))


def test_a_key_that_is_no_text_can_be_asked_for(made: Settings, run: Run) -> None:
    """No worker calls such a request: it is counted as malformed, among its key alone, and nothing is replayed."""
    produce(made, (b"doc:\xff", VALUE, ()), (b"doc:1", VALUE, ()))
    done = run("replay", "-o", "start:end", "-k", "doc:\udcff", "--json", "-b", made.kafka.bootstrap_servers, env=environment(made))
    assert 0 == done.returncode, done.stderr
    found = json.loads(done.stdout)
    assert (0, {"malformed": 1}) == (found["requests"], found["skipped"])
    again = run("replay", "--plan", found["plan"], "--execute", "-y", "-b", made.kafka.bootstrap_servers, env=environment(made))
    assert (0, "replayed 0 of 0 requests") == (again.returncode, again.stdout[:24])
