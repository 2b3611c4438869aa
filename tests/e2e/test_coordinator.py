"""A group's coordinator that is away for longer than somebody waits for its answer, and comes back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.proxy import Proxy
from tests.topics import SettingsFactory

pytestmark = [pytest.mark.broker, pytest.mark.faults]

ROOT = Path(__file__).parents[2]
# In a process of its own, since what is feared ends the process. It says when it has
# waited in vain three times, and asks until it is told; a broker that was never asked of a group before needs a moment.
ASKING = """
import sys
from confluent_kafka import KafkaException
from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.coordinator import describe_group
from dispatcher.settings import KafkaSettings, Settings
client = clients.admin(Settings(kafka=KafkaSettings(bootstrap_servers=sys.argv[1])))
in_vain = 0
while True:
    try:
        print(describe_group(client, sys.argv[2], 0.5).state.name, flush=True)
        break
    except KafkaException:
        pass
    except TimeoutError:
        in_vain += 1
        if in_vain == 3:
            print("in vain", flush=True)
"""


@pytest.fixture
def factory(beside: str, prefix: str) -> SettingsFactory:
    """Make settings for the broker itself."""
    return SettingsFactory(beside, prefix)


def test_who_waited_in_vain_for_a_coordinator_outlives_its_return(factory: SettingsFactory, way: Proxy) -> None:
    """The client library would end the process when it finds the coordinator for requests that were over their time."""
    way.cut()
    command = [sys.executable, "-c", ASKING, way.address, factory.prefix]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as asking:
        assert asking.stdout is not None
        try:
            assert asking.stdout.readline() == "in vain\n"
            way.heal()
            assert asking.stdout.readline() == "DEAD\n", "the group does not exist"
            assert asking.wait(60) == 0
        finally:
            asking.kill()
