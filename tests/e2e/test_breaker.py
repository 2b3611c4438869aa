"""A callee that is down, on the broker: few calls find that out, nothing is dead-lettered for it, and it is not overrun when it is back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from threading import Event

import httpx
import orjson
import pytest

from dispatcher.client import Submitter, stamp
from dispatcher.client.lanes import Lanes
from dispatcher.core.messages.submission import Submission, request
from dispatcher.core.operations.lane_board import lane_rows
from tests.e2e.stage import Stage, Worker, assert_all_is_well, header, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually, let_pass

KEYS = 20
FAILURES = 5
# The whole of what is asked for: requests a second, what goes before the outage, how long that is, and one open period.
RATE, BEFORE_S, OUTAGE_S, OPEN_S = 100, 15.0, 60.0, 30.0
# When a log line was written is when the loop came to it.
LINE_S = 0.1


def outage(set_up: Stage, status: int | None) -> None:
    """The callee refuses every call from now on; None: it is well again."""
    url = f"{set_up.upstream_url}/outage"
    answer = httpx.delete(url, trust_env=False) if status is None else httpx.put(url, params={"fault": str(status)}, trust_env=False)
    answer.raise_for_status()


def reasons(set_up: Stage) -> set[str]:
    """Why lanes stand, as their worker says."""
    return {row.why for row in lane_rows(Lanes(set_up.settings, timeout_s=60).facts())}


def breaker(worker: Worker, name: str) -> float | None:
    """A number of the worker's breaker."""
    lines = worker.get("/metrics").text.splitlines()
    found = [line.split()[-1] for line in lines if line.startswith(f'dispatcher_breaker_{name}{{upstream="sample"}}')]
    return float(found[0]) if found else None


@pytest.mark.parametrize("ordering", ["key", pytest.param("partition", marks=pytest.mark.soak)])
def test_an_outage_costs_few_calls_and_no_request(settings: SettingsFactory, tmp_path: Path, ordering: str) -> None:
    """Lanes wait and say so, one probe a second is sent, and when the callee is back all succeed, in order."""
    worker = {"ordering": ordering, "report_interval_s": 0.2}
    upstream = {"breaker_open_s": 1, "backoff_base_s": 0.1}
    with stage(settings, tmp_path, partitions=KEYS, upstream=upstream, worker=worker) as set_up:
        one = set_up.worker().ready()
        replies, letters = set_up.replies(), set_up.replies(set_up.settings.topics.dead_letters)
        assert 0 == breaker(one, "state")
        outage(set_up, 503)
        names = set_up.submit([f"doc:{n}" for n in range(3 * KEYS)])
        eventually(lambda: "breaker" in reasons(set_up), 60, "a lane says why it stands")
        eventually(lambda: breaker(one, "state") == 2, 60, "the metrics show it")
        eventually(lambda: len(one.events("breaker_half_open")) >= 2, 60, "a second probe")
        outage(set_up, None)
        assert_all_is_well(set_up, names, replies.await_count(len(names)))
        probes, failed = len(one.events("breaker_half_open")), [call for call in set_up.calls() if call["status"] == 503]
        assert len(failed) <= FAILURES + 3 * KEYS + probes
        assert {"ok"} == {header(record, "dispatcher-status") for record in replies.records}
        assert ([], 0) == (letters.read(), breaker(one, "state"))
        assert len(one.events("breaker_open")) == breaker(one, "opens_total")
        assert 1 == len(one.events("breaker_closed"))


def _steady(ending: Event) -> Iterator[Submission | None]:
    """So many requests a second, over 200 keys, until they are to end."""
    began, n = time.monotonic(), 0
    while not ending.is_set():
        key = f"doc:{n % 200}"
        value = orjson.dumps({"upstream": "sample", "path": f"/echo?key={key}", "body": {"n": n}})
        yield request(key, value, stamp(request_id=f"r-{n}"))
        n += 1
        if (wait_s := began + n / RATE - time.monotonic()) > 0:
            yield None
            ending.wait(wait_s)


def _submitted(set_up: Stage, ending: Event) -> list[str]:
    with Submitter(set_up.settings) as submitter:
        receipts = list(submitter.submit_many(_steady(ending)))
    assert not [one for one in receipts if isinstance(one, Exception)]
    return [f"r-{n}" for n in range(len(receipts))]


@pytest.mark.soak
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_minute_of_refusals_under_a_hundred_requests_a_second(settings: SettingsFactory, tmp_path: Path, ordering: str) -> None:
    """Calls made meanwhile: those that it takes to see it, those in flight, and one probe per open period.

    Nothing is dead-lettered, order is kept, and in the first second after it closes there are twice as many calls as before at most.
    """
    with stage(settings, tmp_path, partitions=12, latency_ms=20, worker={"ordering": ordering}) as set_up:
        worker = set_up.worker().ready()
        ending = Event()
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(_submitted, set_up, ending)
            let_pass(BEFORE_S, "the load is steady")
            outage(set_up, 503)
            began = time.monotonic()
            let_pass(OUTAGE_S, "the callee has refused for a minute", since=began)
            outage(set_up, None)
            over = time.monotonic()
            eventually(lambda: worker.events("breaker_closed"), OPEN_S + 60, "the breaker has closed")
            let_pass(5, "requests go on coming while those that waited are called")
            ending.set()
            names = sending.result(60)
        # Made only now: readers that are not asked for minutes read nothing any more.
        replies, letters = set_up.replies(), set_up.replies(set_up.settings.topics.dead_letters)
        assert_all_is_well(set_up, names, replies.await_count(len(names), 120))
        assert {"ok"} == {header(record, "dispatcher-status") for record in replies.records}
        assert [] == letters.read()
        offset_s = set_up.witness()["monotonic_to_unix_s"]
        opened, closed = (
            datetime.fromisoformat(worker.events(f"breaker_{name}")[0]["ts"]).timestamp() - offset_s for name in ("open", "closed")
        )
        calls = [call for call in set_up.calls() if began <= call["t_s"] < over]
        probes = len([call for call in calls if call["t_s"] > opened + LINE_S])
        in_flight = len(calls) - probes - FAILURES
        first = len([call for call in set_up.calls() if closed < call["t_s"] <= closed + 1])
        told = f"in the outage {len(calls)} calls: {FAILURES} + {in_flight} in flight + {probes} probes"
        print(f"{len(names)} requests; {told}; {first} in the second after it closed")
        assert probes <= 1 + OUTAGE_S / OPEN_S
        assert in_flight <= 12 if ordering == "partition" else in_flight <= RATE * 0.2
        assert first <= 2 * RATE
