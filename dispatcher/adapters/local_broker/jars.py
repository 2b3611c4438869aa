"""Java and Kafka's jars: found on this machine, or fetched once by Maven into the user's cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dispatcher.adapters.local_broker.properties import KAFKA_VERSION
from dispatcher.errors import BrokerError

JAVA_MIN = 17  # what Kafka 4 brokers need
_FETCH_S = 900.0
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>local</groupId><artifactId>kafka-broker</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""


@dataclass(frozen=True)
class Jars:
    """Where Java and Kafka's jars come from, by an environment (`JAVA_HOME`, `PATH`, `XDG_CACHE_HOME`)."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    say: Callable[[str], None] = print

    @property
    def directory(self) -> Path:
        """Where the jars are kept: per user and version. That it exists says that it is complete."""
        return cache_directory(self.environ) / f"kafka-{KAFKA_VERSION}"

    def java(self) -> str:
        """Find a Java that runs Kafka: `JAVA_HOME` first, then the path."""
        home = self.environ.get("JAVA_HOME")
        path = str(Path(home) / "bin") if home else self.environ.get("PATH", "")
        found = shutil.which("java", path=path) or shutil.which("java", path=self.environ.get("PATH", ""))
        hint = f"install Java {JAVA_MIN} or newer, start Docker, or name a broker in DISPATCHER_KAFKA__BOOTSTRAP_SERVERS"
        if found is None:
            raise BrokerError("a local broker needs Java, and there is none", hint)
        version = java_version(self._run([found, "-version"], timeout_s=60).stderr)
        if version < JAVA_MIN:
            raise BrokerError(f"a local broker needs Java {JAVA_MIN}, and {found} is Java {version or 'of an unknown version'}", hint)
        return found

    def classpath(self) -> str:
        """Give Java's class path; fetches the jars the first time."""
        if not self.directory.is_dir():
            self._fetch()
        return f"{self.directory}{os.sep}*"

    def _fetch(self) -> None:
        """Fetch into a directory of our own and move it in one step: two first starts at once do the work twice, and nothing else."""
        maven = shutil.which("mvn", path=self.environ.get("PATH", ""))
        if maven is None:
            hint = "install Maven, start Docker, or name a broker in DISPATCHER_KAFKA__BOOTSTRAP_SERVERS"
            raise BrokerError("a local broker needs Kafka's jars, and there is no Maven (mvn) to fetch them", hint)
        self.say(f"fetching Apache Kafka {KAFKA_VERSION} by Maven (54 MB, the first time only)")
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="kafka-", dir=self.directory.parent) as fresh:
            pom, libraries = Path(fresh) / "pom.xml", Path(fresh) / "libraries"
            pom.write_text(_POM, encoding="utf-8")
            # -C: a jar that does not match its checksum is an error, not a warning.
            command = [maven, "-q", "-B", "-C", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"]
            done = self._run(command, timeout_s=_FETCH_S)
            if done.returncode != 0 or not libraries.is_dir():
                raise BrokerError("Maven could not fetch Kafka's jars", f"it says: {last_lines(done.stdout + done.stderr, 3)}")
            try:
                libraries.rename(self.directory)
            except OSError:
                if not self.directory.is_dir():  # else another start was faster, with the same jars
                    raise

    def _run(self, command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        try:
            return subprocess.run(  # noqa: S603 - found on the user's own path
                command, env=dict(self.environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as failure:
            raise BrokerError(f"{command[0]} did not run to its end", f"it failed with {type(failure).__name__}") from None


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Give this user's cache: XDG's on Unix, Library/Caches on a Mac."""
    given = environ.get("XDG_CACHE_HOME")
    if given and Path(given).is_absolute():
        return Path(given) / "dispatcher"
    home = Path(environ.get("HOME") or Path.home())
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "dispatcher"


def java_version(text: str) -> int:
    """Read the major version from what `java -version` prints; 0 when it prints something else. Java 8 calls itself 1.8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def last_lines(text: str, count: int) -> str:
    """Take the last lines that say something: no empty ones, and no frames of a Java stack."""
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if line and not re.match(r"at \S+\(|\.\.\. \d+ more", line)]
    return " | ".join(telling[-count:]) or "nothing"
