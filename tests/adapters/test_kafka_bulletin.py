"""A bulletin tells the latest, and piles nothing up while Kafka is away."""

from __future__ import annotations

from dispatcher.adapters.kafka.bulletin import Bulletin
from dispatcher.core.messages.record import Message
from dispatcher.settings import Settings

NOBODY = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
WORD = Message("dispatcher.workers", 0, b"0", b"{}", (("content-type", b"application/json"),))


def test_while_one_is_on_its_way_no_further_one_is_sent() -> None:
    """However often: without a broker one message waits in the client, and closing does not wait for it longer than it may."""
    failed: list[str | None] = []
    bulletin = Bulletin(NOBODY, failed.append)
    assert bulletin.tell(WORD)
    assert [False] * 1000 == [bulletin.tell(WORD) for _ in range(1000)]
    bulletin.close(WORD, 0.1)
    assert {name for name in failed if name is not None} <= {"_PURGE_QUEUE", "_PURGE_INFLIGHT"}


def test_what_a_client_cannot_take_is_a_failure_and_no_crash() -> None:
    """A message over every limit."""
    failed: list[str | None] = []
    bulletin = Bulletin(NOBODY, failed.append)
    assert not bulletin.tell(Message(WORD.topic, 0, b"0", b"x" * 64 * 1024 * 1024, ()))
    assert ["MSG_SIZE_TOO_LARGE"] == failed
    assert bulletin.tell(WORD)
    bulletin.close(WORD, 0.1)
