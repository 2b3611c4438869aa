"""The one factory for Kafka clients: guarantees stand, users tune the rest, and errors name properties without values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.faults import Complaints
from dispatcher.adapters.kafka.producer import SteadyProducer
from dispatcher.errors import BrokerAway, BrokerError, ConfigError
from dispatcher.librdkafka import RESERVED_PROPERTIES
from dispatcher.settings import MIB, Settings
from tests.topics import SettingsFactory

SECRET = "hunter2-canary"


def made(**properties: str) -> Settings:
    """Make settings with librdkafka properties (underscores for dots)."""
    named = {name.replace("__", "\0").replace("_", ".").replace("\0", "_"): value for name, value in properties.items()}
    return Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1", "properties": named}, "worker": {"slot": "7"}})


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Collect the properties that clients are made with."""
    collected: dict[str, Any] = {}

    def spy(kind: type) -> Callable[..., Any]:
        def make(properties: dict[str, Any], **keywords: Any) -> Any:
            collected.clear()
            collected.update(properties)
            return kind(properties, **keywords)

        return make

    for name, kind in (("SteadyProducer", SteadyProducer), ("Consumer", Consumer), ("AdminClient", AdminClient)):
        monkeypatch.setattr(clients, name, spy(kind))
    return collected


@pytest.mark.parametrize("protocol", ["consumer", "cooperative", "eager"])
def test_one_answer_that_a_worker_fetches_is_small(seen: dict[str, Any], protocol: clients.GroupProtocol) -> None:
    """It is counted as the log has it, and unpacked whole: nothing else bounds what the client makes of it. Users may change it."""
    limits = ("max.partition.fetch.bytes", "fetch.max.bytes")
    clients.consumer(made(), group="g", protocol=protocol)
    assert [65_536, 65_536] == [seen[name] for name in limits]
    clients.consumer(made(max_partition_fetch_bytes="4096", fetch_max_bytes="8192"), group="g", protocol=protocol)
    assert ["4096", "8192"] == [seen[name] for name in limits]


def test_every_producer_is_idempotent_and_murmur2(seen: dict[str, Any]) -> None:
    """Order and place of records do not depend on who made the producer; it takes what the topics take."""
    for transactional_id in (None, "group-7"):
        clients.producer(made(), transactional_id=transactional_id)
        assert seen["enable.idempotence"] is True
        assert seen["acks"] == "all"
        assert seen["partitioner"] == "murmur2_random"
        assert seen["message.max.bytes"] > 8 * MIB
        assert seen["batch.size"] <= MIB
        assert seen["linger.ms"] <= 1


@pytest.mark.parametrize("timeout_s", [1, 5, 10, 60])
def test_every_timeout_of_a_transaction_that_the_settings_allow_makes_a_producer(seen: dict[str, Any], timeout_s: float) -> None:
    """A broker that does not answer is noticed within the transaction: librdkafka wants no longer wait for one answer."""
    given = made()
    worker = given.worker.model_copy(update={"transaction_timeout_s": timeout_s})
    clients.producer(given.model_copy(update={"worker": worker}), transactional_id="group-7")
    assert seen["socket.timeout.ms"] <= min(10_000, timeout_s * 1000)


def test_a_transaction_is_short_and_its_back_off_too(seen: dict[str, Any]) -> None:
    """An open transaction is a lease on all readers: it ends after transaction_timeout_s; CONCURRENT_TRANSACTIONS costs 2 ms."""
    clients.producer(made(), transactional_id="group-7")
    assert seen["transactional.id"] == "group-7"
    assert seen["transaction.timeout.ms"] == 10_000
    assert seen["message.timeout.ms"] == 10_000
    assert seen["retry.backoff.ms"] == 2
    clients.producer(made(), delivery_timeout_s=5)
    assert seen["message.timeout.ms"] == 5000
    assert "retry.backoff.ms" not in seen


def test_a_batch_is_never_over_the_smallest_limit(seen: dict[str, Any]) -> None:
    """Kafka holds a topic's limit against whole batches, so small records must not be gathered beyond it."""
    clients.producer(Settings.model_validate({"topics": {"request_max_bytes": 10_000}}))
    assert seen["batch.size"] == 10_000
    assert seen["message.max.bytes"] > 8 * MIB


@pytest.mark.parametrize("protocol", ["consumer", "cooperative", "eager"])
def test_no_consumer_commits_or_jumps_by_itself(seen: dict[str, Any], protocol: clients.GroupProtocol) -> None:
    """Offsets move only when we say so, under every group protocol; an unknown position is an error."""
    clients.consumer(made(), group="g", protocol=protocol).close()
    assert {name: seen[name] for name in ("enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset")} == {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }
    assert seen["isolation.level"] == "read_committed"
    assert seen["enable.partition.eof"] is True
    assert seen["max.poll.interval.ms"] == 300_000
    classic = {name for name in seen if name in {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}}
    assert classic == (
        set() if protocol == "consumer" else {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
    )


@pytest.mark.parametrize("protocol", ["consumer", "cooperative", "eager"])
def test_only_who_takes_part_has_a_name_in_the_group(seen: dict[str, Any], protocol: clients.GroupProtocol) -> None:
    """One that asks about the group under the name of a worker would be taken for it."""
    clients.consumer(made(), group="g", protocol=protocol).close()
    assert "group.instance.id" not in seen
    clients.consumer(made(), group="g", protocol=protocol, instance="7").close()
    assert "7" == seen["group.instance.id"]


@pytest.mark.parametrize("group", ["g", None])
@pytest.mark.parametrize("protocol", ["consumer", "cooperative", "eager"])
def test_a_short_poll_interval_makes_every_consumer(protocol: clients.GroupProtocol, group: str | None) -> None:
    """The shortest interval that the settings allow is longer than any session, also of a reader that joins no group."""
    worker = {"max_poll_interval_s": 12, "drain_s": 0.5, "transaction_timeout_s": 1}
    settings = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}, "worker": worker})
    clients.consumer(settings, group=group, protocol=protocol).close()


def test_a_user_tunes_what_carries_no_guarantee(seen: dict[str, Any]) -> None:
    """Properties of the user win over defaults of ours, and stay when we have none."""
    clients.producer(made(socket_timeout_ms="1234", client_id="mine", compression_type="lz4"))
    assert (seen["socket.timeout.ms"], seen["client.id"], seen["compression.type"]) == ("1234", "mine", "lz4")


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
def test_what_carries_a_guarantee_is_refused(name: str) -> None:
    """A property that would be overridden is an error, never ignored."""
    with pytest.raises(ValueError, match="carries a guarantee"):
        Settings.model_validate({"kafka": {"properties": {name: "x"}}})


def test_what_the_factory_insists_on_is_reserved(seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can set a property in vain: what stands above the user's properties is refused in the settings."""
    makers: list[Callable[[Settings], object]] = [
        clients.producer,
        lambda settings: clients.producer(settings, transactional_id="t"),
        lambda settings: clients.consumer(settings, group="g", protocol="cooperative"),
        lambda settings: clients.consumer(settings, group="g", protocol="consumer"),
        clients.admin,
    ]
    for make in makers:
        make(made())
        free = set(seen) - RESERVED_PROPERTIES - {"bootstrap.servers"}
        with monkeypatch.context() as patch:
            for name in ("SteadyProducer", "Consumer", "AdminClient"):
                patch.setattr(clients, name, lambda properties, **_: seen.update(properties))
            make(Settings.model_validate({"kafka": {"properties": dict.fromkeys(free, "the user's")}}))
        assert {name: seen[name] for name in free} == dict.fromkeys(free, "the user's")


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"no_such_thing": SECRET}, "no.such.thing"),
        ({"compression_type": SECRET}, "compression"),
        ({"socket_timeout_ms": SECRET}, "socket.timeout.ms"),
        ({"security_protocol": "ssl", "ssl_ca_location": f"/{SECRET}"}, "ssl.ca.location"),
        ({"security_protocol": "ssl", "ssl_key_pem": SECRET}, "ssl.key.pem"),
        ({"security_protocol": "sasl_ssl", "sasl_mechanisms": "PLAIN"}, "sasl.username and sasl.password"),
        ({"error_cb": SECRET}, "error.cb"),
    ],
)
def test_a_bad_property_is_named_and_its_value_is_not(properties: dict[str, str], named: str) -> None:
    """What librdkafka refuses ends as one sentence about the property; a value may be a password."""
    with pytest.raises(ConfigError) as caught:
        clients.producer(made(**properties))
    assert named in caught.value.message
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_classic_property_and_kip_848_do_not_go_together() -> None:
    """Librdkafka refuses session.timeout.ms in a group of the new protocol; the sentence names it."""
    with pytest.raises(ConfigError, match=r"session\.timeout\.ms"):
        clients.consumer(made(session_timeout_ms="10000"), group="g")


@pytest.mark.parametrize(
    ("code", "heard", "expected"),
    [
        (KafkaError._TRANSPORT, [], "cannot reach Kafka at 127.0.0.1:1"),
        (KafkaError._TIMED_OUT, [KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION], "refused the login"),
        (KafkaError._TIMED_OUT, [KafkaError._SSL], "no TLS connection"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, [KafkaError._TRANSPORT], "may not use the topic"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, [], "may not use the consumer group"),
        (KafkaError.NOT_COORDINATOR, [KafkaError._TRANSPORT], "cannot reach Kafka at 127.0.0.1:1"),
        (KafkaError.NOT_COORDINATOR, [], "looking failed: its coordinator does not answer (NOT_COORDINATOR)"),
        (KafkaError.INVALID_TXN_STATE, [KafkaError._AUTHENTICATION], "looking failed: INVALID_TXN_STATE"),
    ],
)
def test_a_failure_is_told_by_what_is_known_of_it(code: int, heard: list[int], expected: str) -> None:
    """A time-out alone says nothing; what the background reported then says why. A plain answer speaks for itself."""
    complaints = Complaints(made())
    for other in heard:
        complaints.heard(KafkaError(other))
    fault = complaints.fault(KafkaException(KafkaError(code)), "looking")
    assert isinstance(fault, BrokerError)
    assert expected in fault.message


def test_our_broker_has_kip_848(settings: SettingsFactory) -> None:
    """Kafka 4 says its session timeout: the six seconds of our own brokers."""
    admin = clients.admin(settings(init=False))
    assert clients.kip848_times(admin) == clients.GroupTimes(session_s=6, heartbeat_s=2)


def test_a_mock_has_no_kip_848_and_silence_says_nothing() -> None:
    """Where nobody answers in time it is not known: a worker that took that for a classic group would be another protocol's member."""
    assert clients.kip848_times(clients.admin(made(test_mock_num_brokers="1")), timeout_s=2) is None
    with pytest.raises(BrokerAway, match="cannot reach Kafka"):
        clients.kip848_times(clients.admin(made()), timeout_s=0.2)
