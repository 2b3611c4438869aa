"""A node that leads a partition is gone for good: whoever asked it before finds the one that leads now, and does not wait for it."""

from __future__ import annotations

import pytest

from dispatcher.adapters.kafka.compacted import CompactedReader
from dispatcher.adapters.kafka.inquiry import Inquiry
from dispatcher.errors import BrokerError
from tests.chaos.cluster import Cluster
from tests.sim.contract.worlds import answered
from tests.topics import SettingsFactory
from tests.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.soak]

# The session of a node (6 s), an election, and questions that were under way. The node itself stays away.
FOUND_S = 40


def test_a_reader_of_compacted_topics_finds_the_next_leader(nodes: Cluster, settings: SettingsFactory) -> None:
    """It asks for ends again and again, as restoring does: a client that asks the dead node for ever is replaced."""
    made = settings(partitions=1)
    topic = made.topics.control
    reader = CompactedReader(made)

    def ends() -> dict[int, int] | None:
        try:
            return answered(reader.ends(topic, [0]))
        except BrokerError:
            return None

    assert {0: 0} == eventually(ends, what="the end of the topic")
    nodes.kill(nodes.leader(topic, 0))
    assert {0: 0} == eventually(ends, FOUND_S, "the end of the topic, asked of the next leader")
    reader.close()


async def test_a_client_of_an_event_loop_finds_the_next_leader(nodes: Cluster, settings: SettingsFactory) -> None:
    """Whoever asks for a reply wants to know where its partition ends, before and after the node that leads it is gone."""
    made = settings(partitions=1)
    place = (made.topics.replies, 0)
    inquiry = Inquiry(made, FOUND_S)
    assert {place: 0} == await inquiry.ends([place])
    nodes.kill(nodes.leader(*place))
    assert {place: 0} == await inquiry.ends([place])
    await inquiry.close()
