"""Apache Kafka's own image, where a Docker engine answers (the optional `broker` extra: testcontainers)."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dispatcher.adapters.local_broker.process import free_port, require_free
from dispatcher.adapters.local_broker.properties import DEFAULT_PORT, IMAGE, image_environment
from dispatcher.adapters.local_broker.status import Status, read_note, write_note
from dispatcher.errors import BrokerError, RefusedError

_START_S = 180  # the first start pulls the image
_STOP_S = 30
_INSIDE_PORT = 9092
_SOCKET = "unix:///var/run/docker.sock"


class DockerBroker:
    """The container of one directory, named after it; it outlives the command that started it."""

    def __init__(self, directory: Path, port: int | None = 0, *, say: Callable[[str], None] = print) -> None:
        home = directory.absolute() / "broker"
        self._port = port
        self._say = say
        self._note = home / "container.json"
        self._name = f"dispatcher-broker-{hashlib.sha256(str(home).encode()).hexdigest()[:12]}"

    @staticmethod
    def available() -> bool:
        """Ask whether testcontainers is installed and a Docker daemon answers."""
        try:
            import docker  # type: ignore[import-untyped]  # noqa: PLC0415 - optional, and slow to import
            import testcontainers.core  # noqa: F401, PLC0415 - as above
        except ImportError:
            return False
        if not _listens(os.environ.get("DOCKER_HOST", _SOCKET)):
            return False
        try:
            client = docker.from_env(timeout=5)
        except docker.errors.DockerException:
            return False
        try:
            return bool(client.ping())
        except (docker.errors.DockerException, OSError):
            return False
        finally:
            client.close()

    def up(self) -> str:
        """Start the container, unless it runs, and give the bootstrap address. Errors: as `LocalBroker.up`."""
        now = self.status()
        if now.state != "down":
            if self._port and self._port != now.port:
                raise RefusedError(f"this directory's broker runs on port {now.port}", "stop it first (`dispatcher broker down`)")
            return str(now.bootstrap)
        port = (DEFAULT_PORT if self._port is None else self._port) or free_port()
        require_free(port)
        self._say(f"starting {IMAGE} in Docker (the first time it is pulled)")
        self._run(port)
        self._note.parent.mkdir(parents=True, exist_ok=True)
        write_note(self._note, {"port": port, "container": self._name})
        return f"127.0.0.1:{port}"

    def down(self, grace_s: float = _STOP_S) -> bool:
        """Stop and remove the container, with its data. False when there is none."""
        container = self._container()
        self._note.unlink(missing_ok=True)
        if container is None:
            return False
        container.stop(timeout=max(1, round(grace_s)))
        container.remove(v=True, force=True)
        return True

    def status(self) -> Status:
        """Say whether the container runs; without our note nobody asks Docker."""
        container = self._container()
        if container is None or container.status != "running":
            return Status("down", "docker")
        return Status("up", "docker", f"127.0.0.1:{read_note(self._note).get('port')}", self._name)

    def _run(self, port: int) -> None:
        """Run the container until Kafka says that it serves."""
        from docker.errors import DockerException  # type: ignore[import-untyped]  # noqa: PLC0415 - optional, and slow to import
        from testcontainers.core.config import testcontainers_config  # noqa: PLC0415 - as above
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - as above
        from testcontainers.core.wait_strategies import LogMessageWaitStrategy  # noqa: PLC0415 - as above

        # Testcontainers' reaper removes what a process started when that process ends; this broker is to stay until `down`.
        testcontainers_config.ryuk_disabled = True
        serves = LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(_START_S)
        container = DockerContainer(IMAGE, env=image_environment(port), name=self._name).waiting_for(serves)
        # Docker takes (address, port); testcontainers' own method would open the port to the whole network.
        container.ports[f"{_INSIDE_PORT}/tcp"] = ("127.0.0.1", port)  # type: ignore[assignment]
        try:
            container.start()
        except (DockerException, TimeoutError, RuntimeError) as failure:
            container.stop()
            raise BrokerError("Docker could not run Kafka", f"{type(failure).__name__}; is port {port} free?") from None

    def _container(self) -> Any:  # noqa: ANN401 - docker has no types
        """Find our container; None when it, Docker or our note is gone."""
        if not read_note(self._note):
            return None
        import docker  # noqa: PLC0415 - optional, and slow to import

        try:
            return docker.from_env().containers.get(self._name)
        except docker.errors.DockerException:
            return None


def _listens(address: str) -> bool:
    """Look whether anything takes a connection there, since the docker library leaves its socket open when nothing does."""
    kind, _, place = address.partition("://")
    host, _, port = place.rstrip("/").rpartition(":")
    try:
        if kind != "unix":
            socket.create_connection((host, int(port)), timeout=2).close()
            return True
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(place)
    except (OSError, ValueError):
        return False
    return True
