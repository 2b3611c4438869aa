"""Which of the topics that ever had the request topic's name is there now: positions in the others are other requests."""

from __future__ import annotations

from dispatcher.adapters.kafka import admin
from dispatcher.adapters.kafka.log import no_topic
from dispatcher.core.messages.envelope import TOPIC_ID_SHOWN
from dispatcher.settings import Settings


def short_topic_id(settings: Settings, topic: str, timeout_s: float) -> str:
    """Ask for the beginning of a request topic's id. ConfigError where there is no such topic, BrokerError. Blocks."""
    facts = admin.facts_of(admin.connect(settings, timeout_s), [topic])
    if topic not in facts:
        raise no_topic(topic)
    return facts[topic].topic_id_text[:TOPIC_ID_SHOWN]
