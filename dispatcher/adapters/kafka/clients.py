"""Every Kafka client of the product is made here: the user's properties, our defaults, and the properties that carry guarantees.

Three layers, the later wins: our defaults (a user may tune them), `[kafka]` of the settings, the guarantees. What librdkafka does not
accept becomes a `ConfigError` that names the property and never shows a value, since a value may be a password.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, as_completed
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigEntry, ConfigResource  # `admin` shows it, but not to a strict type checker

from dispatcher.adapters.kafka.faults import Complaints
from dispatcher.adapters.kafka.producer import SteadyProducer
from dispatcher.errors import BrokerAway, ConfigError
from dispatcher.settings import MIB, Settings

GroupProtocol = Literal["consumer", "cooperative", "eager"]
Isolation = Literal["read_committed", "read_uncommitted"]
OnError = Callable[[KafkaError], None]
Properties = dict[str, Any]
_Client = TypeVar("_Client", Consumer, SteadyProducer, AdminClient)

# librdkafka's own log lines. Silent until a program gives it a handler: stderr of a command is for sentences.
LOG = logging.getLogger("dispatcher.kafka")
LOG.addHandler(logging.NullHandler())

# Keys, headers and framing of a record whose value fills its topic's limit. The exact check is the broker's, and ours before produce:
# librdkafka's must never be the stricter one.
_FRAMING_SLACK_BYTES = 1 * MIB
# librdkafka's own batch size. The broker holds a topic's limit against the *batch*, so a batch must never be larger than a limit.
_BATCH_BYTES = 1_000_000
# Bytes that wait in one producer. librdkafka's default (1 GiB) is a memory leak in all but name; callers see BufferError and wait.
_PRODUCER_QUEUE_KIB = 64 * 1024
_PRODUCER_QUEUE_MESSAGES = 100_000
# What a reader fetches ahead: it reads all of it, so only memory bounds it.
_PREFETCH_KIB = 16 * 1024
_PREFETCH_MESSAGES = 10_000
# What a worker fetches ahead. Its own buffers are the look-ahead; where a backlog is deep they are full most of the time, and partitions
# are paused and resumed again and again. A pause throws away what was fetched ahead and the answer that is under way. So the worker first
# takes what was fetched (`worker/brakes.py`), and one answer is enough to stop the fetcher, for so long that the pause comes before the
# next fetch. Bytes fetched per byte in the log, 12 partitions with 4,000 records of room: 1.4 to 1.9 with a reader's figures, 1.04 to
# 1.08 with these. What all partitions can get is a thousand records or a MiB in 100 ms, far more than calls take.
_GROUP_PREFETCH_KIB = 1024
_GROUP_PREFETCH_MESSAGES = 1000
_GROUP_FETCH_BACKOFF_MS = 100
# One answer of a broker, of all partitions together. It is counted as the log has it, and unpacked whole before anybody can count what that
# makes: 1,500 requests of 1 MB are 411 kB of the log where they repeat themselves (zstd), and came at once, 1.5 GB. Of this size 240 of
# them come at once. Less would have to be asked for more often than pays; more costs memory. An answer is cut off in the middle of a batch,
# and the rest of that is fetched again: up to 2 bytes per byte in the log where batches are a little larger than half of this. A batch
# beyond this size comes whole, alone.
_GROUP_FETCH_BYTES = 64 * 1024
# librdkafka refuses to fetch less than this at once: it is of no other use to a consumer.
_CONSUMER_MESSAGE_BYTES = 1000
# How long one request may go unanswered.
_SOCKET_MS = 10_000
# How long an admin client believes in the leaders that it knows. No answer corrects it where a leader is dead: with librdkafka's 15 minutes
# every question about its partitions was in vain until it came back, and cost half a CPU in refused connections.
_LEADERS_MS = 2_000
# A group id for consumers that assign their partitions themselves: nothing is committed under it, no group is created.
_GROUPLESS = "dispatcher-reader"
# Classic groups only (under KIP-848 the broker decides): what our own brokers set for KIP-848, so that takeover takes the same time.
_CLASSIC_SESSION_S = 6
_CLASSIC_HEARTBEAT_S = 2

_STRATEGIES = {"cooperative": "cooperative-sticky", "eager": "range"}


def producer(
    settings: Settings,
    *,
    transactional_id: str | None = None,
    linger_ms: float = 0,
    delivery_timeout_s: float = 120,
    batch_max_bytes: int | None = None,
    on_error: OnError | None = None,
    logger: logging.Logger = LOG,
) -> Producer:
    """Make an idempotent, murmur2 producer; with a `transactional_id` a transactional one (the caller inits transactions).

    `delivery_timeout_s` is for the plain one: 120 s (Java's default) survives a leader election; after it the fate of the record is
    unknown and the caller says so. A transactional one takes the transaction's timeout instead, the most that librdkafka allows:
    a delivery that gives up earlier would abort everybody's outcomes for nothing. `batch_max_bytes`: the smallest limit of the topics
    that are written, where it is known better than by the settings.
    """
    limits = settings.topics
    largest = max(limits.parked_max_bytes, limits.reply_max_bytes, limits.dead_letter_max_bytes)  # parked ones are larger than requests
    smallest = min(limits.request_max_bytes, limits.reply_max_bytes, limits.dead_letter_max_bytes)
    guarantees: Properties = {
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "message.max.bytes": largest + _FRAMING_SLACK_BYTES,
        "batch.size": min(_BATCH_BYTES, smallest, batch_max_bytes or smallest),
        "message.timeout.ms": _ms(delivery_timeout_s),
    }
    defaults: Properties = {
        "linger.ms": linger_ms,
        # How long a topic may be unknown before it counts as gone. New topics are shown within a second; with the default of 30 s one
        # topic that somebody deleted would hold up everybody's records for as long.
        "topic.metadata.propagation.max.ms": 5_000,
        "queue.buffering.max.messages": _PRODUCER_QUEUE_MESSAGES,
        "queue.buffering.max.kbytes": max(_PRODUCER_QUEUE_KIB, 2 * (largest + _FRAMING_SLACK_BYTES) // 1024),
    }
    if transactional_id is not None:
        timeout_ms = _ms(settings.worker.transaction_timeout_s)
        guarantees |= {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,
        }
        defaults |= {
            # The broker answers CONCURRENT_TRANSACTIONS while it still writes the last one's markers, and librdkafka then sleeps one
            # whole back-off: 13 transactions a second at the default 100 ms, 156 at 2 ms.
            "retry.backoff.ms": 2,
            # librdkafka refuses to wait longer for one answer than the transaction may take.
            "socket.timeout.ms": min(_SOCKET_MS, timeout_ms),
        }
    return _made(SteadyProducer, settings, on_error=on_error, logger=logger, guarantees=guarantees, defaults=defaults)


def consumer(
    settings: Settings,
    *,
    group: str | None = None,
    protocol: GroupProtocol = "consumer",
    instance: str | None = None,
    isolation: Isolation = "read_committed",
    fetch_wait_ms: int = 500,
    on_error: OnError | None = None,
    logger: logging.Logger = LOG,
) -> Consumer:
    """Make a consumer that commits nothing by itself, never jumps to another offset, and reports the end of each partition.

    Without a `group` it is for `assign` with explicit offsets only. With one, `protocol` says how the group is run: `consumer` is
    KIP-848 (the broker assigns, and owns the session timeout), `cooperative` and `eager` are classic; `instance` is the member's own name
    in it (static membership), which one that only asks must not have. `fetch_wait_ms` (default: librdkafka's) is how long the broker may
    sit on a fetch without records; a partition that is added meanwhile waits for that fetch. Whoever has a group pauses partitions, and
    fetches little ahead.
    """
    guarantees: Properties = {
        "group.id": group or _GROUPLESS,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "max.poll.interval.ms": _ms(settings.worker.max_poll_interval_s),
        "message.max.bytes": _CONSUMER_MESSAGE_BYTES,
    }
    defaults: Properties = {
        "queued.max.messages.kbytes": _PREFETCH_KIB,
        "queued.min.messages": _PREFETCH_MESSAGES,
        # How long a full prefetch queue keeps the fetcher asleep: the default of 1 s stops a fast reader once a second.
        "fetch.queue.backoff.ms": 20,
        "fetch.wait.max.ms": fetch_wait_ms,
        "allow.auto.create.topics": False,
    }
    if group is not None:
        guarantees |= _group_properties(protocol, has_siblings=bool(settings.classes))
        if instance is not None:
            guarantees["group.instance.id"] = instance
        defaults |= {
            "queued.max.messages.kbytes": _GROUP_PREFETCH_KIB,
            "queued.min.messages": _GROUP_PREFETCH_MESSAGES,
            "fetch.queue.backoff.ms": _GROUP_FETCH_BACKOFF_MS,
            "max.partition.fetch.bytes": _GROUP_FETCH_BYTES,
            "fetch.max.bytes": _GROUP_FETCH_BYTES,
        }
    if group is None or protocol != "consumer":
        # A reader without a group is a classic client too: its session must not be longer than a poll interval that the user shortened.
        defaults |= {"session.timeout.ms": _CLASSIC_SESSION_S * 1000, "heartbeat.interval.ms": _CLASSIC_HEARTBEAT_S * 1000}
    return _made(Consumer, settings, on_error=on_error, logger=logger, guarantees=guarantees, defaults=defaults)


def admin(settings: Settings, *, on_error: OnError | None = None, logger: logging.Logger = LOG) -> AdminClient:
    """Make an admin client. Its `on_error` runs inside `poll`, which nobody calls for the owner."""
    defaults: Properties = {"metadata.max.age.ms": _LEADERS_MS}
    return _made(AdminClient, settings, on_error=on_error, logger=logger, defaults=defaults)


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """How long a KIP-848 group waits for a member that is silent, and how often it hears of one, seconds; the brokers say so."""

    session_s: float
    heartbeat_s: float


def kip848_times(client: AdminClient, timeout_s: float = 5) -> GroupTimes | None:
    """Ask the brokers for the times of KIP-848 groups; None where that protocol is not to be had.

    Older brokers have no such setting, a mock cluster describes nothing, and without the right to describe a broker we cannot know: all of
    them mean a classic group. Silence means nothing: BrokerAway where no broker answers in time. One that died is listed for a while.
    """
    asking, complaints = "asking for Kafka's group protocols", Complaints()
    try:
        asked = [_config_of(client, number, timeout_s) for number in client.list_topics(timeout=timeout_s).brokers]
        for answer in as_completed(asked, timeout_s + 1):
            try:
                return _kip848_times(answer.result())
            except KafkaException as failure:
                if not isinstance(complaints.fault(failure, asking), BrokerAway):
                    return None
    except (KafkaException, FutureTimeout) as failure:
        raise complaints.fault(failure, asking) from None
    raise complaints.explain(None, asking)


def _config_of(client: AdminClient, broker: int, timeout_s: float) -> Future[dict[str, ConfigEntry]]:
    resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
    return client.describe_configs([resource], request_timeout=timeout_s)[resource]


def _kip848_times(config: Mapping[str, ConfigEntry]) -> GroupTimes | None:
    protocols, timeout = config.get("group.coordinator.rebalance.protocols"), config.get("group.consumer.session.timeout.ms")
    interval = config.get("group.consumer.heartbeat.interval.ms")
    # Kafka 3.7 to 3.9 know the setting while the protocol is off; a version that has dropped the list has it on.
    if timeout is None or interval is None or (protocols is not None and "consumer" not in str(protocols.value).split(",")):
        return None
    return GroupTimes(int(str(timeout.value)) / 1000, int(str(interval.value)) / 1000)


def _group_properties(protocol: GroupProtocol, *, has_siblings: bool) -> Properties:
    """Say how a group is run. KIP-848 clients refuse to start when a classic property stands beside it.

    `has_siblings`: partitions of one number, of several topics, need one owner. Both assignors that are called range do that.
    """
    if protocol == "consumer":
        return {"group.protocol": "consumer", **({"group.remote.assignor": "range"} if has_siblings else {})}
    return {"group.protocol": "classic", "partition.assignment.strategy": _STRATEGIES[protocol]}


def _connection(settings: Settings) -> Properties:
    """Defaults of every client: notice a dead broker in seconds, come back within two of its return."""
    return {
        "client.id": f"dispatcher-{settings.worker.slot}",
        "socket.timeout.ms": _SOCKET_MS,
        "socket.connection.setup.timeout.ms": 10_000,
        "socket.keepalive.enable": True,
        "socket.nagle.disable": True,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 2_000,
    }


def _made(
    kind: type[_Client],
    settings: Settings,
    *,
    on_error: OnError | None,
    logger: logging.Logger,
    guarantees: Properties | None = None,
    defaults: Properties | None = None,
) -> _Client:
    """Merge the layers and make the client; a property that is refused becomes a sentence about that property."""
    given = {name: value.get_secret_value() for name, value in settings.kafka.properties.items()}
    merged: Properties = _connection(settings) | (defaults or {}) | given | (guarantees or {})
    merged["bootstrap.servers"] = settings.kafka.bootstrap_servers
    if on_error is not None:
        merged["error_cb"] = on_error
    try:
        return kind(merged, logger=logger)
    except KafkaException as error:
        text = error.args[0].str() if error.args and isinstance(error.args[0], KafkaError) else ""
        raise _refused(text, given) from None
    except (TypeError, ValueError) as error:
        raise _refused(str(error), given) from None


def _refused(text: str, given: Mapping[str, str]) -> ConfigError:
    """Say which property librdkafka refused. Its own text is searched for names and not shown: it quotes values."""
    unknown = re.match(r'No such configuration property: "([A-Za-z0-9._-]+)"', text)
    if unknown:
        return ConfigError(f"Kafka has no client property {unknown[1]}", "look it up in librdkafka's CONFIGURATION.md, or remove it")
    quoted = re.search(r'onfiguration property "([A-Za-z0-9._-]+)"', text)
    if quoted:
        alias = "" if quoted[1] in given else " (librdkafka's name; you may have used another for it)"
        return ConfigError(f"the value of the Kafka property {quoted[1]}{alias} is not acceptable", "see librdkafka's CONFIGURATION.md")
    named = [name for name in sorted(given) if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", text)]
    missing = [name for name in ("sasl.username", "sasl.password") if name in text and name not in given]
    if missing:
        return ConfigError(f"the Kafka properties {' and '.join(missing)} are missing", "set them under [kafka] or with -X")
    if named:
        return ConfigError(
            f"the Kafka property {', '.join(named)} cannot be used like this",
            "a file may be unreadable, or the group's protocol forbids it",
        )
    names = ", ".join(sorted(given)) or "none given"
    return ConfigError(
        f"librdkafka refused these Kafka properties together: {names}", "check them one by one in librdkafka's CONFIGURATION.md"
    )


def _ms(seconds: float) -> int:
    """Whole milliseconds, at least one."""
    return max(1, round(seconds * 1000))
