"""A message of the client as a record, on a real broker."""

from __future__ import annotations

from datetime import UTC, datetime

from dispatcher.adapters.kafka.log import LogReader
from dispatcher.core.operations.positions import parse_span
from tests.e2e.raw_produce import produce
from tests.topics import SettingsFactory

TIMEOUT_S = 30


def test_unreadable_header_names_are_noticed_however_warm_the_interpreter_is(settings: SettingsFactory) -> None:
    """Of many records every one with an unreadable name has no headers, and none of its neighbours is harmed.

    The client returns a result with an exception set; interpreters that specialise calls stop looking for that after a few.
    """
    made = settings(partitions=1)
    good, bad = ((b"ok", b"1"),), ((b"ok", b"1"), (b"\xff", b"2"), (b"ok", None))
    for number in range(120):
        produce(made.kafka.bootstrap_servers, made.topics.requests, 0, b"k", b"%d" % number, bad if number % 3 == 0 else good)
    with LogReader(made, made.topics.requests, TIMEOUT_S) as reader:
        seen = [record.headers for record in reader.read(parse_span("start", datetime.now(UTC)), until_end=True)]
    assert [None if number % 3 == 0 else (("ok", b"1"),) for number in range(120)] == seen
