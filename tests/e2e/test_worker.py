"""One worker: it tries again in place, ends as it is told to, and says how it is."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from dispatcher.core.messages.record import Record
from tests.e2e.stage import Stage, by_request, header, stage, value
from tests.topics import SettingsFactory
from tests.waiting import eventually

UPSTREAM = {"call_timeout_s": 1.5, "backoff_base_s": 0.2, "backoff_max_s": 0.4}
READY_WITHIN_S = 1.0


class Played:
    """What became of some awkward requests: replies and dead letters by request id."""

    def __init__(self, played: Stage, replies: list[Record], letters: list[Record]) -> None:
        self.stage = played
        self.replies = by_request(replies)
        self.letters = {header(record, "ce_id"): record for record in letters}


@pytest.fixture(scope="module")
def played(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Run one worker over one request of each kind, all in one lane, with one that succeeds behind each."""
    factory = SettingsFactory(kafka, f"t-{uuid.uuid4().hex[:12]}")
    paths = {
        "twice503": "/echo?fault=503&times=2",
        "hinted": "/echo?fault=429&retry_after=1&times=3",
        "down": "/fault/500",
        "missing": "/status/404",
        "hangs": "/echo?fault=hang&times=1",
        "resets": "/echo?fault=reset&times=1",
    }
    with stage(factory, tmp_path_factory.mktemp("stage"), partitions=1, upstream=UPSTREAM, logs={"level": "debug"}) as made:
        for name, path in paths.items():
            made.submit(["doc:1"], path, prefix=name)
            made.submit(["doc:1"], prefix=f"after-{name}")
        made.worker()
        replies, letters = made.replies(), made.replies(made.settings.topics.dead_letters)
        replies.await_count(2 * len(paths))
        yield Played(made, replies.records, letters.await_count(1))
    factory.clean()


def test_a_callee_that_is_busy_is_asked_again_under_the_same_idempotency_key(played: Played) -> None:
    """503 twice, then 200: three calls of the same id, numbered, and the reply says three attempts."""
    calls = played.stage.calls(id="twice503-0")
    assert [(1, 503), (2, 503), (3, 200)] == [(call["attempt"], call["status"]) for call in calls]
    reply = played.replies["twice503-0"]
    assert ("ok", 3) == (value(reply)["status"], value(reply)["attempts"])
    assert ("ok", "3", "200") == tuple(header(reply, f"dispatcher-{name}") for name in ("status", "attempt", "http-status"))


def test_a_hint_spends_no_attempt(played: Played) -> None:
    """429 with Retry-After three times, three attempts allowed: the fourth call succeeds, and each one waited as told."""
    calls = played.stage.calls(id="hinted-0")
    assert [429, 429, 429, 200] == [call["status"] for call in calls]
    assert all(later["t_s"] - earlier["end_s"] >= 1 for earlier, later in pairwise(calls))
    assert "ok" == value(played.replies["hinted-0"])["status"]


def test_a_callee_that_is_down_costs_three_calls_and_a_dead_letter(played: Played) -> None:
    """500 for ever: exactly `attempts_max` calls, one `dead` reply and one dead letter, and the next request of the lane runs."""
    assert 3 == len(played.stage.calls(id="down-0"))
    reply = value(played.replies["down-0"])
    assert ("dead", "attempts_exhausted", 3) == (reply["status"], reply["reason"], reply["attempts"])
    assert ["down-0"] == list(played.letters)
    letter = played.letters["down-0"]
    assert "attempts_exhausted" == header(letter, "__dispatcher.errors.reason")
    assert "500" == header(letter, "__dispatcher.errors.http.status")
    assert "ok" == value(played.replies["after-down-0"])["status"]


def test_a_final_answer_is_the_reply(played: Played) -> None:
    """404: one call, status `error`, no dead letter."""
    assert 1 == len(played.stage.calls(id="missing-0"))
    assert ("error", 404) == (value(played.replies["missing-0"])["status"], value(played.replies["missing-0"])["http"]["status"])


@pytest.mark.parametrize(("name", "ending"), [("hangs", "client_closed"), ("resets", "reset")])
def test_a_call_without_an_answer_spends_an_attempt(played: Played, name: str, ending: str) -> None:
    """A timeout, a reset: the call may have been executed; it is made again under the same id, and spends an attempt."""
    assert [ending, "answered"] == [call["outcome"] for call in played.stage.calls(id=f"{name}-0")]
    assert ("ok", 2) == (value(played.replies[f"{name}-0"])["status"], value(played.replies[f"{name}-0"])["attempts"])


def test_retries_stay_in_place(played: Played) -> None:
    """Nothing overtakes a request that is tried again: calls and replies are in log order, without overlap."""
    summary = played.stage.witness()
    assert {"partition": 0, "key": 0} == summary["out_of_order"], summary["findings"]
    assert {"same_epoch": 0, "other_epoch": 0} == summary["overlaps"]["partition"]
    offsets = [int(header(record, "dispatcher-request-offset")) for record in played.replies.values()]
    assert sorted(offsets) == offsets


def test_a_call_in_hand_is_finished_on_sigterm(settings: SettingsFactory, tmp_path: Path) -> None:
    """SIGTERM during a call of 3 s: `/readyz` turns 503 within a second, exit 0, one reply, no second call, the group is empty."""
    with stage(settings, tmp_path, partitions=1) as set_up:
        worker = set_up.worker().ready()
        set_up.submit(["doc:1"], "/echo?latency_ms=3000", prefix="slow")
        set_up.submit(["doc:1"], prefix="next")
        eventually(set_up.calls, what="the call began")
        worker.signal(signal.SIGTERM)
        eventually(lambda: worker.get("/readyz").status_code == httpx.codes.SERVICE_UNAVAILABLE, READY_WITHIN_S, "/readyz is 503")
        assert httpx.codes.OK == worker.get("/livez").status_code
        assert 0 == worker.wait()
        assert 0 == set_up.members()
        assert ["slow-0"] == list(by_request(set_up.replies().await_count(1)))
        assert 1 == len(set_up.calls())
        set_up.worker().ready()
        assert {"slow-0", "next-0"} == set(by_request(set_up.replies().await_count(2)))
        assert 2 == len(set_up.calls())


def test_a_call_longer_than_the_grace_is_left_to_the_next_owner(settings: SettingsFactory, tmp_path: Path) -> None:
    """SIGTERM with a call that hangs: after `drain_s` it is cut, the log says so, the offset stays, exit 0."""
    with stage(settings, tmp_path, partitions=1) as set_up:
        worker = set_up.worker(drain_s=1).ready()
        set_up.submit(["doc:1"], "/fault/hang?times=1")
        eventually(set_up.calls, what="the call began")
        before = set_up.positions()[0]
        signalled = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert 0 == worker.wait()
        assert 1 <= time.monotonic() - signalled < 10
        assert worker.events("drain_expired")
        assert before == set_up.positions()[0]
        assert "client_closed" == eventually(lambda: set_up.calls()[0].get("outcome"))
        set_up.worker()
        assert "ok" == value(set_up.replies().await_count(1)[0])["status"]
        first, second = set_up.calls()
        assert second["epoch"] > first["epoch"]
        assert second["id"] == first["id"]


def test_a_second_signal_ends_it_at_once(settings: SettingsFactory, tmp_path: Path) -> None:
    """Whoever asks twice does not want to wait: the process is gone at once, with 130."""
    with stage(settings, tmp_path, partitions=1) as set_up:
        worker = set_up.worker().ready()
        set_up.submit(["doc:1"], "/fault/hang")
        eventually(set_up.calls, what="the call began")
        worker.signal(signal.SIGTERM)
        eventually(lambda: worker.events("stopping"))
        worker.signal(signal.SIGINT)
        assert 130 == worker.wait(2)


def test_a_worker_with_nothing_in_hand_ends_at_once(settings: SettingsFactory, tmp_path: Path) -> None:
    """SIGTERM while idle, and while a request waits as it was told: exit 0 within seconds; what waited is called when its wait is over."""
    with stage(settings, tmp_path, partitions=1) as set_up:
        for fault in ("", "/echo?fault=503&times=1&retry_after=12"):
            worker = set_up.worker().ready()
            if fault:
                set_up.submit(["doc:1"], fault)
                eventually(lambda: [call for call in set_up.calls() if "end_s" in call], what="the first call ended")
            signalled = time.monotonic()
            worker.signal(signal.SIGTERM)
            assert 0 == worker.wait()
            assert time.monotonic() - signalled < 8
            assert not worker.events("drain_expired")
        set_up.worker()
        assert "ok" == value(set_up.replies().await_count(1)[0])["status"]
