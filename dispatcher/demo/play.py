"""The whole demo, from an empty folder to a table: the order of things, and what is left running at the end (the broker alone)."""

from __future__ import annotations

import random
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dispatcher.adapters.kafka.starts import init_topics
from dispatcher.adapters.local_broker import ladder
from dispatcher.demo import stage
from dispatcher.demo.awkward import awkward
from dispatcher.demo.drive import Driven, drive, gather
from dispatcher.demo.load import SPEED, Planned, planned, read_trace
from dispatcher.demo.show import Show
from dispatcher.demo.tally import Tally, add_up
from dispatcher.errors import CallFailed, ConfigError
from dispatcher.settings import KafkaSettings

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
    folder: Path = HOME


def play(bill: Playbill, show: Show) -> tuple[Tally, Path]:
    """Play it: the tally, and the configuration file to look around with. Errors: DispatcherError of whatever did not work."""
    plan = plan_of(bill)
    folder = bill.folder / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    kafka = bill.kafka or _broker(bill.folder, show.step)
    # Topics of its own: an earlier run's are left to look at, and two runs at once never meet.
    prefix = f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    with ExitStack() as running:
        upstream = running.enter_context(stage.start_upstream(folder, bill.speed))
        url = upstream.first_line()
        config, settings = stage.configure(folder, kafka, prefix=prefix, partitions=PARTITIONS, upstream_url=url)
        init_topics(settings)
        show.step(f"topics {prefix}.requests, .replies and .dlq with {PARTITIONS} partitions; sample upstream at {url}")
        worker = running.enter_context(stage.start_worker(folder, config))
        worker.await_ready(f"http://{settings.worker.http_host}:{settings.worker.http_port}/readyz")
        show.step(f"worker ready; {len(plan):,} requests over {plan[-1].at_s:.0f} s, {bill.speed:g} times as fast as recorded")

        def watch(driven: Driven) -> None:
            worker.check()
            upstream.check()
            show.watch(driven)

        driven = drive(settings, plan, watch)
        show.end_progress()
        show.step("all answered; the worker drains and leaves")
        if (code := worker.stop()) != 0:
            raise CallFailed(f"the worker left with exit code {code} instead of 0", f"its log: {worker.log}")
        return add_up(gather(settings, driven, url)), config


def plan_of(bill: Playbill) -> list[Planned]:
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
    usual = planned(arrivals, partitions=PARTITIONS, speed=bill.speed, chance=chance)
    return sorted([*usual, *awkward(partitions=PARTITIONS, span_s=usual[-1].at_s, chance=chance)], key=lambda one: one.at_s)


def around(config: Path, *, broker_is_ours: bool) -> list[tuple[str, str]]:
    """Give commands to look around with afterwards, and what each shows."""
    name = _command_name()
    base = f"{name} --config {shlex.quote(str(config))}"
    commands = [
        (f"{base} replies -o start -e -n 3 --json", "replies"),
        (f"{base} requests -o start -e -k apikey:team-01 -n 3 --json", "requests of one lane"),
        (f"{base} dlq list", "what could not succeed, and why"),
    ]
    return [*commands, (f"{name} broker down", "stop the broker, which is still running")] if broker_is_ours else commands


def _broker(folder: Path, say: Callable[[str], None]) -> KafkaSettings:
    say("a broker, by the first rung of the ladder that holds")
    servers = ladder(folder, say=say).up()
    say(f"broker at {servers}")
    return KafkaSettings(bootstrap_servers=servers)


def _command_name() -> str:
    """How this program was called, if that can be typed again; a path inside the current folder is shortened."""
    called = Path(sys.argv[0])
    if called.name != "dispatcher":
        return "python -m dispatcher"
    if (found := shutil.which("dispatcher")) and Path(found).resolve() == called.resolve():
        return "dispatcher"
    here = Path.cwd()
    return str(called.absolute().relative_to(here)) if called.absolute().is_relative_to(here) else str(called)
