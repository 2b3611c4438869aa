"""The demo as a user runs it: its numbers add up, and it leaves nothing running."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dispatcher.adapters.config import load
from dispatcher.demo.awkward import KINDS
from tests import loopback
from tests.e2e.conftest import Run, clean_environment
from tests.topics import SettingsFactory
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("_topics_are_removed")
CHECKOUT = Path(__file__).parents[2]
DEADLINE_S = 90


@pytest.fixture
def _topics_are_removed(settings: SettingsFactory, tmp_path: Path) -> Iterator[None]:
    """Remove what a demo leaves to look at: the broker may be one that stays."""
    yield
    config = tmp_path / ".dispatcher/demo/demo.toml"
    if config.exists():
        settings._made.append(load(file=config, flags={}, properties=[], environ={}))


def test_the_demo_adds_up(kafka: str, run: Run) -> None:
    """A short run on a real broker: every request has its one ending, nothing out of order, nothing overlapping, exit 0."""
    done = run("-b", kafka, "demo", "--requests", "60", "--speed", "60", "--json")
    assert (done.returncode, done.stderr[-2000:] if done.returncode else "") == (0, "")
    tally = json.loads(done.stdout)
    assert tally["faults"] == []
    assert tally["requests"] == 60 + len(KINDS)
    assert tally["statuses"] == {"dead": 14, "error": 1, "ok": 61}
    assert sum(tally["reasons"].values()) == 14
    assert (tally["out_of_order"], tally["overlapping"]) == (0, 0)
    assert tally["calls"] == tally["requests"] - tally["never_called"] + tally["called_again"]


def test_the_demo_on_a_pipe_is_plain(kafka: str, run: Run) -> None:
    """No control characters, the table on stdout, the steps on stderr, and commands to look around with that work."""
    done = run("-b", kafka, "demo", "--requests", "10", "--speed", "60")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "overlapping in one lane" in done.stdout
    assert "worker ready" in done.stderr
    commands = [line.partition("#")[0].split()[3:] for line in done.stdout.splitlines() if " --config " in line]
    assert len(commands) == 3
    for command in commands:
        looked = run(*command)
        assert (looked.returncode, bool(looked.stdout)) == (0, True), (command, looked.stderr)


def test_without_its_trace_the_demo_says_so(kafka: str, run: Run) -> None:
    """Exit 2 and one sentence, before anything is started."""
    done = run("-b", kafka, "demo", "--trace", "nothing.csv")
    assert done.returncode == 2
    assert "cannot read the trace" in done.stderr


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 130, marks=pytest.mark.soak),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_an_interrupted_demo_leaves_nothing_running(kafka: str, tmp_path: Path, ending: signal.Signals, code: int) -> None:
    """Ctrl-C in the middle: exit 130, and neither upstream nor worker listens any longer; nor when it is killed, a moment later."""
    command = [sys.executable, "-m", "dispatcher", "-b", kafka, "demo"]
    environment = clean_environment() | {"PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        try:
            assert demo.stderr is not None
            assert any("worker ready" in line for line in demo.stderr)
            url = (tmp_path / ".dispatcher/demo/upstream.out").read_text().strip()
            eventually(lambda: loopback.get(f"{url}/witness/summary").json()["calls"], DEADLINE_S)
            demo.send_signal(ending)
            demo.communicate(timeout=DEADLINE_S)
        finally:
            demo.kill()
    assert demo.returncode == code
    if ending == signal.SIGKILL:
        eventually(lambda: not listens(url), DEADLINE_S, "the upstream has ended")
    assert not listens(url)


def listens(url: str) -> bool:
    """Tell whether anything takes a connection there."""
    try:
        return bool(loopback.get(url).status_code)
    except httpx.ConnectError:
        return False
