"""What a worker learns from the broker before it begins; and where it does not begin at all, since it could not keep its promises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from dispatcher.adapters.kafka import admin, clients
from dispatcher.adapters.kafka.admin import TopicFacts
from dispatcher.adapters.kafka.clients import GroupProtocol, GroupTimes
from dispatcher.adapters.kafka.unread import Unread, unread_of
from dispatcher.errors import BrokerError, ConfigError
from dispatcher.settings import Settings
from dispatcher.worker.topic_watch import grown

FACTS_TIMEOUT_S = 30.0
# What is left of any reply or dead letter once it is cut twice, its headers included, is shorter than this; and so is what is noted of one.
RECORD_MIN_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a worker learns from the broker before it begins."""

    requests: tuple[TopicFacts, ...]  # in the order of `Settings.request_topics`
    reply_topics: Mapping[str, int]
    limits: Mapping[str, int]  # bytes of one record, per topic that is written
    protocol: GroupProtocol
    times: GroupTimes | None = None  # of the group; None where the broker does not decide, or does not say
    unread: tuple[Unread, ...] = ()  # request topics that nobody reads, and something stands in


def survey(settings: Settings) -> Surroundings:
    """Ask the broker about topics and group protocol. Raises BrokerError or ConfigError where a worker could not keep its promises."""
    topics = settings.topics
    asked = settings.request_topics
    named = (topics.replies, topics.dead_letters, topics.parked, topics.journal, topics.state)
    written = (*named, topics.control, topics.workers)
    ours = (*asked, *written)
    cluster = admin.connect(settings, FACTS_TIMEOUT_S)
    found = admin.facts_of(cluster, {*ours, *topics.reply_topics})
    missing = {*ours, *topics.reply_topics} - set(found)
    if missing:
        raise ConfigError(f"topics are missing: {', '.join(sorted(missing))}", "run `dispatcher topics init`")
    requests = tuple(found[name] for name in asked)
    _refuse_counts(
        requests[0],
        [found[name] for name in (*asked[1:], *named)],
        [found[name] for name in (topics.control, topics.workers)],
    )
    small = (topics.replies, topics.dead_letters, topics.journal, topics.state, topics.control, *topics.reply_topics)
    _refuse_small([found[name] for name in small])
    closed = [name for name in written if not found[name].is_writable]
    if closed:
        raise BrokerError(f"this user may not write {', '.join(closed)}", "grant the right in Kafka's ACLs")
    wanted = settings.worker.protocol
    times = clients.kip848_times(cluster.client) if wanted in {"auto", "consumer"} else None
    classic: GroupProtocol = "eager" if settings.classes else "cooperative"
    protocol = wanted if wanted != "auto" else classic if times is None else "consumer"
    sized = {*named, topics.control, *topics.reply_topics}
    reply_topics = {name: found[name].partitions for name in {topics.replies, *topics.reply_topics}}
    sizes = {name: found[name].max_message_bytes for name in sized}
    unread: tuple[Unread, ...] = ()
    with suppress(BrokerError):  # who may not look there begins all the same
        unread = tuple(unread_of(cluster, settings))
    return Surroundings(requests, reply_topics, sizes, protocol, times, unread)


def _refuse_counts(requests: TopicFacts, beside: Iterable[TopicFacts], single: Iterable[TopicFacts]) -> None:
    """Refuse topics whose partitions do not answer to those of the requests, or that have to be one log and are several."""
    for topic in beside:
        if topic.partitions != requests.partitions:
            hint = "its records go to the request's partition number: make the counts equal"
            if topic.partitions < requests.partitions:
                hint = f"if the request topic was given more: {grown(topic.partitions).hint}"
            raise ConfigError(f"{topic.name} has {topic.partitions} partitions and {requests.name} has {requests.partitions}", hint)
    for topic in single:
        if topic.partitions != 1:
            hint = "delete it, and run `dispatcher topics init`"
            raise ConfigError(f"{topic.name} has {topic.partitions} partitions, and its order needs a single one", hint)


def _refuse_small(written: Iterable[TopicFacts]) -> None:
    """Refuse topics that the shortest of what is written there may not fit into: nothing could be published any more, nor committed."""
    for topic in written:
        if topic.max_message_bytes < RECORD_MIN_BYTES:
            hint = f"raise its max.message.bytes: what is written there, cut as far as it can be, takes up to {RECORD_MIN_BYTES}"
            raise ConfigError(f"{topic.name} takes records of {topic.max_message_bytes} bytes", hint)
