"""Sums of what replies say: by key, agent, model and day, duplicates left out, unknown prices told apart."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pytest

from dispatcher.core.messages.record import Record
from dispatcher.core.messages.usage import Tokens, Usage
from dispatcher.core.operations.usage_report import UsageReport
from tests.specimens import REPLIES, WALL

DAY_MS = 86_400_000
OURS = (("ce_type", b"dispatcher.reply.v1"),)


def reply(
    cost: str | None = "0.1", key: bytes | None = b"doc:1", model: str = "m", day: int = 0, savings: str | None = None, **fields: Any
) -> Record:
    """A reply that was billed for 10 tokens in and 5 out."""
    usage = Usage(Tokens(10, 5, cache_read=4, reasoning=2), model, cost and Decimal(cost), savings and Decimal(savings))  # type: ignore[arg-type] # an empty text is none of them
    value = {"status": "ok", "attempts": 1, "usage": usage.body(), **fields}
    return Record(REPLIES, 0, 1, key, orjson.dumps(value), OURS, round(WALL * 1000) + day * DAY_MS)


def rows(by: str, *replies: Record) -> list[tuple[Any, dict[str, Any]]]:
    """The rows of a report over these."""
    report = UsageReport(by)
    for one in replies:
        report.add(one)
    return [(name, row.fields()) for name, row in report.rows()]


def test_sums_by_key_have_the_dearest_first() -> None:
    """Every count, to the last digit; what nothing was compared for has no savings."""
    ((first, dear), (second, cheap)) = rows(
        "key", reply("0.1"), reply("0.2", b"doc:2", savings="1"), reply("0.3", b"doc:2", savings="-0.25")
    )
    assert ("doc:2", "doc:1") == (first, second)
    expected = {
        "replies": 2,
        "input_tokens": 20,
        "cache_read_tokens": 8,
        "cache_write_tokens": 0,
        "output_tokens": 10,
        "reasoning_tokens": 4,
        "cost_usd": "0.5",
        "unpriced": 0,
        "savings_usd": "0.75",
    }
    assert expected == dear
    assert ("0.1", None) == (cheap["cost_usd"], cheap["savings_usd"])


def test_sums_by_day_stand_in_their_order() -> None:
    """UTC, by the time of the reply."""
    found = rows("day", reply(day=1), reply(), reply(day=1))
    assert [("2026-11-29", 1), ("2026-11-30", 2)] == [(name, row["replies"]) for name, row in found]


def test_sums_by_model() -> None:
    """What no answer named stands under no name."""
    assert {"m": 1, None: 1} == {name: row["replies"] for name, row in rows("model", reply(), reply(model=""))}


def test_sums_by_agent() -> None:
    """As the replies say who asked; who did not say it stands under no name, and what no worker writes is no name."""
    replies = (reply(agent="planner"), reply(agent="planner"), reply(agent="critic"), reply(), reply(agent=7))
    assert {"planner": 2, "critic": 1, None: 2} == {name: row["replies"] for name, row in rows("agent", *replies)}


def test_an_unknown_price_is_counted_and_never_nothing() -> None:
    """B42: the sum is of what is known, and says how much is not; where nothing is known it is null."""
    ((_, row),) = rows("key", reply("0.1"), reply(None))
    assert ("0.1", 1) == (row["cost_usd"], row["unpriced"])
    ((_, row),) = rows("key", reply(None), reply(None))
    assert (None, 2) == (row["cost_usd"], row["unpriced"])
    ((_, row),) = rows("key", reply("0"))
    assert ("0", 0) == (row["cost_usd"], row["unpriced"])


@pytest.mark.parametrize(
    "other",
    [
        reply(duplicate=True),
        reply(usage=None),
        reply(usage={"prompt_tokens": 1, "input_tokens": "1"}),
        Record(REPLIES, 0, 1, b"doc:1", reply().value, ()),
        Record(REPLIES, 0, 1, b"doc:1", None, OURS),
        Record(REPLIES, 0, 1, b"doc:1", b'{"usage"', OURS),
        Record(REPLIES, 0, 1, b"doc:1", b'["usage"]', OURS),
        Record(REPLIES, 0, 1, b"doc:1", b'{"status":"ok"}', None),
    ],
)
def test_what_was_not_called_for_or_is_not_ours_counts_nothing(other: Record) -> None:
    """A duplicate's answer was paid for once; a reply topic may hold other people's records."""
    assert [("doc:1", 1)] == [(name, row["replies"]) for name, row in rows("key", other, reply())]


def test_keys_that_are_no_text_stay_apart() -> None:
    """As `--json` shows them everywhere."""
    assert {"null", '{"base64":"/w=="}'} == {orjson.dumps(name).decode() for name, _ in rows("key", reply(key=None), reply(key=b"\xff"))}


def test_a_time_beyond_the_calendar_is_no_day() -> None:
    """A broker takes any number for a record's time."""
    far = Record(REPLIES, 0, 1, b"k", reply().value, OURS, 1 << 60)
    assert [None] == [name for name, _ in rows("day", far)]
