"""A broker that forgets a producer which is quiet for a moment, and that an operator can tell who may do what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from dispatcher import AskTimeout, BrokerError, Call, Dispatcher, DispatcherError
from dispatcher.adapters.local_broker import LocalBroker
from tests.brokers import tied
from tests.e2e import operator
from tests.e2e.stage import Stage, assert_all_is_well, stage
from tests.topics import SettingsFactory
from tests.waiting import let_pass

CANNOT = 3
FORGETS_MS = 1000
STRICT = {
    # A week and an hour by default.
    "transactional.id.expiration.ms": str(FORGETS_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
    # A day and ten minutes by default.
    "producer.id.expiration.ms": str(FORGETS_MS),
    "producer.id.expiration.check.interval.ms": "300",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def strict(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run it (asking for `kafka` marks the tests as ones that need a broker)."""
    with tied(LocalBroker(tmp_path_factory.mktemp("strict"), extra=STRICT)) as bootstrap:
        yield bootstrap


def _after_a_pause(set_up: Stage, names: list[str]) -> None:
    """Be quiet for longer than the broker remembers, then send one request more."""
    let_pass(2.5 * FORGETS_MS / 1000, "the broker has forgotten who was quiet")
    names += set_up.submit(["doc:1"], prefix=f"pause{len(names)}")


def test_a_transactional_id_that_expired_is_made_anew(strict: str, tmp_path: Path, prefix: str) -> None:
    """The broker has forgotten the id, and refuses it: a new producer publishes what was ready, once, without a second call."""
    with stage(SettingsFactory(strict, prefix), tmp_path, partitions=1) as set_up:
        replies, names = set_up.replies(), set_up.submit(["doc:1"])
        running = set_up.worker().ready()
        while not (refused := [event["error_type"] for event in running.events("publish_failed")]):
            replies.await_count(len(names))
            _after_a_pause(set_up, names)
            assert len(names) < 12, "the broker forgets nothing"
        print("the broker said", refused)
        assert set(refused) & {"INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_PRODUCER_ID", "INVALID_TXN_STATE", "_FENCED"}, refused
        names += set_up.submit(["doc:1"] * 20, prefix="later")
        replies.await_count(len(names))
        assert_all_is_well(set_up, names, replies.records)
        assert len(names) == set_up.witness()["calls"]
        assert running.popen.poll() is None


@pytest.mark.soak
def test_pauses_longer_than_a_producer_id_lives_lose_nothing_at_least_once(strict: str, tmp_path: Path, prefix: str) -> None:
    """Three pauses, each longer than the broker is to remember an idempotent producer: one reply each.

    Whether it had forgotten the producer it does not say: it takes whatever number one that it does not know begins with.
    """
    factory = SettingsFactory(strict, prefix)
    with stage(factory, tmp_path, partitions=1, worker={"publishing": "at_least_once"}) as set_up:
        replies, names = set_up.replies(), set_up.submit(["doc:1"])
        set_up.worker().ready()
        for _ in range(3):
            replies.await_count(len(names))
            _after_a_pause(set_up, names)
        replies.await_count(len(names))
        assert_all_is_well(set_up, names, replies.records)
        assert len(names) == set_up.witness()["calls"]


def leave_to_somebody(set_up: Stage, topic: str) -> None:
    """Take the right to read a topic away from everybody else."""
    others = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:somebody", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    admin = operator.connected(set_up.settings)
    admin.create_acls([others])[others].result(timeout=15)


def test_a_right_that_is_taken_away_ends_the_worker(strict: str, tmp_path: Path, prefix: str) -> None:
    """The request topic may not be read any more: exit 3, and the error is called by its name."""
    with stage(SettingsFactory(strict, prefix), tmp_path, partitions=1) as set_up:
        replies = set_up.replies()
        running = set_up.worker().ready()
        set_up.submit(["doc:1"])
        replies.await_count(1)
        leave_to_somebody(set_up, set_up.settings.topics.requests)
        assert CANNOT == running.wait(), running.text()
        assert "AUTHORIZATION_FAILED" in running.text().splitlines()[-2]


@pytest.mark.soak
def test_a_worker_that_may_not_read_what_is_wanted_ends(strict: str, tmp_path: Path, prefix: str) -> None:
    """The control topic may not be read any more: it would not hear of a pause, so it ends, with exit 3 and the topic's name."""
    with stage(SettingsFactory(strict, prefix), tmp_path, partitions=1) as set_up:
        running, topic = set_up.worker().ready(), set_up.settings.topics.control
        leave_to_somebody(set_up, topic)
        assert CANNOT == running.wait(), running.text()
        assert f"reading {topic} failed: this user may not use the topic" in running.text()


async def test_an_asker_that_may_not_read_replies_is_told_where_its_request_stands(strict: str, tmp_path: Path, prefix: str) -> None:
    """It may describe them and no more: the request is sent before that shows, and its receipt is in the error."""
    with stage(SettingsFactory(strict, prefix), tmp_path, partitions=1) as set_up:
        replies, call = set_up.settings.topics.replies, Call.http("sample", "POST", "/echo", json={})
        bound = [
            AclBinding(ResourceType.TOPIC, replies, ResourcePatternType.LITERAL, "User:*", "*", right, AclPermissionType.ALLOW)
            for right in (AclOperation.DESCRIBE, AclOperation.WRITE)
        ]
        admin = operator.connected(set_up.settings)
        for made in admin.create_acls(bound).values():
            made.result(timeout=15)
        told: DispatcherError | None = None
        async with Dispatcher(set_up.settings) as client:
            await client.submit(call, key="doc:1")
            # Should it show before the request has left this process, nothing was sent: that is BrokerError.
            while not isinstance(told, AskTimeout):
                with pytest.raises((AskTimeout, BrokerError), match="may not use the topic") as caught:
                    await client.ask(call, key="doc:1", timeout=60)
                told = caught.value
        assert (told.receipt.topic, told.receipt.offset, told.exit_code) == (set_up.settings.topics.requests, 1, 4)
