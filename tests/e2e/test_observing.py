"""What a worker tells the outside: health, metrics, logs, traces; and what it never tells."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from dispatcher.adapters.kafka.membership import Membership
from tests.e2e.mirror import mirror
from tests.e2e.stage import Worker, header, stage, value
from tests.topics import SettingsFactory
from tests.waiting import eventually

SECRET = "sk-canary-7c1f9e5a2b"
KEY = "apikey:canary-team"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_health_and_metrics_add_up(settings: SettingsFactory, tmp_path: Path) -> None:
    """Every series has a name of ours, values are those of what happened, and the series of a partition go with it."""
    with stage(settings, tmp_path, partitions=4, upstream={"backoff_base_s": 0.1}) as set_up:
        first = set_up.worker()
        for path in ("/livez", "/readyz", "/startupz"):
            eventually(lambda path=path: first.get(path).status_code == httpx.codes.OK, what=path)  # type: ignore[misc]
        assert httpx.codes.NOT_FOUND == first.get("/").status_code
        set_up.submit([f"doc:{n}" for n in range(20)])
        set_up.submit(["doc:1"], "/status/404", prefix="missing")
        set_up.submit(["doc:1"], "/fault/500", prefix="down")
        set_up.submit(["doc:1"], "/echo?fault=429&retry_after=1&times=1", prefix="hinted")
        set_up.submit(["doc:1"], "/echo", prefix="foreign", upstream="nobody")
        set_up.replies().await_count(24)
        eventually(lambda: _lag(_metrics(first)) == dict.fromkeys(range(4), 0), 15, "lag 0 everywhere")
        seen = _metrics(first)
        assert {"ok": 21, "error": 1, "dead": 2} == _by(seen, "dispatcher_requests_total", "outcome")
        assert {"attempts_exhausted": 1, "unknown_upstream": 1} == _by(seen, "dispatcher_dead_letters_total", "reason")
        assert {"backoff": 2, "retry_after": 1} == _by(seen, "dispatcher_retries_total", "reason")
        assert {"sample": 1} == _by(seen, "dispatcher_throttled_total", "upstream")
        assert {"2xx": 21, "4xx": 2, "5xx": 3} == _by(seen, "dispatcher_call_duration_seconds_count", "outcome")
        assert 23 == seen["dispatcher_queue_wait_seconds_count", ()]
        assert abs(time.time() - seen["dispatcher_last_progress_timestamp_seconds", ()]) < 60
        assert {0} == set(_by(seen, "dispatcher_lane_inflight", "partition").values())
        second = set_up.worker().ready()
        eventually(lambda: len(second.live()) == 2, what="the second worker has its share")
        moved = second.live()
        for worker, theirs in ((first, set(range(4)) - moved), (second, moved)):
            eventually(lambda worker=worker, theirs=theirs: set(_lag(_metrics(worker))) == theirs, 10, "only own series")  # type: ignore[misc]
        assert not first.events("observer_failed")


def test_a_worker_without_a_partition_is_ready_once_the_group_has_it(settings: SettingsFactory, tmp_path: Path) -> None:
    """Nothing is assigned to it, so nothing tells it: the broker is asked. Others than members are not ready."""
    with stage(settings, tmp_path, partitions=1) as set_up:
        owner = set_up.worker().ready()
        standby = set_up.worker().ready()
        assert [{0}, set()] == [owner.live(), standby.live()]
        assert 2 == set_up.members()
        assert not Membership(set_up.settings).holds("nobody")


def _metrics(worker: Worker) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = list(text_string_to_metric_families(worker.get("/metrics").text))
    assert all(family.name.startswith("dispatcher_") for family in families)
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples}


def _by(seen: dict[tuple[str, tuple[tuple[str, str], ...]], float], name: str, label: str) -> dict[str, float]:
    """Add the values of one metric up by one label."""
    sums: dict[str, float] = {}
    for (found, labels), number in seen.items():
        if found == name:
            sums[dict(labels)[label]] = sums.get(dict(labels)[label], 0) + number
    return sums


def _lag(seen: dict[tuple[str, tuple[tuple[str, str], ...]], float]) -> dict[int, float]:
    return {int(partition): lag for partition, lag in _by(seen, "dispatcher_lane_lag_records", "partition").items()}


def test_a_secret_goes_to_the_callee_and_nowhere_else(settings: SettingsFactory, tmp_path: Path) -> None:
    """A canary through ok, 400, 429 and a timeout, at a callee that echoes it in body, header and status line.

    Neither logs (at debug), nor replies, nor dead letters, nor metrics hold it; nor do logs and metrics hold the lane key.
    """
    (tmp_path / "secret").write_text(f"Bearer {SECRET}")
    with mirror() as url:
        upstream = {"base_url": url, "credentials": ["canary-team"], "call_timeout_s": 0.5, "backoff_base_s": 0.1, "attempts_max": 2}
        credentials = {"canary-team": {"value_file": str(tmp_path / "secret")}}
        with stage(settings, tmp_path, partitions=1, upstream=upstream, credentials=credentials, logs={"level": "debug"}) as set_up:
            for path in ("200", "400", "429", "hang"):
                set_up.submit([KEY], f"/{path}", prefix=path)
            worker = set_up.worker()
            replies, letters = set_up.replies(), set_up.replies(set_up.settings.topics.dead_letters)
            replies.await_count(4)
            letters.await_count(2)
            echoed = value(replies.records[0])["http"]
            assert "***" == echoed["body"]["authorization"]
            assert "for ***" == echoed["headers"]["x-request-id"]
            published = str(replies.records) + str(letters.records)
            told = worker.text() + worker.get("/metrics").text
            assert ["200-0", "400-0", "429-0", "hang-0"] == [header(record, "ce_causationid") for record in replies.records]
            assert SECRET not in published + told
            assert KEY not in told
            assert "canary-team" not in worker.get("/metrics").text


def test_log_lines_are_json_with_the_promised_fields(settings: SettingsFactory, tmp_path: Path) -> None:
    """Every line is JSON with `ts`, `level`, `event`; the end of a call says whose, where and how, and belongs to its trace."""
    marks = (("traceparent", TRACE.encode()), ("kafka_correlationId", b"order-7"))
    with mirror() as url, stage(settings, tmp_path, partitions=1, upstream={"base_url": url}, logs={"level": "debug"}) as set_up:
        set_up.submit(["doc:1"], "/200", headers=marks)
        worker = set_up.worker()
        reply = set_up.replies().await_count(1)[0]
        assert TRACE == value(reply)["http"]["body"]["traceparent"]
        assert (TRACE, "order-7") == (header(reply, "traceparent"), header(reply, "kafka_correlationId"))
        lines = [json.loads(line) for line in worker.text().splitlines()]
        assert all({"ts", "level", "event"} <= set(line) for line in lines)
        (ended,) = worker.events("call_ended")
        told = {"request_id": "r-0", "correlation_id": "order-7", "trace_id": TRACE.split("-")[1], "partition": 0, "offset": 0}
        told |= {"topic": set_up.settings.topics.requests, "upstream": "sample", "attempt": 1, "outcome": "ok", "http_status": 200}
        assert told == {name: ended.get(name) for name in told}
        assert {"key_hash", "duration_ms", "error_type"} <= set(ended)
        assert 12 == len(ended["key_hash"])
