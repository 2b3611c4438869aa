"""Agents that share a lane: none waits for more than a few turns of another one, however much that one has queued."""

from __future__ import annotations

from collections import Counter, defaultdict

from tests.guarantees.events import CallStarted, Decided, Event, Queued, Submitted

Lane = tuple[int, int, str]  # partition, epoch, and key where that makes a lane
# Two by start-time fair queueing with equal weights, and one whose turn it was when somebody came.
TURNS_MAX = 3


class FairTurns:
    """While an agent has a request that its worker knows of, no other agent has more than `TURNS_MAX` turns in that lane.

    A turn is the first call of a request under an epoch. Weights are equal, and commits have room.

    >>> def judged(*starts):
    ...     judge = FairTurns()
    ...     for offset, agent in enumerate("aaaaaabc"):
    ...         judge.see(Submitted(0, offset, "k", agent=agent))
    ...         judge.see(Queued(0, offset, 1))
    ...     for call, offset in enumerate(starts):
    ...         judge.see(CallStarted(call, 0, offset, 1))
    ...         judge.see(Decided(0, offset, 1))
    ...     return judge.findings()
    >>> judged(0, 1, 6, 7, 2, 3, 4, 5)
    []
    >>> judged(0, 1, 2, 7, 3, 6)
    ['partition 0, epoch 1: agent b had something queued for 4 turns of agent a']
    >>> judge = FairTurns(by_key=True)
    >>> for offset in range(9):
    ...     for event in (Submitted(0, offset, "kl"[offset > 0], agent="ab"[offset > 0]), Queued(0, offset, 1)):
    ...         judge.see(event)
    >>> for offset in range(1, 9):
    ...     judge.see(CallStarted(offset, 0, offset, 1))
    >>> judge.findings()
    []
    """

    def __init__(self, *, by_key: bool = False) -> None:
        self._by_key = by_key
        self._submitted: dict[tuple[int, int], Submitted] = {}
        self._waiting: dict[Lane, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._turns: dict[tuple[Lane, str], Counter[str]] = defaultdict(Counter)  # of others, while this one waits
        self._begun: set[tuple[Lane, int]] = set()
        self._decided: set[tuple[int, int]] = set()
        self._found: list[str] = []

    def see(self, event: Event) -> None:
        """Take in requests, what workers know of, first calls and ends."""
        match event:
            case Submitted(partition, offset):
                self._submitted[partition, offset] = event
            case Queued(partition, offset, epoch) if (of := self._submitted.get((partition, offset))) is not None:
                if (partition, offset) not in self._decided:
                    self._waiting[self._lane(of, epoch)][of.agent].add(offset)
            case CallStarted(partition=partition, offset=offset, epoch=epoch) if (partition, offset) in self._submitted:
                self._start(self._submitted[partition, offset], epoch)
            case Decided(partition, offset, epoch) if (of := self._submitted.get((partition, offset))) is not None:
                self._decided.add((partition, offset))
                self._served(self._lane(of, epoch), of)
            case _:
                pass

    def findings(self) -> list[str]:
        """Say who waited for whom."""
        return self._found

    def _lane(self, of: Submitted, epoch: int) -> Lane:
        return of.partition, epoch, of.key if self._by_key else ""

    def _served(self, lane: Lane, of: Submitted) -> None:
        self._waiting[lane][of.agent].discard(of.offset)
        self._turns.pop((lane, of.agent), None)

    def _start(self, of: Submitted, epoch: int) -> None:
        lane = self._lane(of, epoch)
        if (lane, of.offset) in self._begun:
            return
        self._begun.add((lane, of.offset))
        self._served(lane, of)
        for agent, waiting in self._waiting[lane].items():
            if agent != of.agent and waiting:
                turns = self._turns[lane, agent]
                turns[of.agent] += 1
                if turns[of.agent] == TURNS_MAX + 1:
                    where = f"partition {of.partition}" + (f", key {of.key}" if self._by_key else "")
                    had = f"agent {agent} had something queued for {turns[of.agent]} turns of agent {of.agent}"
                    self._found.append(f"{where}, epoch {epoch}: {had}")
