from __future__ import annotations

import base64
import zlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.messages.request_id import time_ordered
from dispatcher.core.operations.positions import END, START, Anchor, Position
from dispatcher.core.operations.replay_plan import Gap, Part, Plan, decode, gap
from dispatcher.errors import ConfigError

REPLAY, TOPIC = time_ordered(1, 1), base64.b64encode(b"t" * 16).decode()


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Make any plan that a survey can make."""
    partitions = draw(st.integers(1, 10_000))
    parts = []
    for number in draw(st.lists(st.integers(0, partitions - 1), unique=True)):
        start, stop, end = sorted(draw(st.tuples(*[st.integers(0, 2**63 - 1)] * 3).filter(lambda drawn: len(set(drawn)) > 2)))
        parts.append(Part(number, start, stop, draw(st.integers(1, stop - start)), end))
    replay_id = time_ordered(draw(st.integers(0, 2**48 - 1)), draw(st.integers(0)))
    key = draw(st.none() | st.binary(max_size=50) | st.just("doc:ü".encode()))
    return Plan(replay_id, draw(st.binary(min_size=16, max_size=16)), partitions, tuple(parts), key, draw(st.booleans()))


PLANS = plans()


@given(PLANS)
def test_a_plan_comes_back_from_its_text(plan: Plan) -> None:
    """Its text is one word that a shell takes as it is, and says everything."""
    text = plan.encode()
    assert plan == decode(text)
    assert text.replace("-", "").replace("_", "").isalnum()


@given(PLANS, st.data())
def test_a_text_that_was_cut_is_no_plan(plan: Plan, data: st.DataObject) -> None:
    """Half a copied text must not replay half a plan."""
    text = plan.encode()
    with pytest.raises(ConfigError, match="not a plan"):
        decode(text[: data.draw(st.integers(0, len(text) - 2))])


@given(st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_any_other_text_is_no_plan(text: str) -> None:
    """Whatever is given is refused in one sentence."""
    with pytest.raises(ConfigError, match="not a plan"):
        decode(text)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [2, time_ordered(1, 1), "", 1, [], None, False],
        [1, "r-1", "", 1, [], None, False],
        [1, time_ordered(1, 1), "", -1, [], None, False],
        [1, time_ordered(1, 1), "", 1, [[0, 0, 0, 0]], None, False],
        [1, time_ordered(1, 1), "", 1, [[0, 0, 0, 0, -1]], None, False],
        [1, time_ordered(1, 1), "", 1, [[0, 0, 0, 0, "1"]], None, False],
        [1, time_ordered(1, 1), "", 1, [], None, 1],
        *(
            [1, REPLAY, TOPIC, 3, parts, None, False]
            for parts in (
                [[0, 2**63, 2**63 + 5, 3, 2**63 + 5]],  # no offset
                [[0, 0, 5, 5, 2**63]],
                [[2**40, 0, 5, 3, 5]],  # no partition of three
                [[3, 0, 5, 3, 5]],
                [[0, 5, 2, 1, 60]],  # backwards
                [[0, 5, 5, 0, 60]],  # nothing
                [[0, 0, 5, 0, 60]],
                [[0, 0, 5, 6, 60]],  # more requests than offsets
                [[0, 0, 5, 5, 4]],  # beyond its end
                [[0, 0, 3, 3, 9], [0, 0, 3, 3, 9]],  # twice
            )
        ),
        [1, REPLAY, TOPIC, 2**40, [], None, False],
        [1, REPLAY, base64.b64encode(b"short").decode(), 3, [], None, False],
        {"replay_id": 1},
        None,
    ],
)
def test_a_text_of_other_content_is_no_plan(fields: object) -> None:
    """Another version's plan, and one that was made up."""
    with pytest.raises(ConfigError, match="not a plan"):
        decode(base64.urlsafe_b64encode(zlib.compress(orjson.dumps(fields))).decode())


def test_a_text_does_not_unpack_into_more_than_a_plan() -> None:
    """A plan of many megabytes is refused before it is read."""
    with pytest.raises(ConfigError, match="not a plan"):
        decode(base64.urlsafe_b64encode(zlib.compress(b" " * 10_000_000)).decode())


def test_a_plan_counts_its_requests() -> None:
    """The count that a person types is that of all parts."""
    plan = Plan(time_ordered(1_700_000_000_000, 1), b"t" * 16, 3, (Part(0, 0, 9, 4, 20), Part(2, 5, 6, 1, 6)))
    assert (5, 1_700_000_000_000) == (plan.requests, plan.time_ms)


@pytest.mark.parametrize(
    ("since", "start", "stop", "first", "found"),
    [
        (Position(Anchor.OFFSET, 5), 5, 20, 10, Gap(1, 5, 10, certain=True)),
        (Position(Anchor.OFFSET, 5), 5, 8, 10, Gap(1, 5, 8, certain=True)),
        (Position(Anchor.OFFSET, 10), 10, 20, 10, None),
        (Position(Anchor.TIME, 5), 10, 20, 10, Gap(1, 0, 10, certain=False)),
        (Position(Anchor.TIME, 5), 11, 20, 10, None),
        (Position(Anchor.TIME, 5), 0, 20, 0, None),
        (START, 10, 20, 10, None),
        (END, 20, 20, 10, None),
        (Position(Anchor.START, 3), 13, 20, 10, None),
    ],
)
def test_a_range_says_what_it_lacks(since: Position, start: int, stop: int, first: int, found: Gap | None) -> None:
    """An offset that is gone is surely missing; behind a time nobody can tell; the start is what is there."""
    assert found == gap(since, 1, start, stop, first)
