"""What the sink says of a producer that is of no use any more, on a real broker."""

from __future__ import annotations

import pytest

from dispatcher.adapters.kafka.sink import Failed, Sink
from dispatcher.core.messages.record import Message
from tests.topics import SettingsFactory
from tests.waiting import eventually


def test_what_a_lost_producer_did_not_write_is_told_and_nothing_else_is_raised(settings: SettingsFactory) -> None:
    """The client raises a fatal error out of poll and flush, in the middle of the reports: a message was counted as written that was not.

    Also what it reports afterwards is fatal, though it carries no flag: the same producer would be asked for ever.
    """
    made = settings(partitions=1)
    limits = {made.topics.replies: made.topics.reply_max_bytes}
    message = Message(made.topics.replies, 0, b"doc:1", b"{}", ())
    lost, heir = (Sink(made, f"{made.topics.prefix}/twin", limits) for _ in range(2))
    lost.open()
    lost.begin()
    lost.produce([message])
    assert eventually(lost.flush)
    heir.open()
    lost.produce([message])
    assert eventually(lost.flush)
    lost.produce([message])
    assert eventually(lost.flush)
    assert [(1, "fatal"), (2, "fatal")] == [(failure.index, failure.kind) for failure in lost.undelivered]
    with pytest.raises(Failed) as caught:
        lost.commit()
    assert caught.value.then == "reopen"
    heir.close()
