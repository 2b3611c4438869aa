"""What is waited for: receipts, ids, positions."""

from __future__ import annotations

import pytest

from dispatcher.core.messages.request_id import time_ordered
from dispatcher.core.messages.submission import Receipt
from dispatcher.core.operations.sought import SKEW_MS, Sought, sought
from dispatcher.errors import ConfigError

TOPICS = ("t.requests", "t.requests.analysis")
TIME_MS = 1_795_946_400_250  # 2026-11-29T10:00:00.250Z


def test_a_receipt_names_its_partition_and_a_time() -> None:
    """Its reply is not older than the request, but for clocks that differ; the place of the reply comes along."""
    receipt = Receipt("r-1", "t.requests", 3, 17, b"k", "2026-11-29T10:00:00.250Z", "mine", 2)
    assert sought(receipt, TOPICS) == Sought("r-1", ("t.requests", 3, 17), TIME_MS - SKEW_MS, "mine", 2)


def test_an_id_of_ours_tells_when_it_was_made() -> None:
    """A UUIDv7 has its time in front; others could be of any time."""
    name = time_ordered(TIME_MS, 2**74 - 1)
    assert sought(name, TOPICS) == Sought(name, None, TIME_MS - SKEW_MS)
    assert sought("order-77", TOPICS) == Sought("order-77")
    assert sought("01936a2b-0000-4000-8000-000000000000", TOPICS).since_ms is None


@pytest.mark.parametrize("name", ["t.requests/3/17", "t.requests/3/17@pX3kQ9aZ"])
def test_a_position_names_its_partition(name: str) -> None:
    """With its topic's id or without."""
    assert sought(name, TOPICS) == Sought(name, ("t.requests", 3, 17), is_place="@" not in name)


@pytest.mark.parametrize("name", ["order/3/17", "t.replies/0/1", "t.requests/3/x", "other/3/17@pX3kQ9aZ"])
def test_what_looks_like_a_position_elsewhere_is_an_id(name: str) -> None:
    """Clients choose their ids as they like: it is looked for in all partitions."""
    assert sought(name, TOPICS) == Sought(name)


def test_an_id_tells_its_time_in_capitals_too() -> None:
    """It is compared byte for byte all the same."""
    name = time_ordered(TIME_MS, 2**74 - 1).upper()
    assert sought(name, TOPICS) == Sought(name, None, TIME_MS - SKEW_MS)


@pytest.mark.parametrize("name", ["", "two words", "ä", "x" * 201])
def test_what_can_be_no_id_is_refused(name: str) -> None:
    """Nobody would ever answer it."""
    with pytest.raises(ConfigError):
        sought(name, TOPICS)


@pytest.mark.parametrize("name", ["", "two words", "x" * 201])
def test_a_receipt_whose_id_cannot_be_one(name: str) -> None:
    """Nobody would ever answer it."""
    with pytest.raises(ConfigError):
        sought(Receipt(name, "t", 0, 0, None, "2026-11-29T10:00:00Z"), TOPICS)


@pytest.mark.parametrize("time", ["yesterday", "0001-01-01T00:00:00", ""])
def test_a_receipt_whose_time_nobody_can_read(time: str) -> None:
    """JSON that somebody else wrote."""
    with pytest.raises(ConfigError):
        sought(Receipt("r-1", "t", 0, 0, None, time), TOPICS)
