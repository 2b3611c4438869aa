"""The demo's own scene: a configuration, and two child processes, upstream and worker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dispatcher.adapters.local_broker.process import free_port
from dispatcher.demo.load import TEAMS, team
from dispatcher.settings import KafkaSettings
from dispatcher.stage.child import Child
from dispatcher.stage.configuration import Tables
from dispatcher.stage.watch import Watch


@dataclass(frozen=True, slots=True)
class Where:
    """What the demo plays on. `is_mock`: not Kafka but librdkafka's mock cluster."""

    kafka: KafkaSettings
    partitions: int
    is_mock: bool = False


def start_upstream(folder: Path, speed: float, watch: Watch) -> Child:
    """Start the sample upstream on a free port; its first line is its URL."""
    return Child("upstream", ["sample-upstream", "--port", "0", "--speed", str(speed)], folder, watch)


def start_worker(folder: Path, config: Path, watch: Watch, *, on_mock: bool) -> Child:
    """Start one worker."""
    if on_mock:
        return Child("worker", [str(config)], folder, watch, program=("-m", "dispatcher.demo.mock"))
    return Child("worker", ["--config", str(config), "worker"], folder, watch)


def tables(where: Where, prefix: str, upstream_url: str, ordering: str) -> Tables:
    """Configure topics, worker and upstream."""
    aliases = [team(number) for number in range(TEAMS)]
    # The mock cluster forgets positions that are sent into a transaction, and knows classic groups only.
    publishing: dict[str, object] = {"publishing": "at_least_once", "protocol": "cooperative"} if where.is_mock else {}
    return {
        "topics": {"prefix": prefix, "partitions": where.partitions},
        # Calls last tenths of a second here: one in hand is always finished within a drain of 10 s.
        "worker": {"group": prefix, "slot": "demo", "http_port": free_port(), "drain_s": 10, "ordering": ordering, **publishing},
        **{f"credentials.{alias}": {"value": f"Bearer demo-token-of-{alias}"} for alias in aliases},
        "upstreams.sample": {
            "base_url": f"{upstream_url}/v1",
            "credentials": aliases,
            "allow_private": True,
            "call_timeout_s": 9,
            "backoff_base_s": 0.1,  # sped up like everything else
        },
    }
