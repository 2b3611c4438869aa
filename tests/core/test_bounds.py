"""Whatever well-formed content somebody has written into an internal topic, or beside a commit: no owner ends of it, then or later."""

from __future__ import annotations

import base64
import struct
from dataclasses import asdict, replace
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dispatcher.core.bounds import EPOCH_MAX, OFFSET_MAX
from dispatcher.core.callees.verdict import Tries
from dispatcher.core.internal.control import COMMAND_HEADER, Desired
from dispatcher.core.internal.finished import read_finished
from dispatcher.core.internal.journal import Asked, Journal, Known
from dispatcher.core.internal.lane_report import decode as read_report
from dispatcher.core.internal.parked import KEY_HEADER, PARKED_HEADER, Parked, read_parked
from dispatcher.core.internal.tried import Tried, read_tried
from dispatcher.core.lanes.ending import Endings
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.parking import Bounds
from dispatcher.core.lanes.steps import Settle, Start
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.recorded import read_recorded
from dispatcher.core.progress.commit_note import CommitNote, decode_any, next_epoch
from tests.specimens import OWNER, TOPIC_ID, answer, decoder, noted, now, record, request, value

KEY, STATE, REQUESTS = b"doc:42", "dispatcher.state", "dispatcher.requests"
DECODER = decoder()
ENDINGS = Endings(OWNER, DECODER)
numbers = st.one_of(
    st.sampled_from([0, 1, -1, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 1e17, 1e300, 1e308, -1e308, 5e-324, 253_402_300_799, 1.7e9]),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)
facts = st.one_of(numbers, st.none(), st.booleans(), st.text(max_size=3))
places = st.lists(st.one_of(numbers, st.sampled_from(["", "..", "bad name!/", "dispatcher.replies", "a" * 250])), max_size=3)


def changed(sound: dict[str, Any], names: list[str], odd: st.SearchStrategy[Any] = facts) -> st.SearchStrategy[dict[str, Any]]:
    """This content, with some of its members as nobody of ours writes them."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, odd)).map(lambda given: sound | given)


def live(*lanes: Lane) -> None:
    """What lanes do with a request: it fails once, and waits; one is called again, of another it is moved aside. Each step is written."""
    for lane, ends in zip(lanes, (True, False), strict=True):
        lane.why(now())
        call(lane, 0, 503)
        for outcome in [] if ends else lane.park(0, Bounds(1 << 20), now())[0]:
            outcome.messages()
        lane.why(now(1e5))
        call(lane, 1e5, 200)


def call(lane: Lane, later_s: float, status: int) -> None:
    """Have the next call of a lane answered, if there is one."""
    step = noted(lane, now(later_s))
    if isinstance(step, Start):
        lane.answered(answer(status), now(later_s), 0.5)
        step = noted(lane, now(later_s))
    if isinstance(step, Settle):
        step.outcome.messages()


TRIED = orjson.loads(Tried(5, Tries(1), 1.7e9, 1.7e9, "backoff", 1.7e9, 1.7e9).message(STATE, TOPIC_ID, 0).value or b"")


@given(changed(TRIED, [name for name in TRIED if name not in {"v", "why"}]), st.sampled_from(["allowed", "never"]))
@example(TRIED | {"started": -1e308, "at": 0, "due": 0}, "allowed")
@example(TRIED | {"hinted": -1e308, "due": 1e300}, "allowed")
def test_what_is_noted_of_tries(content: dict[str, Any], repeat: str) -> None:
    """Read, taken in, waited for, called after, noted again, ended."""
    one = read_tried(Record(STATE, 0, 0, f"attempts/{TOPIC_ID}/0/5".encode(), orjson.dumps(content), ()), TOPIC_ID)
    assert one is not None
    lanes = [Lane(OWNER, DECODER, KEY, tried={5: one}) for _ in range(2)]
    for lane in lanes:
        lane.add(record(value(repeat=repeat), offset=5), now().mono)
    live(*lanes)
    one.message(STATE, TOPIC_ID, 0)


PARKED = orjson.loads(Parked(record(), Tries(1), 1.7e9, "backoff", 1.7e9, 1.7e9).message("p", TOPIC_ID).headers[-1][1] or b"")


@given(changed(PARKED, [name for name in PARKED if name not in {"v", "why"}]), st.integers(0, 10**19 - 1))
@example(PARKED | {"due": 1e300}, 5)
@example(PARKED | {"started": -1e308, "ts": 2**64 - 1}, 5)
@example(PARKED, 10**19 - 1)
def test_what_is_parked(content: dict[str, Any], offset: int) -> None:
    """Read, waited for, taken back, called, moved aside again, ended."""
    headers = ((KEY_HEADER, KEY), (PARKED_HEADER, orjson.dumps(content)))
    there = Record("p", 0, 0, f"{TOPIC_ID}/0/{offset}".encode(), b'{"upstream":"openai"}', headers)
    one = read_parked(there, TOPIC_ID, REQUESTS)
    if one is None:
        return
    lanes = [Lane(OWNER, DECODER, KEY) for _ in range(2)]
    for lane in lanes:
        lane.restore([one.entry(0)], now())
        lane.why(now())
        lane.next(now(1e12))
        lane.fetched([one], [], now())
    live(*lanes)
    one.message("p", TOPIC_ID)


FINISHED = {
    "v": 1,
    "id": "r-1",
    "of": bytes(range(16)).hex(),
    "status": "ok",
    "calls": 1,
    "at": 1.7e9,
    "offset": 4,
    "topic_id": TOPIC_ID[:8],
    "reply": ["dispatcher.replies", 0],
}


@given(changed(FINISHED, ["calls", "at", "offset", "redrive"]), st.just(["dispatcher.replies", 0]) | places)
@example(FINISHED, ["", 0])
@example(FINISHED, ["dispatcher.replies", 2**31])
@example(FINISHED | {"at": 1e17}, ["dispatcher.replies", 0])
def test_what_the_journal_says(content: dict[str, Any], reply: list[Any]) -> None:
    """Read, remembered, found for a duplicate, and a place and a time that Kafka's client takes."""
    one = read_finished(Record("j", 0, 0, KEY, orjson.dumps(content | {"reply": reply}), ()), TOPIC_ID[:8])
    if one is None:
        return
    journal = Journal(3600, 10)
    journal.add(one, now().wall)
    found = journal.find(Asked("r-1", KEY, 2**63 - 1, one.fingerprint, one.redrive_id), now().wall)
    one.message()
    if isinstance(found, Known):
        struct.pack(">qi", round(found.at * 1000), found.reply_partition)
        assert found.reply_topic
        ENDINGS.again(request(), found, None, now()).messages()


@given(st.one_of(facts, st.integers(-(10**40), 10**40)), st.text("0123456789-.e", max_size=30))
@example(10**30, "20")
@example(2, "9" * 30)
def test_a_recorded_reply_of_a_topic_in_which_senders_write(attempts: Any, duration: str) -> None:
    """What it says is said again, or it is gone."""
    content = b'{"status":"ok","attempts":%s,"http":{"status":200}}' % str(attempts).encode()
    headers = (("dispatcher-duration-ms", duration.encode()), ("dispatcher-http-status", b"200"))
    recorded = read_recorded(Record("team.replies", 0, 0, KEY, content, headers))
    known = Known(4, request_status(), now().wall, "team.replies", 0)
    ENDINGS.again(request(), known, recorded, now()).messages()


def request_status() -> Any:
    """How the original ended."""
    one = read_finished(Record("j", 0, 0, KEY, orjson.dumps(FINISHED), ()), TOPIC_ID[:8])
    assert one is not None
    return one.status


@given(
    st.sampled_from(["key:doc:42", "partition:0", "partition:9999999999", "request:d/0/9999999999999999999@AbCdEfGh"]),
    changed({"id": "a", "state": "paused", "at": "", "by": ""}, ["id", "state", "at", "by", "reason", "ends", "key"]),
    st.booleans(),
)
def test_what_is_wanted(target: str, content: dict[str, Any], ended: bool) -> None:  # noqa: FBT001 - drawn
    """Folded, asked for, ended."""
    desired, raw = Desired(), orjson.dumps(content)
    desired.apply(Record("c", 0, 0, target.encode(), None if ended else raw, ((COMMAND_HEADER, raw),) if ended else ()))
    desired.why_held(KEY, 0)
    for number in [0, *desired.ending_partitions]:
        desired.to_end(number)
    desired.apply(Record("c", 0, 1, target.encode(), None, ()))
    assert not len(desired)


LANE: dict[str, Any] = {"key": "k", "why": "", "until": None, "calling": False, "queued": 0, "parked": 0}
LANE |= {"head": None, "offset": None, "attempts": 0, "waited_s": 0.0}
PARTITION: dict[str, Any] = {"partition": 0, "epoch": 1, "position": 0, "held": 0, "in_flight": 0, "parked": 0, "lanes": 1, "why": ""}
REPORT: dict[str, Any] = {"slot": "a", "at": "", "ordering": "key", "interval_s": 2.0, "control": 0, "v": 1}


@given(changed(LANE, [*LANE]), changed(PARTITION, [*PARTITION]), changed(REPORT, ["interval_s", "control"]))
@example(LANE | {"until": 1e300}, PARTITION, REPORT)
@example(LANE | {"key": {}}, PARTITION, REPORT)
def test_what_a_worker_tells(lane: dict[str, Any], partition: dict[str, Any], report: dict[str, Any]) -> None:
    """It is shown as text and as JSON: no number that either cannot say."""
    told = read_report(orjson.dumps(report | {"partitions": [partition | {"notable": [lane]}]}))
    if told is None:
        return
    orjson.dumps(asdict(told))
    (one,) = told.partitions[0].notable
    assert not isinstance(one.key, dict) or "base64" in one.key
    assert round((one.until or 0) * 1000) <= OFFSET_MAX


@pytest.mark.parametrize("literal", [b"1e999", b"NaN", b"-Infinity", b"1" * 40])
def test_numbers_that_are_no_json_for_everybody(literal: bytes) -> None:
    """Some parsers take them: a report that has one is none."""
    raw = orjson.dumps(REPORT | {"partitions": [PARTITION | {"notable": [LANE | {"until": 12345}]}]})
    assert read_report(raw) is not None
    assert read_report(raw.replace(b"12345", literal)) is None


@given(st.integers(1, 2), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**70))
@example(1, 2**64 - 1, 5, 0, 0)
@example(2, 2**64 - 1, 5, 0, 0)
@example(2, 1, 2**64 - 1, 0, 0)
@example(2, 1, 1, 2**63, 0)
@example(2, 1, 1, 0, 2**70)
def test_what_stands_beside_a_commit(version: int, epoch: int, transaction: int, position: int, length: int) -> None:
    """The next owner counts on from it and writes that; what it names as settled are offsets."""
    old = struct.pack(">3sB16sQQ", b"dsp", 1, bytes(16), epoch, transaction)
    text = (
        base64.b64encode(old).decode()
        if version == 1
        else CommitNote(bytes(16), epoch, transaction, position, ((position, position + length),)).encode()
    )
    note = decode_any(text)
    following = CommitNote(bytes(16), next_epoch(note, now().wall), 1)
    assert following == decode_any(following.encode()) or following.epoch > EPOCH_MAX
    if note is not None:
        replace(note, transaction=note.transaction + 1).encode()
        assert all(start <= stop <= OFFSET_MAX for start, stop in note.settled)
