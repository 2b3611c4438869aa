"""Requests that are sent again under their ids: answered from the recorded reply, across owners of the partition and crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dispatcher.client.submitter import Submitter, stamp
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.submission import request
from tests.e2e.history import assert_guarantees, judged_stage
from tests.e2e.stage import Stage, header, kill, value
from tests.topics import SettingsFactory

KEY = "doc:1"


def submit(of: Stage, name: str, path: str = "/echo?a=1") -> None:
    """Submit this request, as often as a client does that hears nothing."""
    content = b'{"upstream":"sample","path":"%s","body":{"n":1}}' % path.encode()
    with Submitter(of.settings) as submitter:
        submitter.submit(request(KEY, content, stamp(request_id=name)))


def told(records: list[Record]) -> list[tuple[str, str, bool]]:
    """Id, status and mark of each reply."""
    return [(header(one, "ce_causationid"), header(one, "dispatcher-status"), value(one).get("duplicate", False)) for one in records]


def http(record: Record) -> Any:
    """The callee's answer in a reply."""
    return value(record)["http"]


@pytest.mark.faults
def test_what_was_answered_before_a_crash_is_answered_after_it(settings: SettingsFactory, tmp_path: Path) -> None:
    """SIGKILL between the two: the next owner reads the journal before its first call, and the recorded reply for the second one.

    It says the callee's answer byte for byte, to the second one's own place; the same id for something else is a dead letter.
    """
    with judged_stage(settings, tmp_path, partitions=1) as set_up:
        replies, letters = set_up.replies(), set_up.replies(set_up.settings.topics.dead_letters)
        first = set_up.worker().ready()
        submit(set_up, "r-1")
        submit(set_up, "r-2", "/echo?fault=404")
        replies.await_count(2)
        kill(first)
        submit(set_up, "r-1")
        submit(set_up, "r-2", "/echo?fault=404")
        submit(set_up, "r-1", "/echo?a=2")
        heir = set_up.worker()
        records = replies.await_count(5)
        again = [("r-1", "ok", True), ("r-2", "error", True), ("r-1", "dead", False)]
        assert [("r-1", "ok", False), ("r-2", "error", False), *again] == told(records)
        assert [http(records[0]), http(records[1])] == [http(records[2]), http(records[3])]
        assert ["0", "1", "2", "3", "4"] == [header(record, "dispatcher-request-offset") for record in records]
        assert ["id_conflict"] == [header(letter, "__dispatcher.errors.reason") for letter in letters.await_count(1)]
        assert {"r-1": 1, "r-2": 1} == {name: len(set_up.calls(id=name)) for name in ("r-1", "r-2")}
        assert "dispatcher_duplicates_total 2.0" in heir.get("/metrics").text
        assert_guarantees(set_up, first, heir)
