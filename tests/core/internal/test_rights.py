"""What owners say to each other of shared money: read as it was written, whatever else stands in the topic."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.internal.rights import Board, Rights, closed, read_rights, share
from dispatcher.core.messages.record import Message, Record
from tests.specimens import TOPIC_ID

NAME = "0123456789abcdef01234567"
SOME = Rights(NAME, 3, "team", 20_000, {0: Decimal("0.5")}, {12: Decimal("1.25")}, 4, 1.5e9, {0: 7})


def written(message: Message, offset: int = 0) -> Record:
    """As it stands in its topic."""
    return Record(message.topic, message.partition, offset, message.key, message.value, message.headers)


def put(board: Board, rights: Rights) -> None:
    """Have it said."""
    assert board.apply(written(rights.message("dispatcher.control", TOPIC_ID))) == rights.name


def test_it_is_read_as_it_was_written() -> None:
    """Nothing is lost on the way, and it is of one topic id."""
    record = written(SOME.message("dispatcher.control", TOPIC_ID))
    assert SOME == read_rights(record, TOPIC_ID)
    assert read_rights(record, TOPIC_ID[::-1]) is None


@pytest.mark.parametrize(
    "facts",
    [
        b"{",
        b"[]",
        {"v": 2},
        {"period": "1"},
        {"given": {"0": "-1"}},
        {"given": {"0": "1E+99999999"}},
        {"given": {"0": "1E-99999999"}},
        {"given": {"00": "1"}},
        {"got": {"0": None}},
        {"wants": -1},
        {"since": "now"},
        {"answers": {"0": True}},
        {"budget": 7},
    ],
)
def test_what_is_corrupt_takes_nothing_back(facts: object) -> None:
    """It is passed over: what was given before stays given."""
    record, board = written(SOME.message("dispatcher.control", TOPIC_ID)), Board(TOPIC_ID)
    value = facts if isinstance(facts, bytes) else orjson.dumps({**orjson.loads(record.value or b""), **facts})  # type: ignore[dict-item]
    put(board, SOME)
    board.apply(replace(record, value=value))
    assert read_rights(replace(record, value=value), TOPIC_ID) is None
    assert SOME == board.of(NAME, 3)


def test_records_of_others_are_not_its_business() -> None:
    """The topic holds commands, too."""
    board = Board(TOPIC_ID)
    assert [None] * 3 == [board.apply(Record("dispatcher.control", 0, 0, key, b"{}", ())) for key in (b"key:doc:1", None, b"rights:x")]


def test_what_is_read_once_more_counts_once_and_takes_nothing_back() -> None:
    """Amounts only grow while their period lasts; those of the next one begin anew."""
    board, more = Board(TOPIC_ID), replace(SOME, given={0: Decimal(1), 1: Decimal(2)})
    for rights in (SOME, more, SOME):
        put(board, rights)
    assert more.given == board.all(NAME)[3].given
    put(board, replace(SOME, period=20_001))
    assert SOME.given == board.all(NAME)[3].given


def test_those_who_want_stand_in_the_order_of_their_word() -> None:
    """The earlier goes first; of two at once the lower number."""
    board = Board(TOPIC_ID)
    for partition, since in ((0, 7.0), (1, None), (2, 5.0), (4, 5.0)):
        put(board, replace(SOME, partition=partition, since=since))
    assert [2, 4, 0] == [one.partition for one in board.wants(NAME)]
    assert [NAME] == list(board.wanted)
    for partition in (0, 2):
        put(board, replace(SOME, partition=partition, since=None))
    board.apply(written(closed("dispatcher.control", TOPIC_ID, 4, NAME)))
    assert not list(board.wanted)
    assert [0, 1, 2] == sorted(board.all(NAME))
    assert [1] == [one.partition for one in board.told_by(1)]


@given(st.decimals(0, 10_000, places=9), st.integers(1, 500))
def test_shares_add_up_to_all_of_it(usd: Decimal, partitions: int) -> None:
    """Not a millionth of a millionth more or less; the first has the rest, and all others the same."""
    shares = [share(usd, n, partitions) for n in range(partitions)]
    assert sum(shares) == usd
    assert len(set(shares[1:])) <= 1
    assert all(one >= 0 for one in shares)
