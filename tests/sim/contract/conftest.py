"""Each case of the contract runs in simulated worlds of several seeds, and once on the real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dispatcher.adapters.kafka.admin import connect, create_missing
from dispatcher.adapters.kafka.clients import GroupProtocol
from dispatcher.settings import Settings
from tests.sim.contract.worlds import REPLY_MAX_BYTES, BrokerWorld, SimulatedWorld, World

SEEDS = range(5)
WorldMaker = Callable[..., World]
# What is waited for most: a fetch is not answered when a transaction ends, and a classic member hears of a rebalance by its heartbeat.
QUICK = {"fetch.wait.max.ms": "50"}
QUICK_CLASSIC = {"heartbeat.interval.ms": "300"}


@pytest.fixture(params=[*(pytest.param(seed, id=f"sim{seed}") for seed in SEEDS), pytest.param(None, id="kafka", marks=pytest.mark.broker)])
def make_world(request: pytest.FixtureRequest) -> Iterator[WorldMaker]:
    """Make the world of a case: `make_world(protocol=..., partitions=..., is_started=...)`; started, the group has positions."""
    made: list[World] = []

    def make(protocol: GroupProtocol = "consumer", partitions: int = 2, *, is_started: bool = True) -> World:
        if request.param is not None:
            made.append(SimulatedWorld(protocol, partitions, request.param, is_started=is_started))
            return made[0]
        # Asked for here, since a simulated world must not start a broker.
        settings: Any = request.getfixturevalue("settings")
        quick = QUICK if protocol == "consumer" else QUICK | QUICK_CLASSIC
        topics = {"reply_max_bytes": REPLY_MAX_BYTES}
        own: Settings = settings(partitions=partitions, init=is_started, topics=topics, kafka={"properties": quick})
        create_missing(connect(own, 30), own)
        made.append(BrokerWorld(own, protocol))
        return made[0]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: WorldMaker) -> World:
    """The world of a case that is about no group."""
    return make_world()
