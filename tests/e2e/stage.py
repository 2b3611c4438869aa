"""The stage of the end-to-end tests: a sample upstream, workers as real processes, and a reader of replies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import orjson
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec  # `admin` shows it, but not to a strict type checker

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import connect, facts_of
from dispatcher.adapters.kafka.coordinator import REQUEST_S
from dispatcher.adapters.kafka.records import record_of
from dispatcher.client import Submitter, stamp
from dispatcher.core.messages.record import Header, Record
from dispatcher.core.messages.submission import request
from dispatcher.settings import Settings
from tests import loopback
from tests.e2e.conftest import clean_environment
from tests.topics import SettingsFactory
from tests.waiting import eventually

_T = TypeVar("_T")
ROOT = Path(__file__).parents[2]
READY_S = 60
BATCH_MAX = 500


class Process:
    """A child process; its output goes to a file. Killed at the end of the test whatever happened."""

    def __init__(self, name: str, arguments: list[str], folder: Path, *, python: Path = Path(sys.executable)) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._out = self.log.open("wb")
        self.popen = subprocess.Popen(
            [python, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            env=clean_environment() | {"PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"},
            cwd=folder,
        )

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def wait(self, within_s: float = READY_S) -> int:
        """Wait for its end and give its exit code; negative for a signal. One that does not end is made to say where it stands."""
        try:
            return self.popen.wait(within_s)
        except subprocess.TimeoutExpired as late:
            self.popen.send_signal(signal.SIGABRT)  # faulthandler writes what each thread was doing
            self.popen.wait()
            raise AssertionError(f"{self.name} has not ended within {within_s} s:\n{self.text()[-8000:]}") from late

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def events(self, name: str) -> list[dict[str, Any]]:
        """Give the log lines of one event."""
        lines = [line for line in self.text().splitlines() if line.startswith("{") and f'"{name}"' in line]
        return [event for line in lines if (event := json.loads(line)).get("event") == name]

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.kill()
            self.popen.wait()
        self._out.close()


class Worker(Process):
    """A worker process."""

    def live(self) -> set[int]:
        """Name the partitions that are its own, as its log tells."""
        found: set[int] = set()
        for line in self.text().splitlines():
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "live":
                found.add(event["partition"])
            elif event.get("event") in {"revoked", "lost"}:
                found -= set(event["partitions"])
        return found

    def url(self) -> str:
        """Give the base of its health pages, once it says where they are."""
        started = eventually(lambda: self.events("started") or self.popen.poll() is not None, READY_S, f"worker {self.name} has started")
        assert isinstance(started, list), f"worker {self.name} ended: {self.text()[-2000:]}"
        return f"http://127.0.0.1:{started[0]['http_port']}"

    def get(self, path: str) -> httpx.Response:
        return loopback.get(self.url() + path, timeout_s=5)

    def ready(self) -> Self:
        """Wait until `/readyz` says so."""
        eventually(lambda: self.get("/readyz").status_code == httpx.codes.OK, READY_S, f"worker {self.name} is not ready")
        return self


class Replies:
    """Reads the reply topic from its start, read_committed, whenever it is asked."""

    def __init__(self, settings: Settings, topic: str | None = None) -> None:
        self.records: list[Record] = []
        self.arrived: list[float] = []  # monotonic, beside each record
        self.errors: Counter[str] = Counter()  # that the reader has met
        self._consumer: Consumer = clients.consumer(settings)
        topic = topic or settings.topics.replies
        count = facts_of(connect(settings, 30), [topic])[topic].partitions
        self._consumer.assign([TopicPartition(topic, n, 0) for n in range(count)])

    def read(self) -> list[Record]:
        """Take what is there by now; what goes on arriving meanwhile is for the next time."""
        full = True
        while full:
            messages = self._consumer.consume(BATCH_MAX, 0.05)
            full = len(messages) == BATCH_MAX
            now = time.monotonic()
            found = [record_of(message) for message in messages if message.error() is None]
            self.errors.update(error.name() for message in messages if (error := message.error()) is not None)
            self.records += found
            self.arrived += [now] * len(found)
        return self.records

    def await_count(self, count: int, within_s: float = READY_S) -> list[Record]:
        """Wait until that many are there."""
        try:
            eventually(lambda: len(self.read()) >= count, within_s, f"{count} records")
        except AssertionError as late:
            ends = {one.partition: self._consumer.get_watermark_offsets(one, 5) for one in self._consumer.assignment()}
            raise AssertionError(f"{late}; got {len(self.records)}, the log's edges: {ends}, met: {dict(self.errors)}") from None
        return self.records

    def timed(self) -> list[tuple[Record, float]]:
        """Give each record with the monotonic time at which it was seen here."""
        return list(zip(self.records, self.arrived, strict=True))

    def close(self) -> None:
        self._consumer.close()


class Stage:
    """Settings with an upstream `sample`, and everything that runs on them."""

    def __init__(
        self,
        factory: SettingsFactory,
        folder: Path,
        *,
        latency_ms: float = 0,
        witness_events: int = 200_000,
        quota: tuple[str, ...] = (),
        **sections: Any,
    ) -> None:
        self.folder = folder
        self._children: list[Process | Replies] = []
        upstream = ["-m", "dispatcher", "sample-upstream", "--port", "0", "--latency-ms", str(latency_ms)]
        upstream += ["--witness-events", str(witness_events), *quota]
        self._upstream = Process("upstream", upstream, folder)
        self._children.append(self._upstream)
        try:
            self._make_settings(factory, sections)
        except BaseException:
            self.close()
            raise
        self._workers = 0

    def _make_settings(self, factory: SettingsFactory, sections: dict[str, Any]) -> None:
        self.upstream_url = eventually(lambda: self._upstream.text().split("\n")[0] if "\n" in self._upstream.text() else "", READY_S)
        sample = {"base_url": self.upstream_url, "allow_private": True} | sections.pop("upstream", {})
        upstreams = {"sample": sample} | sections.pop("upstreams", {})
        self.settings = factory(upstreams=upstreams, **sections)

    def worker(
        self,
        *,
        fault: tuple[str, int] | None = None,
        counted: bool = False,
        program: tuple[str, ...] = (),
        broker: str | None = None,
        **settings: Any,
    ) -> Worker:
        """Start a worker; `settings` are for its [worker] table, `fault` kills it at a point of its nth transaction.

        One that is `counted` tells how much its consumer has received (events `received`). `program` is a module and its arguments before
        the configuration, in place of the product; `broker` an address in place of the stage's.
        """
        self._workers += 1
        name = f"worker{self._workers}"
        config = self.folder / f"{name}.json.toml"
        config.write_text(self._config(broker, {"slot": f"{self.settings.topics.prefix}-{name}", "http_port": 0} | settings))
        if fault is not None:
            program = ("tests.e2e.faulty", fault[0], str(fault[1]))
        elif counted:
            program = ("tests.e2e.counted",)
        arguments = [*program, str(config)] if program else ["dispatcher", "--config", str(config), "worker"]
        worker = Worker(name, ["-m", *arguments], self.folder)
        self._children.append(worker)
        return worker

    def adopt(self, start: Callable[[int], Worker]) -> Worker:
        """Start a worker of another kind; `start` is told its number."""
        self._workers += 1
        worker = start(self._workers)
        self._children.append(worker)
        return worker

    def replies(self, topic: str | None = None) -> Replies:
        replies = Replies(self.settings, topic)
        self._children.append(replies)
        return replies

    def submit(
        self, keys: list[str], path: str = "/echo", *, prefix: str = "r", headers: tuple[Header, ...] = (), **fields: Any
    ) -> list[str]:
        """Submit one request per key, in this order, with ids that tell their order."""
        submissions = []
        for number, key in enumerate(keys):
            query = f"{path}{'&' if '?' in path else '?'}key={key}"
            value = orjson.dumps({"upstream": "sample", "path": query, "body": {"n": number}} | fields)
            submission = request(key, value, stamp(request_id=f"{prefix}-{number}", settings=self.settings))
            submissions.append(replace(submission, headers=(*submission.headers, *headers)))
        with Submitter(self.settings) as submitter:
            for outcome in submitter.submit_many(submissions):
                if isinstance(outcome, Exception):
                    raise outcome
        return [str(submission.request_id) for submission in submissions]

    def witness(self) -> dict[str, Any]:
        """Give the upstream's judgement."""
        summary: dict[str, Any] = loopback.get(f"{self.upstream_url}/witness/summary").json()
        return summary

    def positions(self) -> tuple[dict[int, int], dict[int, int]]:
        """Give the committed positions and the ends of the request topic. An open transaction's position does not count yet."""
        topic, group = self.settings.topics.requests, self.settings.worker.group
        parts = [TopicPartition(topic, n) for n in range(self.settings.topics.partitions)]
        asked = ConsumerGroupTopicPartitions(group, parts)
        admin = clients.admin(self.settings)
        found = _answer(admin.list_consumer_group_offsets([asked], require_stable=False, request_timeout=REQUEST_S)[group])
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call] # theirs
        ends = admin.list_offsets(dict.fromkeys(parts, latest), request_timeout=10)
        committed = {part.partition: part.offset for part in found.topic_partitions or ()}
        return committed, {part.partition: future.result(15).offset for part, future in ends.items()}

    def members(self) -> int:
        """Count the members of the workers' group."""
        group, admin = self.settings.worker.group, clients.admin(self.settings)
        return len(_answer(admin.describe_consumer_groups([group], request_timeout=REQUEST_S)[group]).members)

    def calls(self, **like: Any) -> list[dict[str, Any]]:
        """Give the calls that the upstream saw, in the order of their start: `calls(id="r-1")`. Ended ones have `end_s` and `outcome`."""
        found: dict[int, dict[str, Any]] = {}
        for line in loopback.get(f"{self.upstream_url}/witness").text.splitlines():
            event = orjson.loads(line)
            if event["event"] == "start":
                found[event["call"]] = event
            elif event["call"] in found:
                found[event["call"]] |= {"end_s": event["t_s"], "outcome": event["outcome"], "status": event["status"]}
        return [call for call in found.values() if all(call[name] == value for name, value in like.items())]

    def close(self) -> None:
        for child in reversed(self._children):
            child.close()

    def _config(self, broker: str | None, worker: Mapping[str, Any]) -> str:
        settings = self.settings.model_dump(mode="json", exclude_defaults=True)
        properties = {name: value.get_secret_value() for name, value in self.settings.kafka.properties.items()}
        settings["kafka"] = properties | {"bootstrap_servers": broker or settings["kafka"]["bootstrap_servers"]}
        settings["worker"] = {**settings.get("worker", {}), **worker}
        return _toml(settings)


def _answer(asked: Future[_T]) -> _T:
    """Wait for a coordinator's answer; without one the client goes, and the request with it (see `REQUEST_S`)."""
    try:
        return asked.result(15)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


@contextmanager
def stage(factory: SettingsFactory, folder: Path, **options: Any) -> Iterator[Stage]:
    """Set the stage, and leave nothing running."""
    made = Stage(factory, folder, **options)
    try:
        yield made
    finally:
        made.close()


def ids(records: list[Record]) -> Counter[str]:
    """Count replies per request id."""
    return Counter(header(record, "ce_causationid") for record in records)


def header(record: Record, name: str) -> str:
    """Give the last header of this name as text; empty where there is none."""
    return next((content.decode() for n, content in reversed(record.headers or ()) if n == name and content is not None), "")


def value(record: Record) -> dict[str, Any]:
    """Read the value of a reply."""
    read: dict[str, Any] = orjson.loads(record.value or b"null")
    return read


def by_request(records: list[Record]) -> dict[str, Record]:
    """Order replies by the id of their request; every request has one."""
    assert not (many := {name: count for name, count in ids(records).items() if count > 1}), many
    return {header(record, "ce_causationid"): record for record in records}


def assert_all_is_well(set_up: Stage, names: list[str], records: list[Record], *, duplicates: bool = False) -> None:
    """One reply each, in order; no call out of order, none repeated but by another owner; everything committed.

    `duplicates`: at-least-once mode after a crash, where a reply may stand twice.
    """
    assert set(names) == set(ids(records) if duplicates else by_request(records))
    by_key = set_up.settings.worker.ordering == "key"
    offsets: dict[tuple[int, bytes | None], list[int]] = {}
    for record in records:
        if header(record, "dispatcher-status") != "cancelled":  # whose reply may come out of turn
            lane = record.partition, record.key if by_key else None
            offsets.setdefault(lane, []).append(int(header(record, "dispatcher-request-offset")))
    assert duplicates or all(sorted(found) == found for found in offsets.values())
    seen = set_up.witness()
    assert {"partition": 0, "key": 0} == seen["out_of_order"], seen["findings"]
    assert {"partition": 0, "key": 0} == seen["not_repeated"]
    assert [0, 0] == [overlaps["same_epoch"] for overlaps in seen["overlaps"].values()]
    assert 0 == seen["repeated"]["same_epoch"]
    eventually(lambda: len({tuple(sorted(part.items())) for part in set_up.positions()}) == 1, 30, "committed == end")


def _toml(tables: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """Write nested tables as TOML: JSON's spelling of strings, numbers and lists is TOML's too."""
    given = {name: entry for name, entry in tables.items() if entry is not None}
    plain = [f"{json.dumps(name)} = {json.dumps(entry)}" for name, entry in given.items() if not isinstance(entry, Mapping)]
    head = [f"[{'.'.join(json.dumps(part) for part in path)}]"] if path and plain else []
    rest = [_toml(entry, (*path, name)) for name, entry in given.items() if isinstance(entry, Mapping)]
    return "\n".join([*head, *plain, *rest])


def kill(process: Process) -> None:
    """SIGKILL."""
    os.kill(process.popen.pid, signal.SIGKILL)
    process.wait()


def is_stopped(process: Process) -> bool:
    """Tell whether it stands still (SIGSTOP)."""
    return Path(f"/proc/{process.popen.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
