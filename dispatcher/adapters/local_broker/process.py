"""Apache Kafka from its own jars: one KRaft node per directory, as a detached process that outlives the command which started it."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dispatcher.adapters.local_broker.jars import Jars, last_lines
from dispatcher.adapters.local_broker.java import run
from dispatcher.adapters.local_broker.properties import DEFAULT_PORT, jar_properties
from dispatcher.adapters.local_broker.status import Status, read_note, write_note
from dispatcher.errors import BrokerError, ConfigError, RefusedError

# Kafka says this once its sockets are open and its first metadata is loaded; a listening port alone might be a stranger's.
_READY = "Kafka Server started"
_PORT_TAKEN = ("Address already in use", "BindException")
_START_S = 180.0  # 8 s on an idle machine
_STOP_S = 30.0  # a clean stop takes 1-5 s; it flushes the logs
_POLL_S = 0.1
# A free port may be taken between our look and Kafka's bind; how often we look again.
_PORT_TRIES = 5
_JAVA_OPTIONS = (
    "-Xms256m",
    "-Xmx512m",
    "-XX:+UseG1GC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
)


class LocalBroker:
    """The broker of one directory. The directory is its identity: a second object, in another process, sees and stops the same broker.

    `port` 0 takes a free one, None means 9092 for a new broker and any for one that runs. `extra` are further broker properties (the
    tests' SASL broker), `options` further ones of Java, the later of two wins. `cluster` is the id of the cluster that it is a node of;
    a new one by default. `say` gets progress.
    """

    def __init__(
        self,
        directory: Path,
        port: int | None = 0,
        *,
        environ: Mapping[str, str] = os.environ,
        extra: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        cluster: str | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.directory = directory.absolute()
        self._home = self.directory / "broker"
        self._port = port
        self._extra = dict(extra or {})
        self._options = (*_JAVA_OPTIONS, *options)
        self._cluster = cluster or new_cluster_id()
        self._environ = environ
        self._say = say
        self._child: int | None = None
        self._jars = Jars(environ, say)
        self._config = self._home / "server.properties"
        self._data = self._home / "data"
        self._log = self._home / "kafka.log"
        self._note = self._home / "broker.json"

    def lack(self) -> BrokerError | None:
        """Say what this machine lacks for running it; None when nothing, or when it runs."""
        return None if self.status().state != "down" else self._jars.lack()

    def up(self) -> str:
        """Start it, unless it runs, and give its bootstrap address.

        Errors: ConfigError when its port is taken, BrokerError when it cannot be started (with the end of its log), RefusedError when it
        runs on another port than asked.
        """
        now = self.status()
        if now.state == "down":
            return self._start()
        if self._port and self._port != now.port:
            raise RefusedError(f"this directory's broker runs on port {now.port}", "stop it first (`dispatcher broker down`), or use --dir")
        if now.state == "starting":
            self._await_ready(int(now.process or 0))
        return str(now.bootstrap)

    def down(self, grace_s: float = _STOP_S) -> bool:
        """Stop it: TERM, and KILL after `grace_s`. False when it did not run. A process that is not this broker is never touched."""
        pid = self._pid()
        if pid is None:
            self._note.unlink(missing_ok=True)
            return False
        for sign, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _STOP_S)):
            if patience_s <= 0:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
            end = time.monotonic() + patience_s
            while self._pid() == pid and time.monotonic() < end:
                time.sleep(_POLL_S)
            if self._pid() != pid:
                break
        self._note.unlink(missing_ok=True)
        return True

    def status(self) -> Status:
        """Say whether its process runs and serves."""
        pid = self._pid()
        if pid is None:
            return Status("down", "jars", log=self._log if self._log.exists() else None)
        serves = _READY in self._log_text()
        return Status("up" if serves else "starting", "jars", f"127.0.0.1:{read_note(self._note).get('port')}", str(pid), self._log)

    def _start(self) -> str:
        """Start the process, with other ports when one was taken under our hands."""
        fixed = DEFAULT_PORT if self._port is None else self._port
        require_free(fixed)
        try:
            java, classpath = self._jars.java(), self._jars.classpath()
            self._home.mkdir(parents=True, exist_ok=True)
            self._say("starting Apache Kafka (some seconds)")
            for _ in range(_PORT_TRIES):
                require_free(fixed)
                port = fixed or free_port()
                if self._serves(java, classpath, port):
                    return f"127.0.0.1:{port}"
        except OSError as failure:  # no room, no right to write, a file where a directory should be
            place = failure.filename or self._home
            raise BrokerError(f"cannot write {place}: {failure.strerror}", "make room, or choose another directory (--dir)") from None
        raise BrokerError("Kafka found no free port", f"its log is {self._log}")

    def _serves(self, java: str, classpath: str, port: int) -> bool:
        """Start the process on this port and wait for it. False when it lost the port to somebody else."""
        self._configure(port, free_port())
        self._format(java, classpath)
        pid = self._spawn([java, *self._options, "-cp", classpath, "kafka.Kafka", str(self._config)])
        write_note(self._note, {"pid": pid, "port": port})
        return self._await_ready(pid)

    def _configure(self, port: int, controller_port: int) -> None:
        """Write server.properties."""
        properties = jar_properties(port, controller_port, str(self._data)) | self._extra
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        self._config.write_text(text, encoding="utf-8")

    def _format(self, java: str, classpath: str) -> None:
        """Give a new data directory its cluster id; Kafka refuses to start without one."""
        if (self._data / "meta.properties").exists():
            return
        command = [
            java,
            *self._options,
            "-cp",
            classpath,
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={self._cluster}",
            "-c",
            str(self._config),
        ]
        done = run(command, self._environ, timeout_s=_START_S)
        if done.returncode != 0:
            raise BrokerError("Kafka could not prepare its data directory", f"it says: {last_lines(done.stdout + done.stderr, 3)}")

    def _spawn(self, command: list[str]) -> int:
        """Start a process of its own session, so that neither the end of this command nor Ctrl-C reaches it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(self._log), flags, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        self._child = os.posix_spawn(command[0], command, dict(self._environ), file_actions=actions, setsid=True)
        return self._child

    def _await_ready(self, pid: int) -> bool:
        """Wait until it serves: True. False when a port was taken and another may be free; else BrokerError with the end of its log."""
        end = time.monotonic() + _START_S
        while time.monotonic() < end:
            if _READY in self._log_text():
                return True
            if self._pid() != pid:
                break
            time.sleep(_POLL_S)
        text = self._log_text()
        if self._pid() != pid and any(sign in text for sign in _PORT_TAKEN):
            return False
        self.down()
        raise BrokerError(f"Kafka did not start; its log ends: {last_lines(text, 5)}", f"the whole log is {self._log}")

    def _log_text(self) -> str:
        """Read the log of this start; at level warn it is short."""
        try:
            return self._log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def _pid(self) -> int | None:
        """Give the process number in the note if that process is this broker: numbers are used again, command lines are not."""
        pid = read_note(self._note).get("pid")
        if not isinstance(pid, int):
            return None
        if pid == self._child:
            # Our own child: its number is not given away before we have asked for its end, and right after the spawn it has no
            # command line yet.
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    return pid
            self._child = None
            return None
        return pid if command_line(pid)[-2:] == ["kafka.Kafka", str(self._config)] else None


def new_cluster_id() -> str:
    """Make one as Kafka writes them: a UUID in base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def command_line(pid: int) -> list[str]:
    """Read a process's arguments; empty when there is no such process, or a dead one. Asks /proc, or `ps` where there is none."""
    if Path("/proc/self/cmdline").exists():
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return []
        return [part.decode(errors="replace") for part in raw.split(b"\0")[:-1]]
    done = subprocess.run(["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603 - a number
    return done.stdout.strip().split(" ")


def started_at(pid: int) -> str | None:
    """Tell when a process started, in the system's own words: with its number that names it. None when there is none, or a dead one."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        # proc(5): behind the name, which may hold anything, come the state (field 3) and, as field 22, the start in ticks since boot.
        state, *fields = stat.rpartition(")")[2].split()
        return None if state in "ZX" else fields[18]
    done = subprocess.run(["/bin/ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603 - a number
    return done.stdout.strip() or None


def free_port() -> int:
    """Ask the system for a port that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def require_free(port: int) -> None:
    """Raise ConfigError for a port that another program has. Binds as Kafka will (lingering connections of a stopped broker do not count).

    Port 0, which takes a free one, is always free.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise ConfigError(f"port {port} is taken by another program", "choose another with --port; --port 0 takes a free one") from None
