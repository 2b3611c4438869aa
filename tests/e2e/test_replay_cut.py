"""A replay whose connection to Kafka breaks, again and again, at whatever moment: what was acknowledged or not is read from the log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from dispatcher.adapters.kafka.log import LogReader
from dispatcher.client import Submitter, stamp
from dispatcher.client import replay as client_replay
from dispatcher.client.replay import Criteria, Replayer
from dispatcher.core.messages.envelope import REPLAY_OF, REPLAYED_FROM
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.submission import request
from dispatcher.core.operations.positions import END, START, Span
from dispatcher.errors import BrokerError
from dispatcher.settings import Settings
from tests.e2e.proxy import Proxy
from tests.e2e.stage import header
from tests.topics import SettingsFactory
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.faults]
COUNT = 600


@pytest.fixture
def made(beside: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Make topics with requests in them; a replay goes in small steps, so that there are many moments at which it may be cut off."""
    monkeypatch.setattr(client_replay, "GROUP_MAX_RECORDS", 10)
    settings = SettingsFactory(beside, prefix)(partitions=3)
    submissions = (request(f"doc:{n % 20}", b'{"upstream": "crm"}', stamp(request_id=f"r-{n}")) for n in range(COUNT))
    with Submitter(settings) as submitter:
        assert not [outcome for outcome in submitter.submit_many(submissions) if isinstance(outcome, Exception)]
    return settings


def behind(made: Settings, way: Proxy) -> Settings:
    """Give the same settings for a client behind the proxy."""
    return made.model_copy(update={"kafka": made.kafka.model_copy(update={"bootstrap_servers": way.address})})


def replays(made: Settings) -> list[Record]:
    """Read the replays that are there."""
    with LogReader(made, made.topics.requests, 60) as reader:
        return [record for record in reader.read(Span(START), until_end=True) if header(record, REPLAY_OF)]


def assert_each_once(made: Settings) -> None:
    """Each request is replayed once, in the order of each partition."""
    there = replays(made)
    assert {f"r-{n}" for n in range(COUNT)} == {header(record, REPLAY_OF) for record in there}
    assert COUNT == len(there)
    for partition in range(3):
        offsets = [int(header(record, REPLAYED_FROM).rpartition("/")[2]) for record in there if record.partition == partition]
        assert sorted(offsets) == offsets


def test_unknown_ends_are_looked_up_and_not_guessed(made: Settings, way: Proxy) -> None:
    """All connections are reset at many moments, inside commits too: the replay goes on by itself and replays each once."""
    told: list[int] = []
    plan = Replayer(made).plan(Criteria(Span(START, END))).plan
    with ThreadPoolExecutor(1) as pool:
        replay = pool.submit(Replayer(behind(made, way), timeout_s=60).execute, plan, told=told.append)
        for _ in range(6):
            seen = len(told)
            eventually(lambda seen=seen: replay.done() or len(told) > seen + 1, what="the replay goes on")  # type: ignore[misc]
            way.cut()
            way.heal()
        replay.result(120)
    assert COUNT == told[-1]
    assert_each_once(made)


def test_a_lost_broker_ends_it_in_time_and_later_it_goes_on(made: Settings, way: Proxy) -> None:
    """Row 3: cut off for good it ends with exit code 3 after its timeout; the same plan later does the rest."""
    plan = Replayer(made).plan(Criteria(Span(START, END))).plan

    def cut(done: int) -> None:
        if done >= COUNT // 3:
            way.cut()

    with pytest.raises(BrokerError, match="cannot reach Kafka"):
        Replayer(behind(made, way), timeout_s=2).execute(plan, told=cut)
    way.heal()
    before = len(replays(made))
    assert COUNT // 3 <= before < COUNT
    assert COUNT == before + Replayer(made).execute(plan)
    assert_each_once(made)
