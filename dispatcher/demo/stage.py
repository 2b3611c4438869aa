"""The stage of the demo: a work directory, a configuration of its own, and two child processes, upstream and worker."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from dispatcher.adapters.config import load
from dispatcher.demo.load import TEAMS, team
from dispatcher.errors import CallFailed, WaitTimeout
from dispatcher.settings import KafkaSettings, Settings

# A Python process with all libraries starts in 1-3 s; on a loaded machine of two cores in many more.
START_TIMEOUT_S = 30.0
# The worker finishes the call in hand (below a second at the demo's speed), publishes and leaves its group.
STOP_TIMEOUT_S = 30.0
POLL_S = 0.05


class Child:
    """A child process whose output goes to files. A context manager that leaves nothing running, however the block ends."""

    def __init__(self, name: str, arguments: list[str], folder: Path) -> None:
        self.name = name
        self.out = folder / f"{name}.out"
        self.log = folder / f"{name}.log"
        with self.out.open("wb") as out, self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "dispatcher", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env=_environment(),
                start_new_session=True,  # Ctrl-C goes to the demo alone, which ends its children in order
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.stop()
        except WaitTimeout:
            if kind is None:
                raise
        finally:
            self._process.kill()
            self._process.wait()

    def check(self) -> None:
        """Raise CallFailed if the process has ended by itself."""
        code = self._process.poll()
        if code is not None:
            raise CallFailed(f"the {self.name} ended with exit code {code}: {self._last_words()}", f"its log: {self.log}")

    def stop(self) -> int:
        """Ask it to end (SIGTERM), wait, and give its exit code. WaitTimeout if it does not end in time."""
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise WaitTimeout(f"the {self.name} did not end within {STOP_TIMEOUT_S:g} s of SIGTERM", f"its log: {self.log}") from None

    def first_line(self) -> str:
        """Wait for the first line on its stdout."""
        end = time.monotonic() + START_TIMEOUT_S
        while not (text := self.out.read_text()).endswith("\n"):
            self._wait(end)
        return text.splitlines()[0]

    def await_ready(self, url: str) -> None:
        """Wait until `url` answers 200."""
        end = time.monotonic() + START_TIMEOUT_S
        with httpx.Client(trust_env=False, timeout=1) as client:
            while True:
                try:
                    if client.get(url).is_success:
                        return
                except httpx.TransportError:
                    pass
                self._wait(end)

    def _wait(self, end: float) -> None:
        self.check()
        if time.monotonic() > end:
            raise WaitTimeout(f"the {self.name} is not ready after {START_TIMEOUT_S:g} s: {self._last_words()}", f"its log: {self.log}")
        time.sleep(POLL_S)

    def _last_words(self) -> str:
        """Give the error that it printed last, else its last line."""
        lines = self.log.read_text(errors="replace").splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return (errors or lines or ["it said nothing"])[-1][:300]


def start_upstream(folder: Path, speed: float) -> Child:
    """Start the sample upstream on a free port; its first line is its URL."""
    return Child("upstream", ["sample-upstream", "--port", "0", "--speed", str(speed)], folder)


def start_worker(folder: Path, config: Path) -> Child:
    """Start one worker."""
    return Child("worker", ["--config", str(config), "worker"], folder)


def configure(folder: Path, kafka: KafkaSettings, *, prefix: str, partitions: int, upstream_url: str) -> tuple[Path, Settings]:
    """Write the demo's configuration, and load it as a worker will: from the file alone."""
    config = folder / "demo.toml"
    config.unlink(missing_ok=True)
    # It repeats how to log in to Kafka, where that is needed.
    with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(toml(_tables(kafka, prefix, partitions, upstream_url)))
    return config, load(file=config, flags={}, properties=[], environ={})


def _tables(kafka: KafkaSettings, prefix: str, partitions: int, upstream_url: str) -> dict[str, dict[str, object]]:
    aliases = [team(number) for number in range(TEAMS)]
    secrets = {name: value.get_secret_value() for name, value in kafka.properties.items()}
    return {
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers, **secrets},
        "topics": {"prefix": prefix, "partitions": partitions},
        # Calls last tenths of a second here: one in hand is always finished within a drain of 10 s.
        "worker": {"group": prefix, "slot": "demo", "http_port": free_port(), "drain_s": 10},
        **{f"credentials.{alias}": {"value": f"Bearer demo-token-of-{alias}"} for alias in aliases},
        "upstreams.sample": {
            "base_url": f"{upstream_url}/v1",
            "credentials": aliases,
            "allow_private": True,
            "call_timeout_s": 9,
            "backoff_base_s": 0.1,  # sped up like everything else
        },
    }


def toml(tables: Mapping[str, Mapping[str, object]]) -> str:
    """Write tables as TOML. JSON's strings, numbers, booleans and lists of them are TOML's too; names are quoted where they hold dots."""
    return "\n".join(
        "\n".join([f"[{name}]", *(f"{_name(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items())]) + "\n"
        for name, table in tables.items()
    )


def _name(key: str) -> str:
    return json.dumps(key) if "." in key else key


def free_port() -> int:
    """Find a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _environment() -> dict[str, str]:
    """Give children ours without what would override the demo's file."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith("DISPATCHER_")}
