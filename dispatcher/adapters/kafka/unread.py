"""Request topics of ours that no worker reads, by these settings, though requests stand in them.

Requests of before there were classes, or of a class that is none any more: they stand there in silence until retention takes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from dispatcher.adapters.kafka.admin import Cluster, Difference, connect, facts_of
from dispatcher.adapters.kafka.group import headways
from dispatcher.adapters.kafka.starts import log_edges
from dispatcher.settings import Settings
from dispatcher.settings.classes import ClassName

_NAME = TypeAdapter[str](ClassName)


@dataclass(frozen=True, slots=True)
class Unread:
    """One such topic, and how many offsets there are between the group's position and its end: at most so many requests."""

    topic: str
    requests: int

    @property
    def hint(self) -> str:
        """What to do."""
        return "let workers read it empty, with the classes that it was written for; or send its requests again to a topic that is read"


def unread_of(cluster: Cluster, settings: Settings) -> list[Unread]:
    """Look for them. Of all classes, or where there are none: `settings` are not those of one class. Errors: BrokerError."""
    common = settings.topics.requests
    listed = cluster.insisted(lambda attempt_s: cluster.client.list_topics(timeout=attempt_s).topics, "listing the topics")
    views = {} if common in settings.request_topics else {common: settings}
    for name in sorted(listed):
        kind = name.removeprefix(f"{common}.")
        if kind != name and name not in settings.request_topics and _is_class(kind):
            views[name] = settings.of_class(kind)
    found = [Unread(name, _left(cluster, view)) for name, view in views.items() if name in listed]
    return [one for one in found if one.requests]


def check_unread(settings: Settings, timeout_s: float = 30) -> list[Difference]:
    """The same as what is not as it should be: nobody will answer those requests. Errors: BrokerError."""
    found = unread_of(connect(settings, timeout_s), settings)
    return [Difference(one.topic, "requests that nobody reads", f"up to {one.requests}", "none") for one in found]


def _left(cluster: Cluster, view: Settings) -> int:
    topic = view.topics.requests
    facts = facts_of(cluster, [topic]).get(topic)
    if facts is None:
        return 0
    numbers = list(range(facts.partitions))
    reached = headways(cluster, view, numbers, facts.topic_id)
    first, end = (log_edges(cluster, topic, numbers, edge) for edge in ("earliest", "latest"))
    return sum(max(0, end[n] - max(first[n], reached[n].position or 0)) for n in numbers)


def _is_class(name: str) -> bool:
    try:
        _NAME.validate_python(name)
    except ValidationError:
        return False
    return True
