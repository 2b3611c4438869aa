"""What the workers' group has committed and parked, made by hand: exactly so, and without a worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import connect, facts_of
from dispatcher.adapters.kafka.group import commit, headways
from dispatcher.client import Submitter, parked, stamp
from dispatcher.core.callees.verdict import Tries
from dispatcher.core.internal.parked import Parked
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.submission import request
from dispatcher.core.progress.commit_note import CommitNote
from dispatcher.core.progress.headway import Headway
from dispatcher.settings import Settings
from tests.waiting import eventually

VALUE = b'{"upstream": "crm", "path": "/x"}'


class Group:
    """A group without workers. Everything is in partition 0 of one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cluster = connect(settings, 30)
        self.facts = facts_of(self.cluster, [settings.topics.requests])[settings.topics.requests]

    def submit(self, count: int) -> None:
        """Submit requests of three keys."""
        with Submitter(self.settings) as submitter:
            for outcome in submitter.submit_many(request(f"doc:{n % 3}", VALUE, stamp(request_id=f"r-{n}")) for n in range(count)):
                assert not isinstance(outcome, Exception), outcome

    def commit(self, position: int, *settled: tuple[int, int], epoch: int = 1, transaction: int = 1) -> None:
        """Commit as a worker does."""
        note = CommitNote(self.facts.topic_id, epoch, transaction, position, settled)
        assert commit(self.cluster, self.settings, {0: (position, note.encode())})

    def park(self, *offsets: int) -> None:
        """Write entries."""
        producer = clients.producer(self.settings)
        for offset in offsets:
            original = Record(self.settings.topics.requests, 0, offset, b"doc:%d" % (offset % 3), VALUE, (), 0)
            message = Parked(original, Tries(1, 1), 0.0, "backoff").message(self.settings.topics.parked, self.facts.topic_id_text)
            producer.produce(message.topic, message.value, message.key, partition=0, headers=list(message.headers))
        assert 0 == producer.flush(30)

    @property
    def headway(self) -> Headway:
        """How far it is."""
        return headways(self.cluster, self.settings, [0], self.facts.topic_id)[0]

    @property
    def entries(self) -> set[int]:
        """What is parked."""
        return set(parked.index(self.settings, self.cluster, [0], self.facts.topic_id_text)[0])

    @contextmanager
    def member(self) -> Iterator[None]:
        """Let somebody join the group, as long as this lasts."""
        consumer = clients.consumer(self.settings, group=self.settings.worker.group, protocol="cooperative")
        consumer.subscribe([self.settings.topics.requests])
        try:
            eventually(lambda: consumer.poll(0.1) is None and consumer.assignment(), what="the partition is assigned")
            yield
        finally:
            consumer.close()


def worked(settings: Settings) -> Group:
    """Settle 0 to 11 and, above them, 13, 14 and 16 of 20 requests; 2, 9 and 14 of them are parked, and 18 is void."""
    made = Group(settings)
    made.submit(20)
    made.commit(12, (13, 15), (16, 17), epoch=7, transaction=40)
    made.park(2, 9, 14, 18)
    return made
