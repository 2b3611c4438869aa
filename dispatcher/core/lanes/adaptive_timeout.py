"""How long a call may take, by how long calls like it have taken. Pure: facts of calls in, times out.

Only the first call of a request is cut to that, and only where the request does not say itself how long its calls may take. One that was
cut off too early is called once more, with all the time that its upstream allows: no request is lost that would have ended in that. One
that must not be called twice has all the time at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dispatcher.core.callees.finding import Finding, Party
from dispatcher.core.callees.latency import Latencies, Sample
from dispatcher.core.lanes.steps import Start
from dispatcher.core.messages.call import CUT_OFF_KINDS, Ambiguous, CallResult
from dispatcher.core.messages.request import Request
from dispatcher.settings import UpstreamSettings


class AdaptiveTimeouts:
    """Owned by the engine: of one worker, whatever becomes of its partitions, and forgotten with it."""

    def __init__(self, upstreams: Mapping[str, UpstreamSettings]) -> None:
        self._upstreams = upstreams
        self._latencies = Latencies()

    def fitted(self, start: Start) -> Start:
        """The same call; with less time, where calls like it are known to need less."""
        request = start.request
        if request.series is None or not start.first or request.has_own_timeout or not request.repeats:
            return start
        expected_s = self._latencies.quantile_s(request.series)
        if expected_s is None:
            return start
        upstream = self._upstreams[start.call.upstream]
        limit_s = max(upstream.timeout_floor_s, expected_s * upstream.timeout_multiplier)
        if limit_s >= start.call.timeout_s:
            return start
        return replace(start, call=replace(start.call, timeout_s=limit_s), is_fitted=True)

    def note(self, start: Start, result: CallResult, finding: Finding, took_s: float) -> None:
        """A call ended so after so many seconds.

        What is refused is refused soon, and what breaks off breaks off at any time: neither says how long an answer takes.
        """
        series = start.request.series
        if series is None:
            return
        if finding.fault is Party.NOBODY:
            self._latencies.note(series, Sample(took_s))
        elif isinstance(result, Ambiguous) and result.kind in CUT_OFF_KINDS:
            self._latencies.note(series, Sample(took_s, was_cut=True))

    def cancelled(self, request: Request, took_s: float) -> None:
        """A call was cut off after so many seconds, since nobody wanted its answer any more: it would have taken longer.

        Patience ends with slow calls first: left out, they would make the others' time shorter.
        """
        if request.series is not None:
            self._latencies.note(request.series, Sample(took_s, was_cut=True))
