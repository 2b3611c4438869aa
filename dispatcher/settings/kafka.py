"""Where Kafka is, and what the topics are like."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr, field_validator

from dispatcher.librdkafka import RESERVED_PROPERTIES
from dispatcher.settings.section import MIB, Count, Positive, Section


class KafkaSettings(Section):
    """How to reach Kafka. `properties` are plain librdkafka properties (dotted names), applied to every client."""

    bootstrap_servers: str = "localhost:9092"
    properties: dict[str, SecretStr] = Field(default_factory=dict)

    @field_validator("properties")
    @classmethod
    def _keep_guarantees(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name in value:
            if name in RESERVED_PROPERTIES:
                raise ValueError(f"{name} carries a guarantee and is set by the dispatcher: remove it")
        return value


class TopicSettings(Section):
    """Names, sizes and retention of the topics; `dispatcher topics init` creates them so."""

    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")] = "dispatcher"
    partitions: Count = 12
    replication_factor: Count = 1
    # Topics beside the default one that a request may name for its reply; the sender chooses, so only listed ones are written.
    reply_topics: tuple[str, ...] = ()
    request_max_bytes: Count = 1 * MIB
    reply_max_bytes: Count = 8 * MIB
    dead_letter_max_bytes: Count = 8 * MIB
    request_retention_days: Positive = 7
    reply_retention_days: Positive = 7
    dead_letter_retention_days: Positive = 30

    @property
    def requests(self) -> str:
        return f"{self.prefix}.requests"

    def requests_of(self, name: str) -> str:
        """The request topic of a class."""
        return f"{self.prefix}.requests.{name}"

    @property
    def kind(self) -> str:
        """The class of the requests that `requests` holds; empty where there are no classes."""
        return ""

    @property
    def kinds(self) -> tuple[str, ...]:
        """All classes that there are, where these are the topics of one."""
        return ()

    @property
    def replies(self) -> str:
        return f"{self.prefix}.replies"

    @property
    def dead_letters(self) -> str:
        return f"{self.prefix}.dlq"

    @property
    def parked(self) -> str:
        return f"{self.prefix}.parked"

    @property
    def journal(self) -> str:
        return f"{self.prefix}.journal"

    @property
    def state(self) -> str:
        return f"{self.prefix}.state"

    @property
    def control(self) -> str:
        return f"{self.prefix}.control"

    @property
    def workers(self) -> str:
        return f"{self.prefix}.workers"

    @property
    def parked_max_bytes(self) -> int:
        """A parked request is the request and a little more: where it came from, what was tried, when it is due."""
        return self.request_max_bytes + 64 * 1024

    def of_class(self, name: str, names: tuple[str, ...]) -> TopicSettings:
        """The topics as one class of those that there are has them: its own requests, and all the rest."""
        return ClassTopicSettings.model_construct(**dict(self) | {"class_name": name, "class_names": names})


class ClassTopicSettings(TopicSettings):
    """Those of one class; nobody writes them, they are made of `[topics]`."""

    class_name: str
    class_names: tuple[str, ...]

    @property
    def requests(self) -> str:
        return self.requests_of(self.class_name)

    @property
    def kind(self) -> str:
        return self.class_name

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.class_names
