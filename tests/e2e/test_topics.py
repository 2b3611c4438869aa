"""`topics init` and `topics check` on a real broker."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import Difference, connect, facts_of
from dispatcher.adapters.kafka.coordinator import REQUEST_S
from dispatcher.adapters.kafka.starts import check_topics, init_topics
from dispatcher.adapters.local_broker import LocalBroker
from dispatcher.errors import BrokerError, ConfigError, RefusedError
from dispatcher.settings import MIB, Settings
from tests.brokers import tied
from tests.e2e.conftest import Run
from tests.topics import SettingsFactory
from tests.waiting import eventually

NAMES = ("requests", "replies", "dlq", "parked", "journal", "state", "control", "workers")


def positions(settings: Settings) -> dict[int, tuple[int, str | None]]:
    """Read what the group has committed: offset and metadata by partition."""
    admin, group = clients.admin(settings), settings.worker.group
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_S)[group]
    return {part.partition: (part.offset, part.metadata) for part in future.result(timeout=30).topic_partitions or ()}


def commit(settings: Settings, offsets: dict[int, int]) -> None:
    """Commit positions as a person with another tool would."""
    parts = [TopicPartition(settings.topics.requests, partition, offset) for partition, offset in offsets.items()]
    admin, group = clients.admin(settings), settings.worker.group  # a client that nobody holds never answers
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, parts)])[group].result(timeout=30)


def fill(settings: Settings, count: int) -> None:
    """Write records to partition 0 of the request topic."""
    producer = clients.producer(settings)
    for _ in range(count):
        producer.produce(settings.topics.requests, b"{}", b"k", partition=0)
    assert producer.flush(30) == 0


def without_starts(factory: SettingsFactory, group: str, partitions: int = 3) -> Settings:
    """Make settings whose topics exist while their group has committed nothing."""
    factory(partitions=partitions)
    return factory(partitions=partitions, init=False, worker={"group": group})


def test_init_creates_what_check_wants(settings: SettingsFactory, prefix: str) -> None:
    """Each topic with its size and policy, those that answer to a request's partition with as many, and a start position for each."""
    made = settings(partitions=4, init=False)
    assert [d.found for d in check_topics(made)] == ["missing"] * len(NAMES)
    report = init_topics(made)
    assert tuple(f"{prefix}.{name}" for name in NAMES) == report.created
    assert report.started == {0: 0, 1: 0, 2: 0, 3: 0}
    assert check_topics(made) == []
    assert positions(made) == dict.fromkeys(range(4), (0, None))
    found = facts_of(connect(made, 10), [*report.created, f"{prefix}.none"])
    assert {name.removeprefix(f"{prefix}."): (f.partitions, f.max_message_bytes) for name, f in found.items()} == {
        "requests": (4, MIB),
        "replies": (4, 8 * MIB),
        "dlq": (4, 8 * MIB),
        "parked": (4, made.topics.parked_max_bytes),
        "journal": (4, MIB),
        "state": (4, MIB),
        "control": (1, MIB),
        "workers": (1, MIB),
    }
    assert len({f.topic_id for f in found.values()}) == len(NAMES)
    assert all(len(f.topic_id) == 16 for f in found.values())


def test_init_again_changes_nothing(settings: SettingsFactory, prefix: str) -> None:
    """A second run creates nothing, moves no position, and says so."""
    made = settings(partitions=2)
    commit(made, {0: 0, 1: 0})
    fill(made, 5)
    commit(made, {0: 5})
    report = init_topics(made)
    assert (report.created, report.started, report.differences) == ((), {}, ())
    assert positions(made) == {0: (5, None), 1: (0, None)}


def test_differences_are_listed_and_not_mended(settings: SettingsFactory, prefix: str) -> None:
    """What an existing topic has otherwise is told, one line each; `init` alters nothing."""
    made = settings(partitions=2)
    other = settings(partitions=3, init=False, topics={"request_max_bytes": 2 * MIB, "reply_retention_days": 1})
    expected = {
        Difference(f"{prefix}.requests", "partitions", "2", "3"),
        Difference(f"{prefix}.requests", "max.message.bytes", str(MIB), str(2 * MIB)),
        Difference(f"{prefix}.replies", "partitions", "2", "3"),
        Difference(f"{prefix}.replies", "retention.ms", "604800000", "86400000"),
        Difference(f"{prefix}.dlq", "partitions", "2", "3"),
        Difference(f"{prefix}.parked", "partitions", "2", "3"),
        Difference(f"{prefix}.journal", "partitions", "2", "3"),
        Difference(f"{prefix}.state", "partitions", "2", "3"),
        Difference(f"{prefix}.parked", "max.message.bytes", str(made.topics.parked_max_bytes), str(other.topics.parked_max_bytes)),
    }
    assert set(check_topics(other)) == expected
    assert set(init_topics(other).differences) == expected
    assert set(check_topics(other)) == expected


def test_a_first_start_is_the_first_record_that_is_left(settings: SettingsFactory, prefix: str) -> None:
    """Start positions are the start of the log, which retention has moved."""
    made = without_starts(settings, f"{prefix}-late")
    fill(made, 10)
    admin, part = clients.admin(made), TopicPartition(made.topics.requests, 0, 4)
    admin.delete_records([part])[part].result(timeout=30)
    assert [d.what for d in check_topics(made)] == ["start positions"]
    assert init_topics(made).started == {0: 4, 1: 0, 2: 0}
    assert positions(made) == {0: (4, None), 1: (0, None), 2: (0, None)}


def test_positions_that_are_not_in_the_log_are_shown(settings: SettingsFactory, prefix: str) -> None:
    """Their partitions will stand: retention took records that never ran, or a tool went beyond the end."""
    made = without_starts(settings, f"{prefix}-out")
    fill(made, 10)
    commit(made, {0: 3, 1: 0, 2: 11})
    admin, part = clients.admin(made), TopicPartition(made.topics.requests, 0, 4)
    admin.delete_records([part])[part].result(timeout=30)
    found = {(d.what, d.found, d.wanted) for d in check_topics(made)}
    assert found == {("position of partition 0", "3", "4 to 10"), ("position of partition 2", "11", "0 to 0")}


@pytest.mark.parametrize(("edge", "expected"), [("earliest", 0), ("latest", 7)])
def test_a_gap_is_for_a_person_to_fill(settings: SettingsFactory, prefix: str, run: Run, edge: str, expected: int) -> None:
    """A partition without a position beside others that have one is refused by name (exit 5), and filled only as told."""
    made = without_starts(settings, f"{prefix}-gap")
    commit(made, {1: 0})
    fill(made, 7)
    with pytest.raises(RefusedError, match="partitions 0, 2 of"):
        init_topics(made)
    assert positions(made) == {1: (0, None)}
    flags = ("-b", made.kafka.bootstrap_servers, "-X", "topic.metadata.refresh.interval.ms=10000")
    env = {"DISPATCHER_TOPICS__PREFIX": prefix, "DISPATCHER_TOPICS__PARTITIONS": "3", "DISPATCHER_WORKER__GROUP": f"{prefix}-gap"}
    refused = run("topics", "init", *flags, env=env)
    assert (refused.returncode, refused.stdout) == (5, "")
    assert "--fill-gaps" in refused.stderr
    assert run("topics", "init", "--fill-gaps", edge, *flags, env=env).returncode == 0
    assert positions(made) == {0: (expected, None), 1: (0, None), 2: (0, None)}


@pytest.mark.parametrize("protocol", ["consumer", pytest.param("cooperative", marks=pytest.mark.soak)])
def test_a_running_group_keeps_its_positions(settings: SettingsFactory, prefix: str, protocol: clients.GroupProtocol) -> None:
    """With members in the group nothing is committed, and the sentence says why."""
    made = without_starts(settings, f"{prefix}-busy")
    member = clients.consumer(made, group=made.worker.group, protocol=protocol)
    member.subscribe([made.topics.requests])
    try:
        eventually(lambda: member.poll(0.1) is None and member.assignment(), what="the assignment")
        with pytest.raises(RefusedError, match="is running: positions were not touched"):
            init_topics(made)
    finally:
        member.close()
    assert positions(made) == {}


def test_too_many_replicas_are_a_matter_of_settings(settings: SettingsFactory) -> None:
    """One broker cannot keep two replicas: the sentence names the setting."""
    with pytest.raises(ConfigError, match=r"topics\.replication_factor is 2"):
        init_topics(settings(init=False, topics={"replication_factor": 2}))


def test_commands_print_data_and_end_with_their_code(kafka: str, prefix: str, settings: SettingsFactory, run: Run) -> None:
    """`check` ends with 1 while something differs and 0 when nothing does; --json prints one object a line on stdout alone."""
    settings(init=False)
    env = {"DISPATCHER_TOPICS__PREFIX": prefix, "DISPATCHER_TOPICS__PARTITIONS": "3", "DISPATCHER_WORKER__GROUP": prefix}
    missing = run("topics", "check", "-b", kafka, env=env)
    assert (missing.returncode, missing.stderr) == (1, "")
    assert f"{prefix}.requests" in missing.stdout
    made = run("topics", "init", "-b", kafka, "--json", env=env)
    assert (made.returncode, made.stderr) == (0, "")
    rows = [json.loads(line) for line in made.stdout.splitlines()]
    assert rows == [
        *({"topic": f"{prefix}.{name}", "created": True} for name in NAMES),
        {"group": prefix, "started": {"0": 0, "1": 0, "2": 0}, "active": False},
    ]
    fine = run("topics", "check", "-b", kafka, env=env)
    assert (fine.returncode, fine.stdout, fine.stderr) == (0, "topics are as configured\n", "")
    assert run("topics", "check", "-b", kafka, "--json", env=env).stdout == ""


@pytest.mark.parametrize("server", ["closed", "silent", "unknown"])
def test_a_broker_that_does_not_answer_costs_the_timeout_and_no_more(server: str, run: Run) -> None:
    """Nobody there, somebody who says nothing, a host without an address: a sentence, and exit 3, within --timeout and two seconds."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if server == "silent":
            listener.listen()
        address = "no-such-host.invalid:9092" if server == "unknown" else f"127.0.0.1:{listener.getsockname()[1]}"
        begin = time.monotonic()
        with pytest.raises(BrokerError, match="cannot reach Kafka at"):
            check_topics(Settings.model_validate({"kafka": {"bootstrap_servers": address}}), timeout_s=2)
        took_s = time.monotonic() - begin
        done = run("topics", "check", "-b", address, "--timeout", "2s")
    assert took_s < 2 + 2
    assert (done.returncode, done.stdout) == (3, "")
    assert f"error: cannot reach Kafka at {address}\nhint: " in done.stderr
    assert "Traceback" not in done.stderr


PASSWORD = "tr0ub4dor-admin"
_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="{0}" user_admin="{0}" user_agent="agent-{0}";'
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a second broker that wants a password, and where the user `agent` has no rights."""
    extra = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": _JAAS.format(PASSWORD),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with tied(LocalBroker(tmp_path_factory.mktemp("guarded"), extra=extra)) as bootstrap:
        yield bootstrap


def login(bootstrap: str, user: str, password: str) -> Settings:
    """Make settings that log in."""
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": user, "sasl.password": password}
    return Settings.model_validate({"kafka": {"bootstrap_servers": bootstrap, "properties": properties}})


@pytest.mark.broker
def test_a_wrong_password_is_called_so(guarded: str) -> None:
    """The sentence speaks of the login, not of an unreachable broker, and shows neither password."""
    with pytest.raises(BrokerError, match="refused the login") as caught:
        check_topics(login(guarded, "admin", "s3cret-and-wrong"), timeout_s=5)
    assert "s3cret" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.broker
def test_no_login_at_a_broker_that_wants_one(guarded: str) -> None:
    """A client that speaks plainly to a guarded broker gets an answer within the timeout."""
    with pytest.raises(BrokerError, match="cannot reach Kafka"):
        check_topics(Settings.model_validate({"kafka": {"bootstrap_servers": guarded}}), timeout_s=5)


@pytest.mark.broker
def test_a_missing_right_is_called_so(guarded: str) -> None:
    """A user without rights is told which kind of thing it may not use."""
    with pytest.raises(BrokerError, match="this user may not use the topic"):
        check_topics(login(guarded, "agent", f"agent-{PASSWORD}"), timeout_s=10)


@pytest.mark.broker
def test_the_right_password_works(guarded: str) -> None:
    """Plain librdkafka properties are all that a login needs."""
    made = login(guarded, "admin", PASSWORD)
    assert len(init_topics(made).created) == len(NAMES)
    assert check_topics(made) == []
    assert clients.kip848_times(clients.admin(made)) == clients.GroupTimes(session_s=6, heartbeat_s=2)
    assert clients.kip848_times(clients.admin(login(guarded, "agent", f"agent-{PASSWORD}"))) is None
