"""`dispatcher dev`: broker, topics, sample upstream and worker in one foreground command, for trying things.

It ends all that it started; what it found running stays. Topics and records stay too: the next run goes on where this one ended, as
workers do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dispatcher.adapters.kafka.starts import init_topics
from dispatcher.adapters.local_broker import ladder, started, usual_port
from dispatcher.adapters.local_broker.process import free_port
from dispatcher.settings import KafkaSettings
from dispatcher.stage.child import STOP_TIMEOUT_S, Child
from dispatcher.stage.claim import claim
from dispatcher.stage.configuration import Tables, configure
from dispatcher.stage.typed import with_config
from dispatcher.stage.watch import Watch

PARTITIONS = 12
TEAMS = ("team-a", "team-b")
# A call in hand is finished when the command is ended; together with the publication that is less than a child may take.
_CALL_S, _DRAIN_S = 15, 20
assert _CALL_S < _DRAIN_S < STOP_TIMEOUT_S

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Setup:
    """What to set up. `kafka` None: a broker is found or started; `port` None: 9092, or a free one where that is taken.

    `prefix` names topics and group: never the default ones, since the broker may have real requests.
    """

    folder: Path
    prefix: str
    kafka: KafkaSettings | None = None
    port: int | None = None
    log_here: bool = False


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where everything is. `broker_stays`: it was there before, and is left running."""

    broker: str
    broker_stays: bool
    upstream: str
    worker: str
    config: Path
    log: Path

    def to_try(self) -> list[tuple[str, str]]:
        """Give commands to try in another terminal, and what each does."""
        base = with_config(self.config)
        body = '{"model": "sample", "messages": [{"role": "user", "content": "hello"}]}'
        return [
            (f"{base} ask -k apikey:team-a -u sample /chat/completions -d '{body}'", "a request and its reply"),
            (f"{base} submit -k apikey:team-b -u sample /chat/completions -d '{body}'", "a request; prints where it stands"),
            (f"{base} replies -o start -e", "all replies so far"),
        ]


class Running:
    """All of it, running."""

    def __init__(self, addresses: Addresses, children: tuple[Child, ...]) -> None:
        self.addresses = addresses
        self._children = children

    def check(self) -> None:
        """Raise CallFailed if one of the children has ended by itself."""
        for child in self._children:
            child.check()


@contextmanager
def running(setup: Setup, say: Say) -> Iterator[Running]:
    """Start everything, in order, and end it in the opposite order. Errors: DispatcherError of whatever did not start or end."""
    folder = setup.folder / "dev"
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "dev.toml"
    claim(folder, "dispatcher dev", f"use that one (`{with_config(config)} ...`), or choose another folder (--dir)")
    with ExitStack() as order:
        watch = order.enter_context(Watch())
        kafka, stays = (setup.kafka, True) if setup.kafka else _broker(setup, watch, order, say)
        upstream = order.enter_context(Child("upstream", ["sample-upstream", "--port", "0"], folder, watch))
        url = upstream.first_line()
        settings = configure(config, kafka, _tables(setup, url))
        init_topics(settings)
        worker = order.enter_context(Child("worker", ["--config", str(config), "worker"], folder, watch, log_here=setup.log_here))
        health = f"http://{settings.worker.http_host}:{settings.worker.http_port}"
        worker.await_ready(f"{health}/readyz")
        yield Running(Addresses(kafka.bootstrap_servers, stays, url, health, config, worker.log), (upstream, worker))
        say("ending: the call in hand is finished")


def _broker(setup: Setup, watch: Watch, order: ExitStack, say: Say) -> tuple[KafkaSettings, bool]:
    """Find the folder's broker, or start one. Says whether it stays when this command ends."""
    found = started(setup.folder, setup.port, say=say)
    if found is not None:
        return KafkaSettings(bootstrap_servers=found.up()), True
    broker = ladder(setup.folder, usual_port(say) if setup.port is None else setup.port, say=say)

    def end() -> None:
        broker.down()
        watch.broker_ended()

    watch.broker(setup.folder)
    order.callback(end)
    return KafkaSettings(bootstrap_servers=broker.up()), False


def _tables(setup: Setup, upstream_url: str) -> Tables:
    """Configure topics, worker and upstream. Two folders on one broker are two workers of one group."""
    slot = f"dev-{hashlib.sha256(str(setup.folder.absolute()).encode()).hexdigest()[:8]}"
    return {
        "topics": {"prefix": setup.prefix, "partitions": PARTITIONS},
        "worker": {"group": setup.prefix, "slot": slot, "http_port": free_port(), "drain_s": _DRAIN_S},
        **{f"credentials.{team}": {"value": f"Bearer made-up-token-of-{team}"} for team in TEAMS},
        "upstreams.sample": {
            "base_url": f"{upstream_url}/v1",
            "credentials": list(TEAMS),
            "allow_private": True,
            "call_timeout_s": _CALL_S,
        },
    }
