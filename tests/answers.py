"""The table of what callees answer (`answers.toml`), as bytes for a socket, and what it is to mean."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from dispatcher.core.callees.verdict import Dead, Patience, Retry, Settled, Verdict
from dispatcher.core.messages.call import Answered

MONO, WALL = 1000.0, 1795952211.0  # the latter: Sun, 29 Nov 2026 11:36:51 GMT
CHANCE = 0.5
BACKOFF_S = 1.0


@dataclass(frozen=True)
class Case:
    """One answer. See the head of the table."""

    row: str
    what: str
    head: tuple[str, ...]
    then: str
    body: str = "{}"
    wait_s: float | None = None
    retry_in_s: float | None = None
    deadline_s: float | None = None
    fault: str | None = None

    def raw(self) -> bytes:
        """The answer as it goes over the wire."""
        length = f"Content-Length: {len(self.body.encode())}"
        return "\r\n".join((f"HTTP/1.1 {self.head[0]}", *self.head[1:], length, "", self.body)).encode()

    def answered(self) -> Answered:
        """The answer as the core gets it."""
        headers = (line.partition(": ") for line in self.head[1:])
        return Answered(int(self.head[0][:3]), tuple((name.lower(), text) for name, _, text in headers), self.body.encode())

    @property
    def patience(self) -> Patience:
        """How long its request is tried."""
        return Patience(3, BACKOFF_S, 30, 600, None if self.deadline_s is None else MONO + self.deadline_s)

    def assert_is(self, verdict: Verdict) -> None:
        """Check that the verdict is the one of the table."""
        assert self.fault is None or self.fault == verdict.finding.fault
        match verdict:
            case Settled(status=status):
                assert (self.then, None, None) == (status.value, self.wait_s, self.retry_in_s)
            case Dead(reason=reason, retry_in_s=retry_in_s):
                assert (self.then, self.retry_in_s) == (reason.value, retry_in_s)
            case Retry(at=at, why="backoff", tries=tries):
                assert ("backoff", MONO + CHANCE * BACKOFF_S, 1) == (self.then, at, tries.failures)
            case Retry(at=at, tries=tries):
                assert self.then == ("wait_spent" if tries.failures else "wait")
                assert self.wait_s is not None
                assert abs(MONO + self.wait_s - at) < 1e-6


def _cases() -> list[Case]:
    table = tomllib.loads((Path(__file__).parent / "answers.toml").read_text())["answer"]
    return [Case(**row | {"head": tuple(row["head"])}) for row in table]


CASES = _cases()
IDS = [f"{case.row}: {case.what}" for case in CASES]
