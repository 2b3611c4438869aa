"""Topics as they are and as they should be: facts, `init_topics`, `check_topics`. Existing topics are compared, never altered."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation  # as below
from confluent_kafka.admin._config import ConfigResource  # `admin` shows it, but not to a strict type checker
from confluent_kafka.cimpl import NewTopic

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.contact import contact
from dispatcher.adapters.kafka.faults import MOVED, Complaints, error_of
from dispatcher.adapters.kafka.topic_plan import plans
from dispatcher.errors import BrokerError, ConfigError, DispatcherError
from dispatcher.settings import Settings

_Answer = TypeVar("_Answer")

# A created topic takes some milliseconds to reach every broker's view, and the first commit of a cluster creates its offsets topic.
_POLL_S = 0.05
_POLL_MAX_S = 1.0
_ATTEMPT_S = 3.0
_SETTLING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        *MOVED,
    }
)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the broker says about a topic. `topic_id` (16 bytes) tells a re-created topic from the old one of the same name."""

    name: str
    topic_id: bytes
    partitions: int
    max_message_bytes: int
    is_writable: bool = True  # as far as the broker tells us what we may do

    @property
    def topic_id_text(self) -> str:
        """The id as Kafka's tools print it: URL-safe base64 without padding."""
        return base64.urlsafe_b64encode(self.topic_id).decode("ascii").rstrip("=")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as the settings say."""

    topic: str
    what: str
    found: str
    wanted: str


@dataclass(slots=True)
class Cluster:
    """A connection that has answered once. A question ends about `timeout_s` later, as an answer or as a sentence.

    `renew` makes another client, in place of one that holds on to a leader of before.
    """

    client: AdminClient
    complaints: Complaints
    timeout_s: float
    renew: Callable[[], AdminClient] | None = None

    def settled(self, question: Callable[[float], Future[_Answer]], doing: str) -> _Answer:
        """Wait for an answer about something that may be new: ask again, each time for at most some seconds, while the cluster settles.

        `question` gets the time in seconds that its request may take, and reads `client` anew each time. One long request is not enough:
        the first question about a group makes a young cluster create its offsets topic; librdkafka looks for the coordinator three times
        within 0.3 s and then says nothing until the request's own time is up.
        """
        # The request ends itself; the second more is for the answer's way here.
        return self.insisted(lambda attempt_s: question(attempt_s).result(timeout=attempt_s + 1), doing)

    def insisted(self, question: Callable[[float], _Answer], doing: str) -> _Answer:
        """Do what `settled` does with a question that waits for its answer itself, and raises KafkaException where it is none."""
        end = time.monotonic() + self.timeout_s
        pause_s = _POLL_S
        while True:
            attempt_s = max(0.1, min(_ATTEMPT_S, end - time.monotonic()))
            try:
                return question(attempt_s)
            except (KafkaException, FutureTimeout) as failure:
                error = error_of(failure)
                silent = error is None or error.code() == KafkaError._TIMED_OUT
                if not (silent or settling(error)) or time.monotonic() >= end:
                    raise self.fault(failure, doing) from None
            if error is not None and error.code() in MOVED and self.renew is not None:
                self.client = self.renew()
            self.client.poll(pause_s)
            pause_s = min(2 * pause_s, _POLL_MAX_S)

    def fault(self, failure: BaseException, doing: str) -> DispatcherError:
        """Say why `doing` failed; the reason may still wait in the error callback, which `poll` runs."""
        self.client.poll(0)
        return self.complaints.fault(failure, doing)


def settling(error: KafkaError | None) -> bool:
    """Say whether a cluster answers so while something new in it settles."""
    return error is not None and error.code() in _SETTLING


def connect(settings: Settings, timeout_s: float) -> Cluster:
    """Reach the cluster within `timeout_s` seconds, or raise BrokerError that says why not."""
    complaints = Complaints(settings)

    def made() -> AdminClient:
        return clients.admin(settings, on_error=complaints.heard)

    client = made()
    try:
        contact(lambda slice_s: client.list_topics(timeout=slice_s), timeout_s)
    except KafkaException as failure:
        client.poll(0)  # the reason waits in the error callback
        raise complaints.fault(failure, "connecting") from None
    return Cluster(client, complaints, timeout_s, made)


def facts(client: AdminClient, names: Iterable[str], timeout_s: float) -> dict[str, TopicFacts]:
    """Describe the topics that exist among `names`; what does not exist is not in the answer. BrokerError when Kafka does not answer."""
    return facts_of(Cluster(client, Complaints(), timeout_s), names)


def facts_of(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicFacts]:
    """Do what `facts` does, with better reasons when it fails."""
    found: dict[str, TopicFacts] = {}
    topics = TopicCollection(list(names))
    asked = cluster.client.describe_topics(topics, include_authorized_operations=True, request_timeout=cluster.timeout_s)
    for name, future in asked.items():
        try:
            topic = future.result(timeout=cluster.timeout_s + 1)
        except (KafkaException, FutureTimeout) as failure:
            error = error_of(failure)
            if error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            raise cluster.fault(failure, f"describing topic {name}") from None
        halves = topic.topic_id.get_most_significant_bits(), topic.topic_id.get_least_significant_bits()
        limit = int(configuration(cluster, name)["max.message.bytes"])
        allowed = topic.authorized_operations
        is_writable = not allowed or AclOperation.WRITE in allowed
        found[name] = TopicFacts(name, struct.pack(">qq", *halves), len(topic.partitions), limit, is_writable)
    return found


def configuration(cluster: Cluster, name: str) -> dict[str, str]:
    """Read a topic's configuration, defaults included."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    entries = cluster.settled(
        lambda attempt_s: cluster.client.describe_configs([resource], request_timeout=attempt_s)[resource],
        f"reading the configuration of topic {name}",
    )
    return {key: str(entry.value) for key, entry in entries.items() if entry.value is not None}


def create_missing(cluster: Cluster, settings: Settings) -> tuple[str, ...]:
    """Create the topics that do not exist, wait until the cluster shows them, and name them."""
    wanted = plans(settings)
    existing = facts_of(cluster, wanted)
    missing = [name for name in wanted if name not in existing]
    if not missing:
        return ()
    replicas = settings.topics.replication_factor
    new = [NewTopic(n, wanted[n].partitions, replicas, config=dict(wanted[n].configuration)) for n in missing]
    for name, future in cluster.client.create_topics(new, request_timeout=cluster.timeout_s).items():
        try:
            future.result(timeout=cluster.timeout_s + 1)
        except (KafkaException, FutureTimeout) as failure:
            _explain_creation(cluster, settings, name, failure)
    _await_visible(cluster, missing)
    return tuple(missing)


def _explain_creation(cluster: Cluster, settings: Settings, name: str, failure: BaseException) -> None:
    """Pass over what another `topics init` has created meanwhile; raise what is wrong otherwise."""
    error = error_of(failure)
    code = error.code() if error is not None else None
    if code == KafkaError.TOPIC_ALREADY_EXISTS:
        return
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        raise ConfigError(
            f"topics.replication_factor is {settings.topics.replication_factor}, and the cluster has fewer brokers", "lower it"
        ) from None
    raise cluster.fault(failure, f"creating topic {name}") from None


def _await_visible(cluster: Cluster, names: list[str]) -> None:
    """Wait until the cluster describes what it has just created."""
    end = time.monotonic() + cluster.timeout_s
    while len(facts_of(cluster, names)) < len(names):
        if time.monotonic() > end:
            raise BrokerError("the cluster does not show the topics that it created", "run `dispatcher topics check` in a minute")
        cluster.client.poll(_POLL_S)


def differences(cluster: Cluster, settings: Settings) -> list[Difference]:
    """Compare the topics with the settings: missing ones, partition counts, sizes, retention, policy."""
    wanted = plans(settings)
    existing = facts_of(cluster, wanted)
    found: list[Difference] = []
    for name, plan in wanted.items():
        if name not in existing:
            found.append(Difference(name, "topic", "missing", "exists"))
            continue
        if existing[name].partitions != plan.partitions:
            found.append(Difference(name, "partitions", str(existing[name].partitions), str(plan.partitions)))
        found += _configured(name, configuration(cluster, name), plan.configuration)
    return found


def _configured(name: str, found: Mapping[str, str], want: Mapping[str, str]) -> list[Difference]:
    """Compare one topic's configuration. More in-sync replicas than wanted only make it safer."""
    return [
        Difference(name, key, found.get(key, "unset"), value)
        for key, value in want.items()
        if found.get(key) != value and not (key == "min.insync.replicas" and int(found.get(key, "0")) >= int(value))
    ]
