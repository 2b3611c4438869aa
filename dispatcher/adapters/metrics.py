"""The metrics of SURFACE that already have a meaning. Base units, bounded labels: never a key, an id or a path.

prometheus-client guards its own numbers; the owners of state only call these functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from platform import python_version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

# The `_created` series double the page and say nothing that anybody asked.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no annotation there

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Calls take milliseconds to a minute; a queue may hold a record for an hour.
_CALL_BUCKETS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120)
_WAIT_BUCKETS = (0.005, 0.05, 0.25, 1, 5, 15, 60, 300, 900, 3600)
# Statuses are counted by class: a callee must not be able to make labels.
_PER_PARTITION = ("lag", "oldest", "inflight", "state", "parked", "map_ranges", "dedup_entries")


class Metrics:
    """One registry per worker. Label values come from the configuration or from closed lists."""

    def __init__(self, ordering: str, publishing: str) -> None:
        self.registry = CollectorRegistry()
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self.requests = counter("requests_total", "Requests that ended", "outcome")
        self.call_duration = histogram("call_duration_seconds", "One call, from start to answer", _CALL_BUCKETS, "upstream", "outcome")
        self.queue_wait = histogram("queue_wait_seconds", "From arrival in this worker to the first call", _WAIT_BUCKETS)
        self.lag = gauge("lane_lag_records", "End of the log less committed position", "partition")
        self.oldest = gauge("lane_oldest_age_seconds", "Time in this worker of the oldest record that is not published", "partition")
        self.inflight = gauge("lane_inflight", "Open calls", "partition")
        self.state = gauge("lane_state", "0 idle, 1 calling, 2 waiting (backoff, hint, breaker), 3 draining, 4 stands", "partition")
        self.parked = gauge("parked_records", "Requests in the parked topic, or on their way there or back", "partition")
        self.map_ranges = gauge("commit_map_ranges", "Ranges of offsets settled above the position, which a commit carries", "partition")
        self.map_full = counter("commit_map_full_total", "How often a commit could carry no more ranges", "partition")
        self.parkings = counter("parkings_total", "Requests that left memory for the parked topic")
        self.parked_lost = counter("parked_lost_total", "Parked requests that somebody removed from their topic")
        self.duplicates = counter("duplicates_total", "Requests that were answered with the recorded reply of an earlier one of their id")
        self.dedup_entries = gauge("dedup_entries", "Requests that are remembered for the dedup window", "partition")
        self.dedup_dropped = counter("dedup_dropped_total", "Requests that were forgotten before the dedup window was over")
        self.behind_others = counter("blocked_behind_other_keys_seconds_total", "Waiting that lanes per key would have saved")
        self.retries = counter("retries_total", "Calls that will be made again", "upstream", "reason")
        self.timeouts = counter("timeouts_total", "Calls whose time was over, by the clock that said so", "upstream", "clock")
        self.throttled = counter("throttled_total", "Answers that told us to wait", "upstream")
        self.tokens = counter("tokens_total", "Tokens that answers say: each once, as input, cache_read, ...", "upstream", "model", "kind")
        self.cost = counter("cost_usd_total", "What they cost, where the price is known", "upstream", "model")
        self.savings = counter("cost_savings_usd_total", "What the reference model would have cost more", "upstream", "model")
        self.price_unknown = counter("price_unknown_total", "Answers with tokens whose price is not known", "upstream", "model")
        self.limiter_wait = histogram(
            "limiter_wait_seconds", "How long a call waited for the limits that it is under", _WAIT_BUCKETS, "upstream"
        )
        self.limit_share = gauge("limit_share", "What of a limit is this worker's now; its workers divide it", "limit", "quantity")
        self.breaker_state = gauge("breaker_state", "Circuit breaker: 0 closed, 1 half-open, its probe is out, 2 open", "upstream")
        self.breaker_opens = counter("breaker_opens_total", "How often the circuit breaker has opened", "upstream")
        self.dead_letters = counter("dead_letters_total", "Dead letters", "reason")
        self.wrong_partition = counter("wrong_partition_total", "Records whose key belongs to another partition")
        self.gaps = counter("gaps_total", "Positions that the log did not hold: the partition stands there, or passed it", "cause", "then")
        self.gap_offsets = counter("gap_offsets_total", "Offsets that retention removed unexecuted, and that were passed over")
        self.rebalances = counter("rebalances_total", "Partitions that came or went, by event", "event")
        self.publish_failures = counter("publish_failures_total", "Steps of publishing that had to be done again", "step")
        self.last_progress = gauge("last_progress_timestamp_seconds", "When a position was last committed")
        info = gauge("build_info", "Always 1", "version", "python", "ordering", "publishing")
        info.labels(version("dispatcher"), python_version(), ordering, publishing).set(1)

    def closed(self, upstreams: Iterable[str]) -> None:
        """Show the circuit breakers of these upstreams before anything has happened to them."""
        for upstream in upstreams:
            self.breaker_state.labels(upstream).set(0)
            self.breaker_opens.labels(upstream)

    def forget(self, label: str) -> None:
        """Remove the series of a partition that is no longer ours."""
        for name in _PER_PARTITION:
            gauge: Gauge = getattr(self, name)
            gauge.remove(label)

    def page(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"dispatcher_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"dispatcher_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"dispatcher_{name}", text, labels, buckets=buckets, registry=self.registry)
