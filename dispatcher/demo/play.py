"""The whole demo, from an empty folder to a table: the order of things, and what is left running at the end (the broker alone)."""

from __future__ import annotations

import random
import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from dispatcher.adapters.kafka.starts import init_topics
from dispatcher.adapters.local_broker import LocalBroker, MockBroker, ladder, started, usual_port
from dispatcher.adapters.local_broker.mock import PARTITIONS as MOCK_PARTITIONS
from dispatcher.demo import mock, scene
from dispatcher.demo.awkward import awkward
from dispatcher.demo.drive import Driven, drive, gather
from dispatcher.demo.load import SPEED, Planned, planned, read_trace
from dispatcher.demo.scene import Where
from dispatcher.demo.show import Show
from dispatcher.demo.tally import Tally, add_up
from dispatcher.errors import CallFailed, ConfigError
from dispatcher.settings import KafkaSettings
from dispatcher.stage.configuration import configure
from dispatcher.stage.typed import own_name, with_config
from dispatcher.stage.watch import Watch

PARTITIONS = 12
REQUESTS = 1500
# Where everything of a checkout is kept: the broker's data (shared with `dispatcher broker`) and the demo's files.
HOME = Path(".dispatcher")
TRACE = Path(__file__).parents[2] / "examples" / "azure-llm-2023-first-1500.csv"


@dataclass(frozen=True, slots=True)
class Playbill:
    """What is played. `kafka` None: a broker is found by the ladder, and stays."""

    kafka: KafkaSettings | None = None
    trace: Path = TRACE
    requests: int = REQUESTS
    speed: float = SPEED
    seed: int = 1
    ordering: Literal["partition", "key"] = "partition"
    folder: Path = HOME


@dataclass(frozen=True, slots=True)
class Played:
    """What came out, and the configuration to look around with. `broker`: whose it is, and so what is left running."""

    tally: Tally
    config: Path
    broker: Literal["given", "ours", "mock"]


def play(bill: Playbill, show: Show) -> Played:
    """Play it. Errors: DispatcherError of whatever did not work."""
    plan_of(bill, PARTITIONS)  # a trace that cannot be used is told before anything is started
    folder = bill.folder / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as running:
        where = Where(bill.kafka, PARTITIONS) if bill.kafka else _broker(bill.folder, show, running)
        try:
            tally, config = _play(bill, show, where, folder, running)
        except KeyboardInterrupt:
            if bill.kafka is None and not where.is_mock:
                show.step(f"interrupted; the broker is still running: {own_name()} broker down ends it")
            raise
    return Played(tally, config, "given" if bill.kafka else "mock" if where.is_mock else "ours")


def _play(bill: Playbill, show: Show, where: Where, folder: Path, running: ExitStack) -> tuple[Tally, Path]:
    """Play it on a broker; children are left to `running`."""
    plan = plan_of(bill, where.partitions)
    # Topics of its own: an earlier run's are left to look at, and two runs at once never meet.
    prefix = f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    watch = running.enter_context(Watch())
    upstream = running.enter_context(scene.start_upstream(folder, bill.speed, watch))
    url = upstream.first_line()
    config = folder / "demo.toml"
    settings = configure(config, where.kafka, scene.tables(where, prefix, url, bill.ordering))
    make_topics = mock.make_topics if where.is_mock else init_topics
    make_topics(settings)
    show.step(f"topics {prefix}.requests, .replies and .dlq with {where.partitions} partitions; sample upstream at {url}")
    worker = running.enter_context(scene.start_worker(folder, config, watch, on_mock=where.is_mock))
    worker.await_ready(f"http://{settings.worker.http_host}:{settings.worker.http_port}/readyz")
    show.step(f"worker ready; {len(plan):,} requests over {plan[-1].at_s:.0f} s, {bill.speed:g} times as fast as recorded")

    def look(driven: Driven) -> None:
        worker.check()
        upstream.check()
        show.watch(driven)

    driven = drive(settings, plan, look)
    show.end_progress()
    show.step("all answered; the worker drains and leaves")
    if (code := worker.stop()) != 0:
        raise CallFailed(f"the worker left with exit code {code} instead of 0", f"its log: {worker.log}")
    return add_up(gather(settings, driven, url)), config


def plan_of(bill: Playbill, partitions: int = PARTITIONS) -> list[Planned]:
    """Plan all requests of a run, by time; the same bill gives the same plan. Raises ConfigError for a trace that cannot be used."""
    try:
        with bill.trace.open(encoding="utf-8", newline="") as lines:
            arrivals = read_trace(lines)[: bill.requests]
    except OSError as error:
        raise ConfigError(
            f"cannot read the trace {bill.trace}: {error.strerror}", "run the demo in a checkout, or name one with --trace"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{bill.trace}: {error}", "a trace of the AzurePublicDataset, as in examples/") from None
    if not arrivals:
        raise ConfigError(f"{bill.trace} holds no requests", "a trace of the AzurePublicDataset, as in examples/")
    chance = random.Random(bill.seed)  # noqa: S311 - a repeatable draw, nothing secret
    usual = planned(arrivals, partitions=partitions, speed=bill.speed, chance=chance)
    return sorted([*usual, *awkward(partitions=partitions, span_s=usual[-1].at_s, chance=chance)], key=lambda one: one.at_s)


def around(config: Path, *, broker_is_ours: bool) -> list[tuple[str, str]]:
    """Give commands to look around with afterwards, and what each shows."""
    base = with_config(config)
    commands = [
        (f"{base} replies -o start -e -n 3 --json", "replies"),
        (f"{base} requests -o start -e -k apikey:team-01 -n 3 --json", "requests of one lane"),
        (f"{base} dlq list", "what could not succeed, and why"),
    ]
    return [*commands, (f"{own_name()} broker down", "stop the broker, which is still running")] if broker_is_ours else commands


def _broker(folder: Path, show: Show, running: ExitStack) -> Where:
    """Find a broker. Where none can be run, a mock cluster takes its place, for as long as `running`."""
    show.step("looking for a Kafka broker, or starting one")
    found = started(folder, say=show.step)
    # A new one stays, and the README goes on with it: on the usual port, if that can be had.
    broker = found or ladder(folder, usual_port(show.step), say=show.step)
    if isinstance(broker, LocalBroker) and (lack := broker.lack()) is not None:
        show.warn(f"{lack.message}: this is librdkafka's mock cluster, which has no working transactions and shows no guarantee")
        show.warn(f"for the real thing {lack.hint}")
        stand_in = MockBroker()
        running.callback(stand_in.down)
        return Where(KafkaSettings(bootstrap_servers=stand_in.up()), MOCK_PARTITIONS, is_mock=True)
    servers = broker.up()
    show.step(f"broker at {servers}")
    return Where(KafkaSettings(bootstrap_servers=servers), PARTITIONS)
