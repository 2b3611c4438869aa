"""The load of a chaos run: requests at times of their own, whatever became of those before (an open loop); few keys get most of them."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from threading import Thread
from typing import Any

import orjson

from dispatcher.client import Submitter, stamp
from dispatcher.client.submitter import Sent
from dispatcher.core.messages.submission import Submission, request
from dispatcher.settings import Settings

KEYS = 400
# An acknowledgement may take as long as a broker is away, and its partitions' leaders are not found again.
SUBMIT_S = 90.0
POLL_MAX_S = 0.1
CALL_TIMEOUT_S = 4
# How the upstream is reached. Whoever hangs costs a timeout, and the callee's grace at a handover is longer than that.
# Faults are of single requests here: a circuit breaker that some of them in a row open is closed again soon.
PATIENCE: dict[str, Any] = {
    "call_timeout_s": CALL_TIMEOUT_S,
    "attempts_max": 4,
    "backoff_base_s": 0.5,
    "backoff_max_s": 2,
    "breaker_open_s": 1,
}

# What a request asks of the upstream, and how often, while nothing is wrong with it. Nothing: an answer after its time.
ALWAYS: dict[str, float] = {
    "fault=503&retry_after=1&times=1": 0.02,
    "fault=429&retry_after=0.5&times=2": 0.01,
    "fault=500&times=1": 0.01,
    "fault=reset&times=1": 0.01,
    "fault=truncate&times=1": 0.005,
    "fault=hang&times=1": 0.004,
    "fault=500": 0.003,  # to the end: a dead letter
    "fault=404": 0.005,  # final
}
# And what more while something is.
MOODS: dict[str, dict[str, float]] = {
    "upstream hangs": {"fault=hang&times=1": 0.1},
    "upstream resets": {"fault=reset&times=2": 0.2, "fault=truncate&times=1": 0.1},
    "upstream is slow": {"slow": 0.3},
}
LATENCY_MS, LATENCY_MEAN_MS, LATENCY_MAX_MS = 50, 100, 1000
SLOW_MS = (800, 2500)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: its lane key, and the query that tells the upstream what to do."""

    key: str
    query: str


class Mix:
    """Draws requests. The nth key is asked for in proportion to 1/n.

    >>> mix = Mix(random.Random(1))
    >>> asks = [mix.draw("") for _ in range(2000)]
    >>> len({ask.key for ask in asks}) > 300, sum(ask.key == "doc:0" for ask in asks) > 200
    (True, True)
    >>> sum("hang" in mix.draw("upstream hangs").query for _ in range(1000)) > 50
    True
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._keys = [f"doc:{n}" for n in range(KEYS)]
        self._weights = list(accumulate(1 / (n + 1) for n in range(KEYS)))

    def draw(self, mood: str) -> Ask:
        """Draw the next request; `mood` says what is wrong with the upstream now."""
        key = self._chance.choices(self._keys, cum_weights=self._weights)[0]
        latency_ms = LATENCY_MS + min(LATENCY_MAX_MS - LATENCY_MS, self._chance.expovariate(1 / LATENCY_MEAN_MS))
        wish = self._wish(mood)
        if wish == "slow":
            latency_ms, wish = self._chance.uniform(*SLOW_MS), ""
        return Ask(key, f"key={key}&latency_ms={latency_ms:.0f}{wish and '&'}{wish}")

    def _wish(self, mood: str) -> str:
        at = self._chance.random()
        for wish, share in [*ALWAYS.items(), *MOODS.get(mood, {}).items()]:
            at -= share
            if at < 0:
                return wish
        return ""


class Load:
    """Submits `per_s` requests a second to one group's topic, from a thread of its own; `close` waits for their acknowledgements.

    `acknowledged` holds the ids that Kafka has taken, `unknown` those of which it did not say so: the log knows. Read once it is closed.
    """

    def __init__(self, settings: Settings, label: str, chance: random.Random, per_s: float, mood: Callable[[], str]) -> None:
        self.acknowledged: set[str] = set()
        self.unknown: set[str] = set()
        self.error: BaseException | None = None
        self._settings = settings
        self._label = label
        self._chance = chance
        self._mix = Mix(chance)
        self._per_s = per_s
        self._mood = mood
        self._is_over = self._is_broken = False
        self._number, self._due = 0, time.monotonic()
        self._sent: deque[Sent] = deque()
        self._thread = Thread(target=self._guarded, name=f"load {label}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over = True
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - raised where the load is closed
            self.error = error

    def _run(self) -> None:
        while not self._is_over:
            self._is_broken = False
            with Submitter(self._settings, timeout_s=SUBMIT_S) as submitter:
                self._submit(submitter)

    def _submit(self, submitter: Submitter) -> None:
        """Submit until the load is over, or the producer is: then another one goes on."""
        while not (self._is_over or self._is_broken):
            if (wait_s := self._due - time.monotonic()) > 0:
                submitter.poll(min(wait_s, POLL_MAX_S))
                continue
            self._sent.append(submitter.send(self._submission()))
            self._due += self._chance.expovariate(self._per_s)
            self._take()
        while self._sent:
            submitter.poll(POLL_MAX_S)
            self._take()

    def _submission(self) -> Submission:
        ask, self._number = self._mix.draw(self._mood()), self._number + 1
        value = orjson.dumps({"upstream": "sample", "path": f"/echo?{ask.query}", "body": {"n": self._number}})
        return request(ask.key, value, stamp(request_id=f"{self._label}-{self._number}"))

    def _take(self) -> None:
        """Take in how requests ended; librdkafka tells of each within its time."""
        while self._sent and self._sent[0].settled:
            sent = self._sent.popleft()
            (self.acknowledged if sent.error is None else self.unknown).add(str(sent.request_id))
            self._is_broken |= sent.error is not None and sent.error.fatal()
