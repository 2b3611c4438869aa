"""The pure parts of the demo: what is sent, and whether the numbers add up."""

from __future__ import annotations

import dataclasses
import doctest
import random
import tomllib
from collections import Counter
from typing import Any

import pytest

from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import Decoder, Request
from dispatcher.core.messages.status import Reason, Status
from dispatcher.demo import load, tally
from dispatcher.demo.awkward import KINDS, awkward
from dispatcher.demo.load import OK, Expected, Planned, read_trace, skewed
from dispatcher.demo.play import PARTITIONS, TRACE, Playbill, plan_of
from dispatcher.demo.scene import Where, tables
from dispatcher.demo.show import Show
from dispatcher.demo.tally import Call, Ending, Evidence, Sent, add_up
from dispatcher.errors import ConfigError
from dispatcher.sample_upstream import Visit, Witness
from dispatcher.settings import KafkaSettings, Settings
from dispatcher.stage.configuration import configure, toml


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The demo's own configuration."""
    folder = tmp_path_factory.mktemp("demo")
    where = Where(KafkaSettings(), PARTITIONS)
    return configure(folder / "demo.toml", where.kafka, tables(where, "demo", "http://127.0.0.1:1", "partition"))


@pytest.mark.parametrize("module", [load, tally])
def test_the_examples_in_the_docstrings_hold(module: object) -> None:
    """What the documentation of the pure parts shows is what they do."""
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_the_example_trace_is_the_first_1500_requests() -> None:
    """As many as the issue asks for, in order of arrival, with the first and last figures of the original."""
    arrivals = read_trace(TRACE.read_text().splitlines())
    assert len(arrivals) == 1500
    assert arrivals[0] == load.Arrival(0.0, 4808, 10)
    assert (arrivals[-1].prompt_tokens, arrivals[-1].completion_tokens) == (1186, 16)
    assert arrivals == sorted(arrivals, key=lambda arrival: arrival.at_s)
    assert sum(arrival.prompt_tokens for arrival in arrivals) == 3_113_432


@pytest.mark.parametrize(
    "text", ["a,b\n1,2", "TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,2", "TIMESTAMP,ContextTokens,GeneratedTokens\n1"]
)
def test_what_is_no_trace_is_refused_with_its_line(text: str) -> None:
    """A sentence with the line, not a traceback."""
    with pytest.raises(ValueError, match="line 2"):
        read_trace(text.splitlines())


def test_a_missing_trace_is_a_sentence() -> None:
    """The demo runs from a checkout; elsewhere it says so."""
    with pytest.raises(ConfigError, match="cannot read the trace"):
        plan_of(Playbill(trace=TRACE.with_name("nothing.csv")))


def test_the_skew_is_that_of_zipf() -> None:
    """With exponent 1 the first of three teams sends twice as much as the second and three times as much as the third."""
    counts = Counter(skewed(60_000, teams=3, exponent=1, chance=random.Random(7)))
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.05)
    assert counts[0] / counts[2] == pytest.approx(3, rel=0.05)


def test_the_plan_repeats_with_its_seed_and_uses_every_team() -> None:
    """Same seed, same records; 40 keys, each on the partition where a murmur2 producer puts it."""
    plan = plan_of(Playbill())
    assert plan == plan_of(Playbill())
    assert plan != plan_of(Playbill(seed=2))
    chats = [one for one in plan if one.what == "chat"]
    assert len(chats) == 1500
    assert len(plan) == 1500 + len(KINDS)
    assert len({one.key for one in chats}) == 40
    assert all(one.key is not None and one.partition == partition_for(one.key, PARTITIONS) for one in chats)
    assert plan == sorted(plan, key=lambda one: one.at_s)


def test_the_speed_squeezes_arrivals_only() -> None:
    """Twice the speed, half the time between requests; the records are the same."""
    slow, fast = ([one for one in plan_of(Playbill(speed=speed, requests=100)) if one.what == "chat"] for speed in (1.0, 2.0))
    assert [one.at_s / 2 for one in slow] == pytest.approx([one.at_s for one in fast])
    assert [one.value for one in slow] == [one.value for one in fast]


def test_each_kind_is_refused_for_the_reason_that_it_expects(settings: Settings) -> None:
    """The demo's own records through the worker's own decoder: what should be refused is, for that reason, and nothing else is."""
    decoder = Decoder(settings, "AAAAAAAA", PARTITIONS, {settings.topics.replies: PARTITIONS})
    refused_later = {Reason.ATTEMPTS_EXHAUSTED}
    for seed in range(20):
        for one in awkward(partitions=PARTITIONS, span_s=10, chance=random.Random(seed)):
            decoded = decoder.decode(Record("demo.requests", one.partition, 7, one.key, one.value, one.headers))
            reason = None if isinstance(decoded, Request) else decoded[1].reason
            expected = None if one.expected.reason in refused_later else one.expected.reason
            assert (one.what, reason) == (one.what, expected)


def test_chat_requests_are_accepted(settings: Settings) -> None:
    """Every usual record decodes to a call with its team's credential."""
    decoder = Decoder(settings, "AAAAAAAA", PARTITIONS, {settings.topics.replies: PARTITIONS})
    for one in plan_of(Playbill(requests=50)):
        if one.what == "chat":
            decoded = decoder.decode(Record("demo.requests", one.partition, 7, one.key, one.value, one.headers))
            assert isinstance(decoded, Request)
            assert f"apikey:{decoded.call.credential}".encode() == one.key


def test_the_configuration_survives_any_value() -> None:
    """Names with dots and values with quotes, backslashes and other alphabets come back as they were."""
    given: dict[str, dict[str, object]] = {"kafka": {"sasl.password": 'a"b\\c\n', "bootstrap_servers": "ü:1"}, "worker": {"drain_s": 10}}
    assert tomllib.loads(toml(given)) == given


# --- adding up --------------------------------------------------------------------------------------------------------

FINE = Planned(0.0, "chat", OK, 0, b"apikey:a", b"{}")
BAD = Planned(0.0, "not JSON", Expected(Status.DEAD, Reason.MALFORMED), 0, b"apikey:a", b"hello")


def evidence(**changes: Any) -> Evidence:
    """Two chats and a bad request, all as they should be: sent at 10 s, calls of 1 s one after another, replies 0.1 s later."""
    witness = Witness()
    for offset in (0, 2):
        visit = Visit(partition=0, offset=offset, epoch=1, attempt=1, idempotency_key=f"r{offset}", key="apikey:a")
        witness.end(witness.start(visit, 10.0 + offset), "answered", 11.0 + offset, status=200)
    good = Evidence(
        sent=[Sent(FINE, (0, 0), 9.8), Sent(BAD, (0, 1), 9.8), Sent(FINE, (0, 2), 9.8)],
        endings=[Ending((0, 0), "ok", None), Ending((0, 1), "dead", "malformed"), Ending((0, 2), "ok", None)],
        letters={(0, 1): ["malformed"]},
        seen_s={(0, 0): 11.1, (0, 1): 11.1, (0, 2): 13.1},
        calls=tally.calls_of(witness.events(), 0.0),
        witness=witness.summary(),
    )
    return dataclasses.replace(good, **changes)


def test_what_is_as_it_should_be_adds_up() -> None:
    """No faults, and the counts of everything."""
    result = add_up(evidence())
    assert result.faults == ()
    assert (result.requests, result.statuses, result.reasons) == (3, {"dead": 1, "ok": 2}, {"malformed": 1})
    assert (result.calls, result.out_of_order, result.overlapping) == (2, 0, 0)
    assert (result.never_called, result.called_again) == (1, 0)


def test_the_table_says_why_calls_are_not_requests(capsys: pytest.CaptureFixture[str]) -> None:
    """One line under it, from the numbers themselves."""
    good = evidence()
    again = [*good.calls, Call((0, 2), 14.0, 15.0), Call((0, 2), 16.0, 17.0)]
    result = add_up(evidence(calls=again, witness={**good.witness, "calls": 4}))
    with Show() as show:
        show.report(result)
    assert "3 requests - 1 refused before a call + 2 repeated calls = 4 calls\n" in capsys.readouterr().out


def test_the_parts_of_the_time_add_up() -> None:
    """The second call waited 1.2 s for the first, took 1 s, and 1.1 s were overhead; of the first 0.3 s were."""
    result = add_up(evidence())
    assert (result.queue_wait.p50_ms, result.queue_wait.p99_ms) == (0, 1200)
    assert (result.service.p50_ms, result.service.p99_ms) == (1000, 1000)
    assert (result.overhead.p50_ms, result.overhead.p99_ms) == (300, 1100)
    assert (result.end_to_end.p50_ms, result.end_to_end.p99_ms) == (1300, 3300)


def test_a_request_waits_for_its_own_lane() -> None:
    """Where each key has a lane, the second call waited for nobody: of another key, it might have begun at once."""
    calls = [dataclasses.replace(call, lane=lane) for call, lane in zip(evidence().calls, "ab", strict=True)]
    result = add_up(evidence(calls=calls))
    assert (0, 2300) == (result.queue_wait.p99_ms, result.overhead.p99_ms)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"endings": [Ending((0, 1), "dead", "malformed"), Ending((0, 2), "ok", None)]}, "chat at 0/0 has 0 replies instead of 1"),
        ({"endings": [*evidence().endings, Ending((0, 2), "ok", None)]}, "chat at 0/2 has 2 replies instead of 1"),
        ({"endings": [*evidence().endings, Ending((5, 5), "ok", None)]}, "1 replies to (5, 5), which was never sent"),
        (
            {"endings": [Ending((0, 0), "error", None), *evidence().endings[1:]]},
            "chat at 0/0 ended error instead of ok",
        ),
        ({"letters": {}}, "not JSON at 0/1 has dead letters [] instead of (malformed)"),
        ({"letters": {(0, 1): ["forbidden"]}}, "not JSON at 0/1 has dead letters ['forbidden'] instead of (malformed)"),
        ({"letters": {(0, 1): ["malformed"] * 2}}, "not JSON at 0/1 has dead letters ['malformed', 'malformed'] instead of (malformed)"),
        ({"letters": {(0, 1): ["malformed"], (3, 3): ["forbidden"]}}, "a dead letter about (3, 3), which was never sent"),
        ({"calls": [Call((0, 0), 10, 11)]}, "1 chat requests were answered without the callee seeing a call"),
    ],
)
def test_each_thing_that_does_not_add_up_is_told(changes: dict[str, Any], fault: str) -> None:
    """One sentence per fault."""
    assert fault in add_up(evidence(**changes)).faults


def test_what_the_callee_saw_wrong_is_told() -> None:
    """Out of order and overlapping are the callee's to say."""
    witness = Witness()
    for offset in (2, 0):
        witness.start(Visit(partition=0, offset=offset, epoch=1, key="apikey:a"), 10.0)
    result = add_up(evidence(witness=witness.summary()))
    assert (result.out_of_order, result.overlapping) == (1, 1)
    assert any("1 calls out of order" in fault for fault in result.faults)
    assert any("1 calls overlapping" in fault for fault in result.faults)


def test_many_faults_are_cut() -> None:
    """A broken run tells what is wrong, not a page per request."""
    sent = [Sent(FINE, (0, offset), 9.8) for offset in range(100)]
    assert len(add_up(evidence(sent=sent, endings=[])).faults) == tally.FAULTS_TOLD_MAX + 1
