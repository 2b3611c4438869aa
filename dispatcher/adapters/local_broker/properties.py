"""Settings of our own brokers (demo, tests, compose), with the reason for each that is not Kafka's default."""

from __future__ import annotations

KAFKA_VERSION = "4.4.0"
IMAGE = f"apache/kafka:{KAFKA_VERSION}"
DEFAULT_PORT = 9092

# The same on every rung. A takeover takes session timeout + transaction timeout + the sweep below.
COMMON = {
    # One broker: its own topics cannot have three replicas.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # 50 each by default: a second of every first start.
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    # A first member waits 3 s for others by default.
    "group.initial.rebalance.delay.ms": "0",
    # A killed worker is missed after 6 s instead of 45 s; the minimum has to allow it.
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "2000",
    "group.min.session.timeout.ms": "6000",
    # How often the broker looks for transactions past their timeout. By default every 10 s: a killed worker's open transaction hides
    # the replies of others until then, and the takeover promise counts this sweep.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    # A mistyped topic name is an error, not a topic with the wrong partition count.
    "auto.create.topics.enable": "false",
}


def jar_properties(port: int, controller_port: int, data: str) -> dict[str, str]:
    """Configure one node that is broker and controller, reachable from this machine alone."""
    return COMMON | {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": data,
    }


def image_environment(port: int) -> dict[str, str]:
    """Configure the container: inside it listens on 9092; clients on this machine come through `port`."""
    properties = COMMON | {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:29093",
        "listeners": "HOST://:9092,INSIDE://:29092,CONTROLLER://:29093",
        "advertised.listeners": f"HOST://127.0.0.1:{port},INSIDE://localhost:29092",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INSIDE",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,HOST:PLAINTEXT,INSIDE:PLAINTEXT",
    }
    return {environment_name(name): value for name, value in properties.items()}


def environment_name(name: str) -> str:
    """Spell a property as the image's environment variable."""
    return "KAFKA_" + name.replace(".", "_").upper()
