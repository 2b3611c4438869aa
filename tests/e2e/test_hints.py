"""What a callee says of another call, on the broker: whom a hint holds, which of its spellings counts, and what is not called again."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.client.lanes import Lanes
from dispatcher.core.operations.lane_board import lane_rows
from tests.e2e.stage import Stage, by_request, header, stage, value
from tests.topics import SettingsFactory
from tests.waiting import eventually

pytestmark = pytest.mark.soak
UPSTREAM = {"attempts_max": 2, "backoff_base_s": 0.1}
HELD = "doc:held"
OTHERS = [f"doc:{n % 5}" for n in range(20)]
# What is asked of the callee, and its body; then: status, reason, calls.
KINDS = {
    "soon": ("/echo?fault=429&retry_after=3000&retry_after_ms=200&times=1", {}, ("ok", None, 2)),
    "hinted-down": ("/echo?fault=529&retry_after_ms=200&times=1", {}, ("ok", None, 2)),
    "too-late": ("/fault/429?retry_after=3600", {}, ("dead", "deadline_exceeded", 1)),
    "broke": ("/fault/quota", {}, ("dead", "quota_exhausted", 1)),
    "bad-inside": ("/echo", {"error": {"code": 400, "message": "x"}}, ("error", None, 1)),
    "down-inside": ("/echo", {"error": {"code": 502, "message": "x"}}, ("dead", "attempts_exhausted", 2)),
    "no-error": ("/echo", {"error": None, "output": []}, ("ok", None, 1)),
    "locked": ("/fault/409", {}, ("dead", "attempts_exhausted", 2)),
}


def _why(set_up: Stage, key: str) -> str | None:
    """Tell why the lane of a key stands, as its worker says."""
    rows = lane_rows(Lanes(set_up.settings, timeout_s=60).facts())
    return next((row.why for row in rows if row.key == key), None)


def test_a_hint_in_milliseconds_holds_its_key_alone(settings: SettingsFactory, tmp_path: Path) -> None:
    """The key is not called until the callee says, nor is what stands behind it; others of its partition are all answered meanwhile."""
    worker = {"ordering": "key", "report_interval_s": 0.2}
    with stage(settings, tmp_path, partitions=1, upstream=UPSTREAM, worker=worker) as set_up:
        set_up.worker()
        set_up.submit([HELD], "/echo?fault=429&retry_after_ms=500000", prefix="held")
        set_up.submit([HELD], prefix="behind")
        eventually(lambda: set_up.calls(id="held-0", status=429), 60, "the first call")
        names = set_up.submit(OTHERS)
        replies = set_up.replies().await_count(len(OTHERS))
        assert set(names) == set(by_request(replies))
        eventually(lambda: _why(set_up, HELD) == "retry_after", 60, "the lane says why it stands")
        assert ["held-0"] == [call["id"] for call in set_up.calls(key=HELD)]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_each_kind_of_answer_ends_as_it_should(settings: SettingsFactory, tmp_path: Path, ordering: str) -> None:
    """So many calls, that end, and behind each a request that succeeds; who is given up knows when to come again, if anybody said so."""
    with stage(settings, tmp_path, partitions=1, upstream=UPSTREAM, worker={"ordering": ordering}) as set_up:
        for name, (path, body, _) in KINDS.items():
            set_up.submit([f"doc:{name}"], path, prefix=name, body=body)
            set_up.submit([f"doc:{name}"], prefix=f"after-{name}")
        set_up.worker()
        letters = set_up.replies(set_up.settings.topics.dead_letters)
        found = by_request(set_up.replies().await_count(2 * len(KINDS)))
        values = {name: value(found[f"{name}-0"]) for name in KINDS}
        ends = {name: (said["status"], said.get("reason"), len(set_up.calls(id=f"{name}-0"))) for name, said in values.items()}
        assert {name: end for name, (_, _, end) in KINDS.items()} == ends
        assert ["too-late"] == [name for name, said in values.items() if "retry_at" in said.get("error", {})]
        assert {"ok"} == {header(found[f"after-{name}-0"], "dispatcher-status") for name in KINDS}
        dead = {name: reason for name, (_, _, (status, reason, _)) in KINDS.items() if status == "dead"}
        reasons = {header(record, "ce_id")[:-2]: header(record, "__dispatcher.errors.reason") for record in letters.await_count(len(dead))}
        assert dead == reasons
