"""What is known of a request before its turn is what its decoder says of it later."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dispatcher.core.messages.foresight import DEADLINE_AND_AGENT, NOTHING, Foresight, foresee
from dispatcher.core.messages.request import PRIORITY_USUAL, RequestBody
from tests.specimens import record

AGENTS = st.none() | st.text(min_size=1, max_size=8) | st.sampled_from(["planner-1", "agent", "é", '"', "\\", "\x7f", "😀"])


def test_most_requests_say_nothing() -> None:
    """No name of interest stands in them; nor where one stands in the body alone, or the value is no request."""
    assert (None, 4, "") == NOTHING == foresee(record())
    for content in (b'{"upstream":"openai","body":{"agent":"a","priority":9}}', b'["agent"]', b'{"agent"', b'"agent"', None):
        assert NOTHING == foresee(record(content))


def test_what_a_request_says() -> None:
    """Each of the three, and all of them together."""
    assert Foresight(None, 9, "a") == foresee(record(b'{"agent":"a","priority":9}'))
    assert Foresight(1796000400.0) == foresee(record(b'{"deadline":"2026-11-30T01:00:00Z"}'))
    assert Foresight(0.0, 0, "b") == foresee(record(b'{"agent":"b","priority":0,"deadline":"1970-01-01T00:00:00Z"}'))


@pytest.mark.parametrize("content", [b'{"agent":1,"priority":"9","deadline":5}', b'{"agent":null,"priority":10,"deadline":"soon"}'])
def test_what_would_be_refused_says_nothing(content: bytes) -> None:
    """Of another type, or out of range: it is refused when its turn comes."""
    assert NOTHING == foresee(record(content))


@given(AGENTS, st.none() | st.integers(-1, 11), st.booleans(), st.booleans(), st.sampled_from(["agent", "\\u0061gent", "age\\u006et"]))
def test_the_agent_is_the_one_that_the_decoder_reads(agent: str | None, priority: int | None, ascii_: bool, twice: bool, name: str) -> None:  # noqa: FBT001 - drawn
    """However JSON writes it: escaped or not, its name escaped, or twice, of which the last counts."""
    members = ['"upstream":"openai"']
    if twice:
        members.append('"agent":"another"')
    if agent is not None:
        members.append(f'"{name}":{json.dumps(agent, ensure_ascii=ascii_)}')
    if priority is not None:
        members.append(f'"priority":{priority}')
    content = ("{" + ",".join(members) + "}").encode()
    told = foresee(record(content), DEADLINE_AND_AGENT)
    try:
        body = RequestBody.model_validate_json(content)
    except ValidationError:
        return
    assert (body.agent or "") == told.agent
    assert body.priority == foresee(record(content)).priority
    assert told.priority in {body.priority, PRIORITY_USUAL}
