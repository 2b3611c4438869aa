"""`make newcomer`: the README's commands, as they stand there, from a fresh clone and with an empty home.

Each must end with 0 and print what it should in kind: the README's own examples of output, and for the commands below what a person looks
for. Then the other way in, `pip install .`, into an environment of its own. Needs git, make, bash, Python, and the ports of the README.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import interrupts
from tests.newcomer.readme import Shown, Step, Typed, Written, missing, steps
from tests.newcomer.terminal import Done, Terminal

ROOT = Path(__file__).parents[2]
# Whoever runs this runs that too, and it takes many minutes.
ELSEWHERE = ("make test",)
# How long the last request may wait for its reply.
ANSWER_S = 60
# What has to be on stdout, by how the command begins.
PRINTS = {
    r"dispatcher broker up": r"^(localhost|127\.0\.0\.1):9092$",
    r"dispatcher .*topics init": r"\bdispatcher\.requests\b",
    r"dispatcher .*submit ": r"^[0-9a-f-]{36} dispatcher\.requests/\d+/\d+$",
    r"dispatcher .*ask ": r'^\{"',
    r"dispatcher .*replies ": r"^\d+/\d+ .* ok 200 ",
    r"dispatcher .*requests ": r"^\d+/\d+ ",
}
PORTS = {9092: "the broker", 8080: "the sample upstream"}
# What a newcomer's machine has set up for reaching package registries; nothing else of ours may reach the commands.
KEPT = re.compile(r"PATH|LANG|JAVA_HOME|TMPDIR|.*_proxy|PIP_.*|.*SSL_CERT_.*|.*_CA_BUNDLE|MAVEN_.*", re.IGNORECASE)


class Failed(Exception):
    """A sentence about what did not work."""


def main() -> int:
    """Do it all; 0 when everything worked."""
    began = time.monotonic()
    interrupts.heed()
    try:
        _require_ports()
        with tempfile.TemporaryDirectory(prefix="newcomer-") as place:
            clone, environ = _clone(Path(place))
            _readme(clone, environ, Path(place))
            _wheel(clone, environ, Path(place))
    except (Failed, TimeoutError) as failure:
        _say(f"FAILED: {failure}")
        return 1
    _say(f"the README works from a fresh clone ({time.monotonic() - began:.0f} s)")
    return 0


def _require_ports() -> None:
    for port, whose in PORTS.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise Failed(f"port {port}, which the README gives {whose}, is taken on this machine") from None


def _clone(place: Path) -> tuple[Path, dict[str, str]]:
    """Clone what is committed, and give the environment of somebody who is new here."""
    clone, home = place / "dispatcher", place / "home"
    home.mkdir()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)  # a path: nothing is fetched from anywhere
    environ = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    # An environment of Python that is active here is not theirs.
    path = [folder for folder in environ["PATH"].split(os.pathsep) if not (Path(folder).parent / "pyvenv.cfg").exists()]
    return clone, environ | {"HOME": str(home), "PATH": os.pathsep.join(path), "TERM": "dumb"}


def _readme(clone: Path, environ: dict[str, str], place: Path) -> None:
    scratch = place / "printed"
    scratch.mkdir()
    try:
        with Terminal(clone, environ, scratch) as terminal:
            printed = ""
            for step in steps((clone / "README.md").read_text(encoding="utf-8")):
                printed = _step(step, terminal, clone, printed)
            _answered(terminal)
            for line, code in terminal.end_staying():
                if code != 0:
                    raise Failed(f"`{line}` ended with exit code {code} at Ctrl-C")
    finally:
        if (command := clone / ".venv/bin/dispatcher").exists():
            subprocess.run([command, "broker", "down"], cwd=clone, env=environ, stdout=subprocess.DEVNULL, check=False)


def _step(step: Step, terminal: Terminal, clone: Path, printed: str) -> str:
    """Do one; gives what was printed since the last example of output."""
    if isinstance(step, Written):
        _say(f"writing {step.name}")
        (clone / step.name).write_text(step.text, encoding="utf-8")
        return printed
    if isinstance(step, Shown):
        if lacking := missing(step.text, printed):
            raise Failed("the README shows what was not printed:\n  " + "\n  ".join(lacking))
        return ""
    if step.line.startswith(ELSEWHERE):
        return printed
    if "kcat " in step.line and not shutil.which("kcat"):
        _say(f"kcat is not installed here, left out: {step.line}")
        return printed
    if step.stays:
        _say(f"$ {step.line} &")
        terminal.leave_running(step.line)
        return printed
    return printed + _typed(step, terminal)


def _answered(terminal: Terminal) -> None:
    """See that every request of the page gets its reply, by whatever client it was sent."""
    end = time.monotonic() + ANSWER_S
    while True:
        sent, replied = (terminal.type(f"dispatcher {topic} -o start -e --json").out.splitlines() for topic in ("requests", "replies"))
        if sent and len(sent) == len(replied) and all('"ok"' in line for line in replied):
            _say(f"{len(sent)} requests, and as many replies")
            return
        if time.monotonic() > end:
            raise Failed(f"{len(sent)} requests have {len(replied)} replies:\n  " + "\n  ".join(replied))


def _typed(step: Typed, terminal: Terminal) -> str:
    began = time.monotonic()
    done = terminal.type(step.line)
    _say(f"$ {step.line}   [{time.monotonic() - began:.0f} s]")
    if done.code != 0:
        raise Failed(f"`{step.line}` ended with exit code {done.code}\n{_tail(done)}")
    for begins, prints in PRINTS.items():
        if re.match(begins, step.line) and not re.search(prints, done.out, re.MULTILINE):
            raise Failed(f"`{step.line}` did not print {prints}\n{_tail(done)}")
    return done.out + done.err


def _wheel(clone: Path, environ: dict[str, str], place: Path) -> None:
    """`pip install .`: the command works, without the extras and without what developers have."""
    scratch = place / "wheel-printed"
    scratch.mkdir()
    with Terminal(place, environ, scratch) as terminal:
        for line in (
            f"{sys.executable} -m venv wheel",
            f"wheel/bin/python -m pip install --quiet --disable-pip-version-check {clone}",
            "wheel/bin/python -m pip check",
            "wheel/bin/dispatcher version",
            "wheel/bin/dispatcher --help",
            f"TEAM_A_TOKEN=x wheel/bin/dispatcher --config {clone}/dispatcher.toml config check",
            "wheel/bin/dispatcher broker up --port 0",
            "wheel/bin/dispatcher broker down",
            "! wheel/bin/python -c 'import pytest' && ! wheel/bin/python -c 'import docker' && ! wheel/bin/python -c 'import jgo'",
        ):
            _typed(Typed(line, stays=False), terminal)


def _tail(done: Done) -> str:
    lines = [*done.out.splitlines()[-15:], *done.err.splitlines()[-15:]]
    return "\n".join(f"  | {line}" for line in lines)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
