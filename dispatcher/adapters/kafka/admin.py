"""Topics as they are and as they should be: facts, `init_topics`, `check_topics`. Existing topics are compared, never altered."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation  # as below
from confluent_kafka.admin._config import ConfigResource  # `admin` shows it, but not to a strict type checker
from confluent_kafka.admin._topic import TopicDescription  # as above
from confluent_kafka.cimpl import NewTopic

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.contact import contact
from dispatcher.adapters.kafka.faults import MOVED, Complaints, error_of
from dispatcher.adapters.kafka.topic_plan import plans
from dispatcher.core.progress.strand import id_text
from dispatcher.errors import BrokerError, ConfigError, DispatcherError
from dispatcher.settings import Settings

_Answer = TypeVar("_Answer")

# A created topic takes some milliseconds to reach every broker's view, and the first commit of a cluster creates its offsets topic.
_POLL_S = 0.05
_POLL_MAX_S = 1.0
_ATTEMPT_S = 3.0
# A step of a question that is asked beside other things.
STEP_S = 0.01
# Without any answer for so long, and that is less than one attempt, who is asked may be dead or stand still.
SILENCE_S = 2.5
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
        return id_text(self.topic_id)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as the settings say."""

    topic: str
    what: str
    found: str
    wanted: str


@dataclass(slots=True)
class Cluster:
    """A connection for questions. Each ends about `timeout_s` later, as an answer or as a sentence.

    `renew` makes another client, in place of one that holds on to a broker of before: to a leader, or to whoever told it last which brokers
    there are. Where that one is dead or stands still, librdkafka 2.16 asks nobody else by itself.
    """

    client: AdminClient
    complaints: Complaints
    timeout_s: float
    renew: Callable[[], AdminClient] | None = None
    _silent_since: float | None = None

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

        def at_once(attempt_s: float) -> Generator[bool, None, _Answer]:
            yield from ()
            return question(attempt_s)

        steps = self.insisting(at_once, doing)
        while True:
            try:
                next(steps)
            except StopIteration as told:
                answer: _Answer = told.value
                return answer

    def insisting(self, question: Callable[[float], Generator[bool, None, _Answer]], doing: str) -> Generator[bool, None, _Answer]:
        """Do what `insisted` does with a question that waits in steps, as this does: each yields True, a moment later."""
        end = time.monotonic() + self.timeout_s
        pause_s = _POLL_S
        while True:
            began = time.monotonic()
            attempt_s = max(0.1, min(_ATTEMPT_S, end - began))
            try:
                answer = yield from question(attempt_s)
            except (KafkaException, FutureTimeout) as failure:
                self._weigh(failure, doing, began, end)
            else:
                self._silent_since = None
                return answer
            resumes = time.monotonic() + pause_s
            while (left_s := resumes - time.monotonic()) > 0:
                self.client.poll(min(STEP_S, left_s))
                yield True
            pause_s = min(2 * pause_s, _POLL_MAX_S)

    def _weigh(self, failure: BaseException, doing: str, began: float, end: float) -> None:
        """Raise what a failure means, unless another attempt may help and there is time for one."""
        error = error_of(failure)
        silent = error is None or error.code() == KafkaError._TIMED_OUT
        fault = None if (silent or settling(error)) and time.monotonic() < end else self.fault(failure, doing)
        self._silent_since = (self._silent_since or began) if silent else None
        self._renew_what_holds_on(error)
        if fault is not None:
            raise fault from None

    def _renew_what_holds_on(self, error: KafkaError | None) -> None:
        """Take another client where this one may be wrong for good: it says so itself, or nothing came for long."""
        is_silent = self._silent_since is not None and time.monotonic() - self._silent_since >= SILENCE_S
        if self.renew is not None and (is_silent or (error is not None and error.code() in MOVED)):
            self.client.poll(0)  # why it is silent may wait in the error callback
            self.client = self.renew()
            self._silent_since = None

    def fault(self, failure: BaseException, doing: str) -> DispatcherError:
        """Say why `doing` failed; the reason may still wait in the error callback, which `poll` runs."""
        self.client.poll(0)
        return self.complaints.fault(failure, doing)


def settling(error: KafkaError | None) -> bool:
    """Say whether a cluster answers so while something new in it settles."""
    return error is not None and error.code() in _SETTLING


def untried(settings: Settings, timeout_s: float, *, logger: logging.Logger = clients.LOG) -> Cluster:
    """Make a connection without a word to anybody yet."""
    complaints = Complaints(settings)

    def made() -> AdminClient:
        return clients.admin(settings, on_error=complaints.heard, logger=logger)

    return Cluster(made(), complaints, timeout_s, made)


def connect(settings: Settings, timeout_s: float) -> Cluster:
    """Reach the cluster within `timeout_s` seconds, or raise BrokerError that says why not."""
    cluster = untried(settings, timeout_s)
    try:
        contact(lambda slice_s: cluster.client.list_topics(timeout=slice_s), timeout_s)
    except KafkaException as failure:
        raise cluster.fault(failure, "connecting") from None
    return cluster


def facts_of(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicFacts]:
    """Describe the topics that exist among `names`; what does not exist is not in the answer. BrokerError when Kafka does not answer."""
    wanted = list(names)
    described = cluster.insisted(lambda attempt_s: _described(cluster.client, wanted, attempt_s), f"describing {', '.join(wanted)}")
    return {name: _facts(cluster, name, topic) for name, topic in described.items()}


def missing_of(cluster: Cluster, names: Iterable[str]) -> frozenset[str]:
    """Tell which topics do not exist. BrokerError when Kafka does not answer."""
    wanted = list(names)
    described = cluster.insisted(lambda attempt_s: _described(cluster.client, wanted, attempt_s), f"describing {', '.join(wanted)}")
    return frozenset(wanted) - described.keys()


def _described(client: AdminClient, names: list[str], attempt_s: float) -> dict[str, TopicDescription]:
    """Ask once. Raises KafkaException."""
    asked = client.describe_topics(TopicCollection(names), include_authorized_operations=True, request_timeout=attempt_s)
    found: dict[str, TopicDescription] = {}
    for name, answer in asked.items():
        try:
            found[name] = answer.result(timeout=attempt_s + 1)
        except KafkaException as failure:
            error = error_of(failure)
            if error is None or error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    return found


def _facts(cluster: Cluster, name: str, topic: TopicDescription) -> TopicFacts:
    limit = int(configuration(cluster, name)["max.message.bytes"])
    allowed = topic.authorized_operations
    is_writable = not allowed or AclOperation.WRITE in allowed
    return TopicFacts(name, id_of(topic), len(topic.partitions), limit, is_writable)


def id_of(topic: TopicDescription) -> bytes:
    """Give a topic's id, 16 bytes."""
    topic_id: Any = topic.topic_id  # their stub does not tell what it can do
    return struct.pack(">qq", topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())


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
    await_visible(cluster, missing)
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


def await_visible(cluster: Cluster, names: list[str]) -> dict[str, TopicFacts]:
    """Describe topics that exist: nodes hear of what has just been created one after another, and any of them may be asked."""
    end = time.monotonic() + cluster.timeout_s
    while len(found := facts_of(cluster, names)) < len(names):
        if time.monotonic() > end:
            raise BrokerError("the cluster does not show the topics that it created", "run `dispatcher topics check` in a minute")
        cluster.client.poll(_POLL_S)
    return found


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
