"""A cluster of Kafka for one test run, from its jars: nodes that are broker and controller, killed, frozen and started again on command.

Every partition has three copies, of which two acknowledge, and so have offsets and transactions: one node may always be away. Each node has
a second listener behind a proxy of its own, for clients whose way is to be harmed.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata  # `admin` shows it, but not to a strict type checker

from dispatcher.adapters.local_broker import LocalBroker
from dispatcher.adapters.local_broker.process import new_cluster_id
from tests.brokers import second_door, watched
from tests.e2e.proxy import Proxy, proxy
from tests.waiting import eventually

COPIES = 3
IN_SYNC_MIN = 2
# Small, since each start on two cores counts: the coordinators are spread over all nodes all the same.
COORDINATOR_PARTITIONS = 6
WHOLE_S = 120
ASK_S = 5

Coordinated = Literal["group", "transaction"]
_STATE = {"group": "__consumer_offsets", "transaction": "__transaction_state"}

# Three Java machines beside workers on two cores: a small heap that one thread collects, and no second compiler.
# Their logs tell when which member of a group came, went or was missed: workers' logs alone do not say why a partition is nobody's.
JAVA_OPTIONS = (
    *("-Xms64m", "-Xmx256m", "-XX:-UseG1GC", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSX",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.coordinator.group=info",
)

PROPERTIES = {
    "default.replication.factor": str(COPIES),
    "min.insync.replicas": str(IN_SYNC_MIN),
    "offsets.topic.replication.factor": str(COPIES),
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "transaction.state.log.replication.factor": str(COPIES),
    "transaction.state.log.min.isr": str(IN_SYNC_MIN),
    "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
    "unclean.leader.election.enable": "false",
    # A node that was killed or stands still is given up after so long; 9 s by default. As long as a worker's session here.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    # Leadership goes back to the node that is meant to have it: after 5 minutes by default, and a run of minutes would never see it.
    "leader.imbalance.check.interval.seconds": "20",
    # How long a node waits for another one that stands still, which holds up a transaction that both have a part in: 30 s by default.
    "request.timeout.ms": "10000",
    # Threads and buffers for three nodes on two cores. The cleaner takes 128 MB by default, half of the heap.
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
}


class Cluster:
    """Nodes 1 to `size`, started together by `up`. Their folders, ports and proxies stay theirs until `close`, whatever happens to them.

    `extra` are further properties of all nodes.
    """

    def __init__(self, folder: Path, size: int = COPIES, extra: Mapping[str, str] | None = None) -> None:
        self._held = ExitStack()
        self.numbers = range(1, size + 1)
        self.ways: list[Proxy] = [self._held.enter_context(proxy()) for _ in self.numbers]
        ports, inside, controllers = ([self._hold() for _ in self.numbers] for _ in range(3))
        together = PROPERTIES | {
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{port}" for n, port in zip(self.numbers, controllers, strict=True))
        }
        cluster = new_cluster_id()
        self._nodes: dict[int, LocalBroker] = {}
        self._doors = dict(zip(self.numbers, inside, strict=True))
        for number, port, door, controller, way in zip(self.numbers, ports, inside, controllers, self.ways, strict=True):
            own = second_door(port, door, way.port, controller) | {"node.id": str(number)} | together | dict(extra or {})
            self._nodes[number] = LocalBroker(
                folder / f"node{number}", port, extra=own, options=JAVA_OPTIONS, cluster=cluster, say=lambda _: None
            )
        self._frozen: set[int] = set()
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.proxied = ",".join(way.address for way in self.ways)
        self._held.enter_context(watched(*self._nodes.values()))
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": ASK_S * 1000, "log_level": 0})

    def up(self) -> Self:
        """Start all nodes, and wait until they are a cluster."""
        for number, way in zip(self.numbers, self.ways, strict=True):
            way.open(self._doors[number])
        self.mend()
        return self

    def close(self) -> None:
        """Kill all nodes, and give back what is theirs. Their data is left to whoever owns the folder."""
        for node in self._nodes.values():
            node.down(grace_s=0)
        self._held.close()

    def kill(self, number: int) -> None:
        """SIGKILL."""
        self._nodes[number].down(grace_s=0)
        self._frozen.discard(number)

    def stop(self, number: int) -> None:
        """SIGTERM: it hands its partitions over and leaves; returns when it is gone."""
        self.thaw(number)
        self._nodes[number].down()

    def freeze(self, number: int) -> None:
        """SIGSTOP. Its connections stay open, and nobody answers."""
        os.kill(self._pid(number), signal.SIGSTOP)
        self._frozen.add(number)

    def thaw(self, number: int) -> None:
        """SIGCONT."""
        if number in self._frozen:
            os.kill(self._pid(number), signal.SIGCONT)
            self._frozen.discard(number)

    def fill(self, number: int) -> None:
        """Let its disk be full: whatever it writes is refused, and it ends by itself; started again it has room."""
        no_bytes = 0
        resource.prlimit(self._pid(number), resource.RLIMIT_FSIZE, (no_bytes, resource.RLIM_INFINITY))

    def start(self, number: int) -> None:
        """Start it again on its data; returns when it serves, which needs one other node. Its copies follow later: `is_whole`."""
        self.thaw(number)
        self._nodes[number].up()

    def alive(self) -> set[int]:
        """Name the nodes that run and do not stand still."""
        return {number for number, node in self._nodes.items() if node.status().state != "down"} - self._frozen

    def mend(self) -> None:
        """Make it whole, whatever was done to it."""
        for way in self.ways:
            way.heal()
        for number in sorted(self._frozen):
            self.thaw(number)
        away = set(self.numbers) - self.alive()
        # Together: one alone is never ready, since a controller needs the vote of another one.
        with ThreadPoolExecutor(len(self.numbers)) as starters:
            list(starters.map(self.start, away))
        eventually(self.is_whole, WHOLE_S, "the cluster is whole")

    def log(self, number: int) -> str:
        """Give what a node has logged since its last start."""
        path = self._nodes[number].status().log
        return path.read_text(errors="replace") if path else ""

    def leader(self, topic: str, partition: int) -> int:
        """Name the node that leads a partition. AssertionError when nobody comes to lead it within a minute."""
        found = eventually(lambda: self._leader(topic, partition), what=f"{topic}/{partition} has a leader")
        assert found is not None
        return found

    def coordinator(self, name: str, kind: Coordinated = "group") -> int:
        """Name the node that coordinates a group, or the transactions of a transactional id, once there was one."""
        return self.leader(_STATE[kind], abs(_java_hash(name)) % COORDINATOR_PARTITIONS)

    def is_whole(self) -> bool:
        """Tell whether all nodes are there and every partition has all its copies in sync."""
        if self.alive() != set(self.numbers) or (seen := self._look()) is None or set(seen.brokers) != set(self.numbers):
            return False
        parts = [part for topic in seen.topics.values() for part in topic.partitions.values()]
        return all(part.leader in part.isrs and len(part.isrs) == len(part.replicas) for part in parts)

    def _leader(self, topic: str, partition: int) -> int | None:
        """Name the leader; None where there is none now. Nodes count from 1."""
        seen = self._look(topic)
        part = seen.topics[topic].partitions.get(partition) if seen is not None else None
        return part.leader if part is not None and part.leader in self.numbers else None

    def _look(self, topic: str | None = None) -> ClusterMetadata | None:
        """Ask any node for what it knows; None where none answers."""
        try:
            return self._admin.list_topics(*([] if topic is None else [topic]), timeout=ASK_S)
        except KafkaException:
            return None

    def _pid(self, number: int) -> int:
        process = self._nodes[number].status().process
        assert process is not None, f"node {number} does not run"
        return int(process)

    def _hold(self) -> int:
        """Bind a port for as long as the cluster lives: while its node is away the system gives it to nobody else.

        Java binds it all the same, since both set SO_REUSEADDR and ours does not listen.
        """
        held = self._held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@contextmanager
def cluster(folder: Path, size: int = COPIES, extra: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Run one for the length of a block; it ends with the block, and with the test run, even when that is killed."""
    made = Cluster(folder, size, extra)
    try:
        yield made.up()
    finally:
        made.close()


def _java_hash(text: str) -> int:
    """Hash a string as Java does, signed: Kafka finds coordinators by it."""
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
