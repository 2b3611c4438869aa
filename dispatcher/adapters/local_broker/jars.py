"""Kafka's jars: fetched once into the user's cache, by Maven where it is installed, else by jgo."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dispatcher.adapters.local_broker import maven_central
from dispatcher.adapters.local_broker.java import find_java, run
from dispatcher.adapters.local_broker.properties import KAFKA_VERSION
from dispatcher.errors import BrokerError

_FETCH_S = 900.0
COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)


@dataclass(frozen=True)
class Jars:
    """Where Java and Kafka's jars come from, by an environment (`JAVA_HOME`, `PATH`, `XDG_CACHE_HOME`)."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    say: Callable[[str], None] = print

    @property
    def directory(self) -> Path:
        """Where the jars are kept: per user and version. That it exists says that it is complete."""
        return cache_directory(self.environ) / f"kafka-{KAFKA_VERSION}"

    def lack(self) -> BrokerError | None:
        """Say what this machine lacks for running Kafka; None when nothing. Fetches nothing."""
        try:
            self.java()
        except BrokerError as lack:
            return lack
        return None if self.directory.is_dir() or self._maven() or maven_central.available() else _no_maven()

    def java(self) -> str:
        """Find a Java that runs Kafka."""
        return find_java(self.environ)

    def classpath(self) -> str:
        """Give Java's class path; fetches the jars the first time."""
        if not self.directory.is_dir():
            self._fetch()
        return f"{self.directory}{os.sep}*"

    def _fetch(self) -> None:
        """Fetch into a directory of our own and move it in one step: two first starts at once do the work twice, and nothing else."""
        maven = self._maven()
        if maven is None and not maven_central.available():
            raise _no_maven()
        self.say(f"fetching Apache Kafka {KAFKA_VERSION} by {'Maven' if maven else 'jgo'} (56 MB, the first time only)")
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="kafka-", dir=self.directory.parent) as fresh:
            libraries = Path(fresh) / "libraries"
            if maven:
                self._fetch_by(maven, Path(fresh) / "pom.xml", libraries)
            else:
                maven_central.fetch(COORDINATES, libraries, Path(fresh) / "repository", self.say)
            try:
                libraries.rename(self.directory)
            except OSError:
                if not self.directory.is_dir():  # else another start was faster, with the same jars
                    raise

    def _maven(self) -> str | None:
        return shutil.which("mvn", path=self.environ.get("PATH", ""))

    def _fetch_by(self, maven: str, pom: Path, libraries: Path) -> None:
        """Let Maven fill `libraries`."""
        pom.write_text(_pom(), encoding="utf-8")
        # -C: a jar that does not match its checksum is an error, not a warning.
        command = [maven, "-q", "-B", "-C", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"]
        done = run(command, self.environ, timeout_s=_FETCH_S)
        if done.returncode != 0 or not libraries.is_dir():
            raise BrokerError("Maven could not fetch Kafka's jars", f"it says: {last_lines(done.stdout + done.stderr, 3)}")


def _no_maven() -> BrokerError:
    hint = "install Maven (or `pip install jgo`), start Docker, or name a broker in DISPATCHER_KAFKA__BOOTSTRAP_SERVERS"
    return BrokerError("a local broker needs Kafka's jars, and there is no Maven (mvn) to fetch them", hint)


def _pom() -> str:
    """Write a project that depends on what we need, and is nothing else."""
    wanted = (dict(zip(("groupId", "artifactId", "version"), one.split(":"), strict=True)) for one in COORDINATES)
    listed = ("<dependency>" + "".join(f"<{name}>{text}</{name}>" for name, text in one.items()) + "</dependency>\n" for one in wanted)
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>local</groupId><artifactId>kafka-broker</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
{"".join(listed)}</dependencies></project>
"""


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Give this user's cache: XDG's on Unix, Library/Caches on a Mac."""
    given = environ.get("XDG_CACHE_HOME")
    if given and Path(given).is_absolute():
        return Path(given) / "dispatcher"
    home = Path(environ.get("HOME") or Path.home())
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "dispatcher"


def last_lines(text: str, count: int) -> str:
    """Take the last lines that say something: no empty ones, and no frames of a Java stack."""
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if line and not re.match(r"at \S+\(|\.\.\. \d+ more", line)]
    return " | ".join(telling[-count:]) or "nothing"
