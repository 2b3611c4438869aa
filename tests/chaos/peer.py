"""A peer in our workers' place: pyrallel-consumer, in a virtualenv of its own, with its worker in `peers/pyrallel`.

Its lock is made by `uv pip compile --universal --python-version 3.12 --generate-hashes --no-annotate requirements.in -o requirements.lock`.
It needs Python 3.12 or newer; PEER_PYTHON names one that is not on the path.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, Self

from confluent_kafka.cimpl import NewTopic

from dispatcher.adapters.kafka import clients
from dispatcher.settings import Settings
from tests.chaos.load import PATIENCE
from tests.chaos.outside import Taken
from tests.e2e.stage import READY_S, Process, Stage, Worker
from tests.toolchains import virtualenv
from tests.waiting import eventually

FOLDER = Path(__file__).parent / "peers" / "pyrallel"
# As long as our workers' sessions.
SESSION_S = 6
PYTHONS = ("python3.14", "python3.13", "python3.12", "python3")
REVOKED = re.compile(r"^(\d+\.\d+) WARNING .*: Partitions revoked: (.+)$", re.MULTILINE)
VERSIONS = "import platform; from importlib.metadata import version; print(*map(version, ({names})), platform.python_version(), sep='\\n')"


class Peer(Worker):
    """A process of the peer."""

    def __init__(self, stage: Stage, number: int, python: Path, given: dict[str, Any]) -> None:
        arguments = [str(FOLDER / "worker.py"), json.dumps(given | {"process": number})]
        Process.__init__(self, f"worker{number}", arguments, stage.folder, python=python)
        self._is_member = lambda: stage.members() >= number

    def ready(self) -> Self:
        """Wait until the group has as many members as there are processes: it has no health page. For the first ones of a stage."""
        eventually(self._is_member, READY_S, f"{self.name} is in the group")
        return self

    def taken(self) -> list[Taken]:
        """Tell when which partitions were taken from it, as the library logs it."""
        found = REVOKED.findall(self.text())
        return [(float(at), [int(name.rpartition("-")[2]) for name in names.split(", ")]) for at, names in found]


def hired(python: Path, stage: Stage, _slot: str, broker: str) -> Worker:
    """Start one on a stage; it knows no slots."""
    settings = stage.settings
    given = PATIENCE | {
        "bootstrap": broker,
        "group": settings.worker.group,
        "requests": settings.topics.requests,
        "replies": settings.topics.replies,
        "ordering": settings.worker.ordering,
        "drain_s": settings.worker.drain_s,
        "session_s": SESSION_S,
        "upstream": stage.upstream_url,
    }
    return stage.adopt(lambda number: Peer(stage, number, python, given))


def letters(settings: Settings) -> str:
    """Name the topic of its dead letters."""
    return f"{settings.topics.requests}.dlq"


def prepare(settings: Settings) -> None:
    """Make the topic of its dead letters, with as many copies as ours."""
    topic = NewTopic(letters(settings), settings.topics.partitions, settings.topics.replication_factor)
    admin = clients.admin(settings)
    admin.create_topics([topic])[topic.topic].result(60)


def installed() -> partial[Worker]:
    """Install what it needs, and give what starts one: `hired` without its first argument."""
    return partial(hired, virtualenv(FOLDER / "requirements.lock", _interpreter()))


def versions(python: Path) -> dict[str, str]:
    """Name what runs there."""
    names = ("pyrallel-consumer", "confluent-kafka", "aiohttp")
    told = subprocess.run([python, "-c", VERSIONS.format(names=str(names)[1:-1])], capture_output=True, text=True, check=True).stdout
    return dict(zip((*names, "python"), told.split(), strict=True))


def _interpreter() -> str:
    test = "import sys; sys.exit(sys.version_info < (3, 12))"
    for name in filter(None, (os.environ.get("PEER_PYTHON"), *PYTHONS)):
        if (path := shutil.which(name)) and subprocess.run([path, "-c", test], capture_output=True, check=False).returncode == 0:
            return path
    raise SystemExit("error: the peer needs Python 3.12 or newer, and none is on the path (hint: PEER_PYTHON=/path/to/python3.12)")
