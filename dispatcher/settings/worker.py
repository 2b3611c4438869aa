"""What one worker process may hold, and how long things may take."""

from __future__ import annotations

import os
import socket
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dispatcher.settings.section import MIB, Count, Positive, Section


class WorkerSettings(Section):
    """One worker process: its place in the group, what it may hold, and how long things may take."""

    group: Annotated[str, Field(min_length=1, max_length=200)] = "dispatcher"
    # Stable name of this worker: the transactional.id is group + slot, so that a restart settles what its predecessor left open. One that
    # is given is also its name in the group (static membership) wherever that helps: see `adapters/kafka/seat.py`. The default one never
    # comes back.
    slot: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,150}$")] = Field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    ordering: Literal["partition", "key"] = "partition"
    # Whose turn it is in a lane: the oldest request's; or its agents take turns (start-time fair queueing), and order is per agent.
    fairness: Literal["fifo", "agent"] = "fifo"
    publishing: Literal["exactly_once", "at_least_once"] = "exactly_once"
    protocol: Literal["auto", "consumer", "cooperative", "eager"] = "auto"
    # What an orderly end does with the partitions of a worker that has a slot: the others get them at once, or they are kept for a restart
    # in its place, until its session times out; a worker that crashed may then not be back before that.
    on_stop: Literal["leave", "keep"] = "leave"
    # Open calls of this process at once, and of one of its partitions (lanes per key; a strict partition has one).
    inflight_max: Count = 1000
    partition_inflight_max: Count = 1000
    # Client library for calls. Both give the same results to hostile callees; aiohttp takes a fifth of the CPU per call.
    http_engine: Literal["aiohttp", "httpx"] = "aiohttp"
    # Time for calls in hand when partitions are taken away or on SIGTERM; longer than call_timeout_s, so that they are finished, not cut.
    drain_s: Positive = 75
    # Buffer of one partition: what it can finish in drain_s, since kept partitions live on it while another drains. Thresholds, as the two
    # below: from there on nothing more is fetched, and what was fetched ahead (some 12 MiB of a partition) comes all the same.
    lane_buffer_max_records: Count = 4000
    lane_buffer_max_bytes: Count = 16 * MIB
    # The same for all partitions of this worker together: what one process may hold in memory.
    buffer_max_records: Count = 100_000
    buffer_max_bytes: Count = 256 * MIB
    # Parked requests of one partition that are known by their place alone (about 200 bytes each, 2 kB for the first of a key), not
    # counted by `buffer_max_bytes`; beyond it the partition stands.
    parked_max_records: Count = 100_000
    # How long a request that is sent again under its id is answered from the record instead of being called; 0: never. Clients that hear no
    # answer send again within minutes.
    dedup_window_s: Annotated[float, Field(ge=0, le=30 * 86_400)] = 3600
    # Requests of one partition that are remembered for that (about 230 bytes each); beyond it the oldest are forgotten before their time.
    # A new owner reads them before its first call, at some 15 us each: 12 full partitions take it about 5 s.
    dedup_max_entries: Count = 25_000
    # Requests that may wait behind a halted key; newer ones are dead-lettered at once.
    halted_max_records: Count = 1000
    # What to do where retention removed requests that were never executed, or the position is of a former topic of this name: stop that
    # partition, or go on at its first record, counted and logged; and where the broker has lost the log's end: forget what has ended beyond
    # it. A position that is missing or beyond the end always stops it.
    on_gap: Literal["stop", "continue"] = "stop"
    # Start of one transaction (or commit) to the start of the next under load; an idle worker publishes at once.
    commit_interval_ms: Annotated[int, Field(ge=0, le=10_000)] = 20
    # An open transaction is a lease on every reader of its partitions: short, and never held across a call.
    transaction_timeout_s: Annotated[float, Field(ge=1, le=900)] = 10
    max_poll_interval_s: Annotated[float, Field(ge=1, le=86_400)] = 300
    # How often the request topic is looked at: nobody tells a worker that it was deleted, made anew or grown.
    topic_check_s: Annotated[float, Field(ge=1, le=3600)] = 30
    # How often it tells of its lanes in the workers topic; one small record each.
    report_interval_s: Annotated[float, Field(ge=0.1, le=60)] = 2
    # Longest time that a callee's own hints (429, 503 with Retry-After) may hold one request that has no deadline.
    wait_max_s: Positive = 600
    on_wrong_partition: Literal["refuse", "warn"] = "refuse"
    # Health and metrics; port 0 takes a free one and logs it.
    http_host: str = "127.0.0.1"
    http_port: Annotated[int, Field(ge=0, le=65_535)] = 9464

    @property
    def commit_budget_s(self) -> float:
        """Longest time that one publication may need to end: the transaction's timeout and the broker's sweep (10 s)."""
        return self.transaction_timeout_s + 10

    @property
    def instance_id(self) -> str | None:
        """The name that it may have in the group (`group.instance.id`); None where no slot was given."""
        return self.slot if "slot" in self.model_fields_set else None

    @model_validator(mode="after")
    def _fits(self) -> WorkerSettings:
        if self.on_stop == "keep" and self.instance_id is None:
            raise ValueError(
                'on_stop = "keep" is for a worker that comes back under the same name: give it one (slot), or leave on_stop out'
            )
        if self.drain_s + self.commit_budget_s >= self.max_poll_interval_s:
            raise ValueError(
                f"drain_s ({self.drain_s:g}) + {self.commit_budget_s:g} s to publish must be less than "
                f"max_poll_interval_s ({self.max_poll_interval_s:g}): lower drain_s or raise max_poll_interval_s"
            )
        return self
