"""Settings for one test on the run's broker: its own topics and group, removed afterwards."""

from __future__ import annotations

import contextlib
from typing import Any

from confluent_kafka import KafkaException

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.starts import init_topics
from dispatcher.adapters.kafka.topic_plan import plans
from dispatcher.settings import Settings

GROUPS = ("auto", "consumer", "cooperative", "eager")


class GroupProtocol:
    """How this test run's workers run their group, where a test does not say it itself: pytest's `--protocol`."""

    name = "auto"

    @classmethod
    def is_classic(cls) -> bool:
        """Whether members count their session themselves: without their coordinator they take it for lost."""
        return cls.name in {"cooperative", "eager"}

    @classmethod
    def of(cls, sections: dict[str, Any]) -> str:
        """What these settings can have of it: cooperative-sticky knows no siblings, and classes are refused with it."""
        return "eager" if cls.name == "cooperative" and "classes" in sections else cls.name


class SettingsFactory:
    """Makes settings whose topics and group carry one test's prefix, creates the topics, and deletes them at the end.

    `copies` of each partition: more than one where there is a cluster.
    """

    def __init__(self, bootstrap: str, prefix: str, copies: int = 1) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.copies = copies
        self._made: list[Settings] = []

    def __call__(self, *, partitions: int = 3, init: bool = True, **sections: dict[str, Any]) -> Settings:
        """Make settings; `sections` (worker, topics, upstreams, ...) add to the defaults. With `init`, topics and positions exist."""
        given: dict[str, Any] = dict(sections)
        given["kafka"] = {"bootstrap_servers": self.bootstrap} | given.get("kafka", {})
        given["topics"] = {"prefix": self.prefix, "partitions": partitions, "replication_factor": self.copies} | given.get("topics", {})
        ours = {"group": self.prefix, "slot": f"{self.prefix}-0", "http_port": 0, "protocol": GroupProtocol.of(sections)}
        given["worker"] = ours | given.get("worker", {})
        settings = Settings.model_validate(given)
        self._made.append(settings)
        if init:
            init_topics(settings)
        return settings

    def clean(self) -> None:
        """Delete what was made. A broker that is gone has nothing left to delete."""
        names = sorted({name for settings in self._made for name in plans(settings)})
        if not names:
            return
        admin = clients.admin(self._made[0])
        for future in admin.delete_topics(names, request_timeout=10).values():
            with contextlib.suppress(KafkaException):
                future.result(timeout=15)
