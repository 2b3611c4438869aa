"""Topics beside those of `topics init`, and what an operator does to topics while workers run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from dispatcher.settings import Settings
from tests.topics import SettingsFactory
from tests.waiting import eventually


@contextlib.contextmanager
def made_topic(factory: SettingsFactory, name: str, *, partitions: int, max_message_bytes: int | None = None) -> Iterator[None]:
    """Create a topic, and delete it at the end if it is still there."""
    admin = AdminClient({"bootstrap.servers": factory.bootstrap})
    create(admin, name, partitions, max_message_bytes)
    try:
        yield
    finally:
        with contextlib.suppress(KafkaException):
            admin.delete_topics([name])[name].result(timeout=15)


def create(admin: AdminClient, name: str, partitions: int, max_message_bytes: int | None = None) -> None:
    """Create a topic and wait until the broker shows it; one that was deleted a moment ago may still be in the way."""
    config = {} if max_message_bytes is None else {"max.message.bytes": str(max_message_bytes)}

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)])[name].result(timeout=15)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    eventually(created, 30, f"topic {name} is created")
    eventually(lambda: exists(admin, name), 30, f"topic {name} is shown")


def delete(admin: AdminClient, name: str) -> None:
    """Delete a topic and wait until the broker shows it no more."""
    admin.delete_topics([name])[name].result(timeout=15)
    eventually(lambda: not exists(admin, name), 30, f"topic {name} is gone")


def exists(admin: AdminClient, name: str) -> bool:
    """Say whether the broker shows a topic."""
    try:
        admin.describe_topics(TopicCollection([name]))[name].result(timeout=15)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return False
    return True


def limit(settings: Settings, name: str, max_message_bytes: int) -> None:
    """Change a topic's largest batch."""
    configure(settings, name, {"max.message.bytes": str(max_message_bytes)})


def configure(settings: Settings, name: str, config: Mapping[str, str]) -> None:
    """Change a topic's configuration."""
    admin = connected(settings)
    entries = [ConfigEntry(what, to, incremental_operation=AlterConfigOpType.SET) for what, to in config.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(timeout=15)


def connected(settings: Settings) -> AdminClient:
    """Make an admin client of no settings but the address."""
    return AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})


def grow(admin: AdminClient, name: str, partitions: int) -> None:
    """Give a topic more partitions."""
    admin.create_partitions([NewPartitions(name, partitions)])[name].result(timeout=15)


def trim(settings: Settings, partition: int, before: int) -> None:
    """Remove the requests of a partition that stand before an offset, as retention does."""
    part = TopicPartition(settings.topics.requests, partition, before)
    admin = connected(settings)
    admin.delete_records([part])[part].result(timeout=15)


def forget(settings: Settings) -> None:
    """Delete the workers' group with its positions, as Kafka does with one that has had no member for long."""
    admin, group = connected(settings), settings.worker.group

    def forgotten() -> bool:
        try:
            admin.delete_consumer_groups([group])[group].result(timeout=15)
        except KafkaException as failure:
            # A member that has just left may still count.
            if failure.args[0].code() != KafkaError.NON_EMPTY_GROUP:
                raise
            return False
        return True

    eventually(forgotten, 30, "the group is deleted")


def move(settings: Settings, positions: Mapping[int, int], metadata: str = "") -> None:
    """Move the group's positions, as another tool does while no worker runs."""
    parts = [TopicPartition(settings.topics.requests, n, position, metadata) for n, position in positions.items()]
    admin, group = connected(settings), settings.worker.group

    def moved() -> bool:
        try:
            admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, parts)])[group].result(timeout=15)
        except KafkaException as failure:
            if failure.args[0].code() not in {KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}:
                raise
            return False
        return True

    eventually(moved, 30, "the positions are moved")
