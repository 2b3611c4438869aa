"""Faults planted into lanes that span the topics of several classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dispatcher.adapters.kafka.sink import Sink
from dispatcher.core.progress.strand import RequestTopics, number_of
from dispatcher.worker.class_turns import ClassTurns
from dispatcher.worker.parked_log import ParkedLog
from dispatcher.worker.poller import Poller
from tests.sim.planted import Planted


def _everybody_has_the_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassTurns, "claim", lambda *_: True)
    patch.setattr(ClassTurns, "holds", lambda *_: True)


class _Loners(RequestTopics):
    """Nobody has siblings."""

    __slots__ = ()

    def siblings(self, strand: int) -> tuple[int, ...]:
        """As `RequestTopics.siblings`."""
        return (strand,)


def _live_without_siblings(patch: pytest.MonkeyPatch) -> None:
    init = Poller.__init__

    def alone(self: Poller, settings: Any, topics: RequestTopics, *rest: Any) -> None:
        init(self, settings, _Loners(topics.of, topics.partitions), *rest)

    patch.setattr(Poller, "__init__", alone)


def _positions_by_number(patch: pytest.MonkeyPatch) -> None:
    send = Sink.send_offsets

    def of_the_first_topic(self: Sink, positions: Mapping[int, tuple[int, str]], group: object) -> None:
        send(self, {number_of(strand): to for strand, to in positions.items()}, group)

    patch.setattr(Sink, "send_offsets", of_the_first_topic)


def _parked_of_the_first_topic(patch: pytest.MonkeyPatch) -> None:
    init = ParkedLog.__init__
    first: list[Any] = []

    def always_the_first(self: ParkedLog, topic: str, requests: Any, *rest: Any) -> None:
        first.append(requests)
        init(self, topic, first[0], *rest)

    patch.setattr(ParkedLog, "__init__", always_the_first)


CLASSED = (("classes", ("fast", "mid", "slow")),)
CLASSES = [
    Planted("everybody has the turn", _everybody_has_the_turn, "OneAtATime", CLASSED),
    Planted("live without siblings", _live_without_siblings, "OneAtATime", (*CLASSED, ("protocol", "consumer"))),
    Planted("positions by number", _positions_by_number, "NothingLost", (*CLASSED, ("publishing", "exactly_once"))),
    Planted("parked of the first topic", _parked_of_the_first_topic, "NothingLost", (*CLASSED, ("ordering", "key"))),
]
