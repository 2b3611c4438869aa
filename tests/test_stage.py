"""What `demo` and `dev` stand on: one command per folder, and children that end with it, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dispatcher.adapters.local_broker.process import command_line
from dispatcher.errors import CallFailed, RefusedError
from dispatcher.stage.child import Child
from dispatcher.stage.claim import claim
from dispatcher.stage.watch import Watch, end
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
CLAIM = """
import sys
from pathlib import Path
from dispatcher.errors import RefusedError
from dispatcher.stage.claim import claim
sys.stdin.readline()
try:
    claim(Path(sys.argv[1]), "it", "")
except RefusedError:
    print("refused", flush=True)
else:
    print("mine", flush=True)
sys.stdin.read()
"""
# A command with a child, as `demo` and `dev` are; the child says its number and stays.
PARENT = """
import signal, sys
from pathlib import Path
from dispatcher.stage.child import Child
from dispatcher.stage.watch import Watch
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a test run that is under nohup has it ignored, and so would its children
say = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
with Watch() as watch, Child("child", [say], Path(sys.argv[1]), watch, program=("-c",)) as child:
    print(child.first_line(), flush=True)
    sys.stdin.read()
"""


@contextmanager
def script(text: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program of a few lines, and leave nothing behind."""
    with subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    """Read what a program says first."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def runs(pid: int) -> bool:
    """Tell whether a process runs; a dead one that nobody has collected does not."""
    return bool(command_line(pid))


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    """While one process has it, another is refused with a sentence that names it; once it is gone, even killed, the folder is free."""
    with script(CLAIM, str(tmp_path)) as owner:
        assert owner.stdin is not None
        owner.stdin.write("go\n")
        owner.stdin.flush()
        assert first_line(owner) == "mine"
        with pytest.raises(RefusedError, match=rf"it runs in \S+ already \(process {owner.pid}\)"):
            claim(tmp_path, "it", "")
        owner.kill()
        owner.wait()
        claim(tmp_path, "it", "")
    assert len(list(tmp_path.iterdir())) == 1


def test_a_claim_keeps_no_secret(tmp_path: Path) -> None:
    """How to log in to Kafka may stand in the command line (-X): no file repeats it, and the claim is its owner's alone to read."""
    with script(CLAIM, str(tmp_path), "-X", "sasl.password=wonderland") as owner:
        assert owner.stdin is not None
        owner.stdin.write("go\n")
        owner.stdin.flush()
        assert first_line(owner) == "mine"
        (left,) = tmp_path.iterdir()
        assert "wonderland" not in left.read_text()
        assert 0o600 == left.stat().st_mode & 0o777


@pytest.mark.parametrize("dead", [None, '{"pid": 1, "started": "at another time"}', '{"pid": 1, "command": ["of an older version"]}', "{"])
def test_of_many_at_once_one_gets_it(tmp_path: Path, dead: str | None) -> None:
    """Also behind the claim of a process that is gone, and behind half a claim."""
    if dead is not None:
        (tmp_path / "claim.3").write_text(dead)
    with script(CLAIM, str(tmp_path)) as a, script(CLAIM, str(tmp_path)) as b, script(CLAIM, str(tmp_path)) as c:
        for process in (a, b, c):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert sorted(first_line(process) for process in (a, b, c)) == ["mine", "refused", "refused"]


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGHUP])
def test_children_end_with_a_command_that_is_killed(tmp_path: Path, ending: signal.Signals) -> None:
    """Nobody ends them in order, and they end all the same."""
    with script(PARENT, str(tmp_path)) as parent:
        child = int(first_line(parent))
        assert runs(child)
        os.kill(parent.pid, ending)
        eventually(lambda: not runs(child), what="the child has ended")


def test_a_child_that_does_not_heed_is_killed() -> None:
    """A frozen process ends too, once the grace is over."""
    deaf = "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); input()"
    with script(deaf) as child:
        assert first_line(child) == "deaf"
        end({child.pid}, grace_s=0.2)
        assert child.wait() == -signal.SIGKILL


def test_a_child_that_ended_is_not_looked_for(tmp_path: Path) -> None:
    """Its number may be another program's by then: what was ended in order is forgotten, and what the block leaves is ended there."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        with Watch() as watch:
            watch.child(stranger.pid)
            watch.ended(stranger.pid)
        assert stranger.poll() is None
        stranger.kill()


def test_a_child_that_dies_says_why(tmp_path: Path) -> None:
    """Its last error is in the sentence, and its log is named."""
    with (
        Watch() as watch,
        Child("worker", ["--config", "nowhere.toml", "worker"], tmp_path, watch) as child,
        pytest.raises(CallFailed, match=r"the worker ended with exit code 2: .*nowhere\.toml"),
    ):
        child.first_line()
