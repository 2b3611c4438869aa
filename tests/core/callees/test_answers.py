"""What callees answer, by the table: each answer's verdict; and what its body is read as, whatever stands in it."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.callees.finding import Known
from dispatcher.core.callees.provider import BODY_MAX_BYTES, LIST_MAX, Said, error_in
from dispatcher.core.callees.verdict import Tries, describe, judge
from dispatcher.core.instant import Instant
from dispatcher.core.messages.call import Answered
from tests.answers import CASES, CHANCE, IDS, MONO, WALL, Case

QUOTA = b'{"error":{"code":"insufficient_quota"}}'


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_each_answer_means_what_the_table_says(case: Case) -> None:
    """Answered is what is known of all of them."""
    verdict = judge(case.answered(), Tries(calls=1), case.patience, Instant(MONO, WALL), CHANCE)
    case.assert_is(verdict)
    assert verdict.finding.known is Known.ANSWERED


def test_no_answer_stands_twice() -> None:
    """A row that repeats another proves nothing of its own, and names tell them apart."""
    assert [] == [name for name, count in Counter(IDS).items() if count > 1]
    assert [] == [raw for raw, count in Counter((case.raw(), case.deadline_s) for case in CASES).items() if count > 1]


def test_an_error_in_a_200_is_told_as_one() -> None:
    """A person would look for it at the status; of the callee's own words nothing is repeated."""
    said = [(b'{"error":{"code":502,"message":"sk-1"}}', ", 502"), (b'{"error":"sk-2"}', ""), (b"{}", None)]
    for body, more in said:
        expected = "the callee answered 200" + ("" if more is None else " with an error in it" + more)
        assert expected == describe(Answered(200, (), body))
    assert describe(Answered(502, (), b'{"error":{"code":502}}')) == "the callee answered 502"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"7",
        b'"error"',
        b"error",
        b"{",
        b'{"error":',
        b'["error", {"error": {"code": 500}}]',
        b'{"error": null, "error_code": 500}',
        b'{"error": false}',
        b'{"error": ""}',
        b'{"error": {}}',
        b'{"error": []}',
        b'{"error": ["x"]}',
        b'{"error": 0}',
        b'{"error": -1.5e3}',
        b'{"text": "an \\"error\\": {\\"code\\": 500}"}',
        b'{"choices": [{"finish_reason": "stop"}, 7, null], "kind": "error"}',
        b'{"choices": "error"}',
        b'{"data": {"error": {"code": 500}}}',
        b"\xff\xfe" + b'{"error":{"code":500}}',
        b'{"error":{"code":500},"x":"\xff"}',
    ],
)
def test_what_is_no_error_at_the_top_of_a_json_object_is_an_answer(body: bytes) -> None:
    """A 200 counts as an error where it says so itself, not where the word occurs in it."""
    assert error_in(Answered(200, (), body)) is None


@pytest.mark.parametrize(
    "body", [b'{"error": true}', b'{"error": "x"}', b' \n{"error"\t:\n{"x": 1}}', b'{"error": {"error": {"code": 500}}}']
)
def test_an_error_of_which_no_more_is_known_is_a_final_one(body: bytes) -> None:
    """Nobody says that a repetition would help."""
    assert error_in(Answered(200, (), body)) == Said()


@pytest.mark.parametrize(
    "code", [0, 1, 99, 200, 301, 600, 10**30, -400, 502.0, True, "", "5020", "٥٠٢", "no_such_word", None, [502], {"a": 502}]
)
def test_a_code_that_is_no_status_of_an_error_is_none(code: object) -> None:
    """Whatever its type and size."""
    body = orjson.dumps({"error": {"code": code, "x": 1}}) if code != 10**30 else b'{"error":{"code":1' + b"0" * 30 + b"}}"
    assert error_in(Answered(200, (), body)) == Said()


def test_a_body_is_looked_at_up_to_a_bound() -> None:
    """Neither its size nor its depth nor the length of its lists costs anything that it does not cost everybody."""
    small, large = (QUOTA + b" " * (BODY_MAX_BYTES + n - len(QUOTA)) for n in (0, 1))
    assert error_in(Answered(429, (), small)) == Said(is_quota=True)
    assert error_in(Answered(429, (), large)) is None
    assert error_in(Answered(429, (), QUOTA, truncated=True)) is None
    assert error_in(Answered(429, (), b'{"error":' * 7000)) is None
    assert error_in(Answered(429, (), b"[" * 60_000 + b"]")) is None
    daily = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "RequestsPerDay"}]}
    for before, is_quota in ((LIST_MAX - 1, True), (LIST_MAX, False)):
        said = error_in(Answered(429, (), orjson.dumps({"error": {"details": [{}] * before + [daily]}})))
        assert said is not None
        assert is_quota == said.is_quota


WORDS = st.sampled_from(
    ["error", "code", "type", "status", "message", "details", "violations", "quotaId", "retryDelay", "@type", "choices"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.sampled_from(["error", "insufficient_quota", "retry after 7 seconds", "9s", "type.googleapis.com/google.rpc.RetryInfo"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=5),
    max_leaves=20,
)


@given(st.integers(200, 599), st.binary(max_size=200) | VALUES.map(orjson.dumps))
def test_any_body_is_survived(status: int, body: bytes) -> None:
    """Whatever a callee sends there is a verdict, and what it asks for is finite."""
    answer = Answered(status, (), body)
    verdict = judge(answer, Tries(calls=1), CASES[0].patience, Instant(MONO, WALL), CHANCE)
    assert verdict.finding.told_s is None or 0 <= verdict.finding.told_s < 1e9
    assert describe(answer).startswith(f"the callee answered {status}")
