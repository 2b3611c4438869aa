"""docker-compose.yml, read and held against what the product promises; no Docker needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dispatcher.adapters.config import load
from dispatcher.adapters.local_broker.properties import COMMON, IMAGE, environment_name
from dispatcher.cli.app import app
from dispatcher.settings import Settings

ROOT = Path(__file__).parents[1]
SERVICES = ["kafka", "sample-upstream", "topics", "worker"]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """Read the file."""
    loaded = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


@pytest.fixture(scope="module")
def settings() -> Settings:
    """Load the configuration that the containers get, as they will: from the file alone."""
    return load(file=ROOT / "examples" / "compose.toml", flags={}, properties=[], environ={})


def listeners(text: str) -> dict[str, str]:
    """Take a list of listeners apart: name to address."""
    return dict(part.split("://", 1) for part in text.split(","))


def seconds(text: str) -> float:
    """Read one of Compose's durations, as this file writes them."""
    found = re.fullmatch(r"(\d+)s", text)
    assert found
    return float(found[1])


def test_it_runs_a_broker_three_workers_and_an_upstream(compose: dict[str, Any]) -> None:
    """One Kafka, one run of `topics init`, one sample upstream, three workers."""
    services = compose["services"]
    assert sorted(services) == SERVICES
    assert services["kafka"]["image"] == IMAGE
    assert services["worker"]["deploy"]["replicas"] == 3


def test_containers_and_this_machine_are_sent_to_addresses_that_they_reach(compose: dict[str, Any], settings: Settings) -> None:
    """Two listeners: inside the network the service's name, outside localhost with the very port that is published."""
    kafka = compose["services"]["kafka"]
    environment = kafka["environment"]
    bound = listeners(environment["KAFKA_LISTENERS"])
    advertised = listeners(environment["KAFKA_ADVERTISED_LISTENERS"])
    assert advertised == {"INSIDE": "kafka:29092", "HOST": "localhost:9092"}
    assert bound == {"INSIDE": ":29092", "HOST": ":9092", "CONTROLLER": ":29093"}
    assert kafka["ports"] == ["127.0.0.1:9092:9092"]
    assert environment["KAFKA_INTER_BROKER_LISTENER_NAME"] == "INSIDE"
    assert settings.kafka.bootstrap_servers == advertised["INSIDE"]
    assert Settings().kafka.bootstrap_servers == advertised["HOST"]


def test_its_broker_is_set_up_as_our_others(compose: dict[str, Any]) -> None:
    """Session timeouts, sweeps and replicas: what the tests prove on their broker holds here too."""
    environment = compose["services"]["kafka"]["environment"]
    expected = {environment_name(name): value for name, value in COMMON.items()}
    assert {name: environment.get(name) for name in expected} == expected


def test_services_start_in_order_and_come_back(compose: dict[str, Any]) -> None:
    """Workers wait for topics, topics for a healthy Kafka; all but the one-shot restart; what serves has a health check."""
    services = compose["services"]
    assert services["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    assert services["worker"]["depends_on"] == {
        "topics": {"condition": "service_completed_successfully"},
        "sample-upstream": {"condition": "service_healthy"},
    }
    assert {name: service["restart"] for name, service in services.items()} == {
        "kafka": "unless-stopped",
        "sample-upstream": "unless-stopped",
        "topics": "no",
        "worker": "unless-stopped",
    }
    assert [name for name in SERVICES if "healthcheck" in services[name]] == ["kafka", "sample-upstream", "worker"]


def test_a_worker_is_not_killed_while_it_drains(compose: dict[str, Any], settings: Settings) -> None:
    """The grace is longer than the drain and the last publication together, and calls in hand fit into the drain."""
    grace_s = seconds(compose["services"]["worker"]["stop_grace_period"])
    assert grace_s > settings.worker.drain_s + settings.worker.commit_budget_s
    assert settings.upstreams["sample"].call_timeout_s < settings.worker.drain_s


def test_addresses_in_the_configuration_are_those_of_the_services(compose: dict[str, Any], settings: Settings) -> None:
    """The worker finds the upstream by its service's name and port; health is asked where the worker serves it."""
    upstream = compose["services"]["sample-upstream"]
    port = upstream["command"][upstream["command"].index("--port") + 1]
    assert settings.upstreams["sample"].base_url == f"http://sample-upstream:{port}/v1"
    assert settings.worker.http_host == "0.0.0.0"  # noqa: S104 - the container's own network, not published
    assert f":{settings.worker.http_port}/readyz" in " ".join(compose["services"]["worker"]["healthcheck"]["test"])
    assert "ports" not in compose["services"]["worker"]


def test_nothing_is_open_to_the_network(compose: dict[str, Any]) -> None:
    """What is published is published on this machine's loopback alone."""
    published = [port for service in compose["services"].values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_it_holds_no_secret(compose: dict[str, Any], settings: Settings) -> None:
    """Neither file has a password; the tokens say that they are none."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8").lower()
    assert [word for word in ("password", "secret", "token", "api_key", "sasl") if word in text] == []
    values = [credential.value.get_secret_value() for credential in settings.credentials.values() if credential.value]
    assert values
    assert all(value.startswith("Bearer not-a-secret") for value in values)


@pytest.mark.parametrize("service", ["sample-upstream", "topics", "worker"])
def test_its_commands_exist(compose: dict[str, Any], service: str) -> None:
    """Every command line in the file is one that the program has."""
    words = [word for word in compose["services"][service]["command"] if word != "--config" and not word.startswith("/")]
    commands = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    assert words[0] in commands


def test_the_image_runs_as_nobody_special_and_as_locked() -> None:
    """Locked libraries with their hashes, a user without rights, and signals that reach the program."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "--require-hashes -r requirements.lock" in text
    assert re.search(r"^USER (?!root|0)\w+$", text, re.MULTILINE)
    assert 'ENTRYPOINT ["dispatcher"]' in text
    copied = [word for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for word in line.split()]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert sorted(f"!{name}" for name in copied) == sorted(line for line in ignored if line.startswith("!"))
    assert all((ROOT / name).exists() for name in copied)
