"""The cluster of the chaos runs keeps its own promises: one node may be away, it comes back whole, and it ends with the test run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dispatcher.adapters.local_broker import LocalBroker
from dispatcher.client import Submitter, stamp
from dispatcher.core.messages.submission import Submission, request
from dispatcher.errors import DispatcherError
from tests.chaos.cluster import Cluster
from tests.e2e.history import whole
from tests.e2e.stage import ROOT, header
from tests.topics import SettingsFactory
from tests.waiting import eventually

pytestmark = [pytest.mark.soak, pytest.mark.faults]

MANY_S = 180
PATIENCE_S = 5


def _request(name: str) -> Submission:
    return request("doc:1", b'{"upstream":"sample","path":"/echo"}', stamp(request_id=name))


@pytest.mark.parametrize("harm", [Cluster.kill, Cluster.freeze, Cluster.stop])
def test_writing_goes_on_without_the_leader(nodes: Cluster, settings: SettingsFactory, harm: object) -> None:
    """Killed, frozen or stopped, its partitions go to another node, nothing acknowledged is lost, and it comes back whole."""
    assert callable(harm)
    made = settings(partitions=1)
    topic = made.topics.requests
    with Submitter(made, timeout_s=MANY_S) as submitter:
        submitter.submit(_request("before"))
        leader = nodes.leader(topic, 0)
        harm(nodes, leader)
        assert nodes.alive() == set(nodes.numbers) - {leader}
        submitter.submit(_request("without"))
    assert leader != eventually(lambda: nodes.leader(topic, 0) != leader and nodes.leader(topic, 0), what="another leader")
    assert not nodes.is_whole()
    nodes.thaw(leader)
    nodes.start(leader)
    eventually(nodes.is_whole, MANY_S, "the cluster is whole")
    assert nodes.alive() == set(nodes.numbers)
    assert ["before", "without"] == [header(record, "ce_id") for record in whole(made, topic)]


def test_a_client_behind_a_proxy_stays_behind_it(nodes: Cluster, settings: SettingsFactory) -> None:
    """Each node tells who comes through its proxy to come again by it: cut, nobody is reached, while other clients go on."""
    before = settings(partitions=1)
    behind = settings(partitions=1, init=False, kafka={"bootstrap_servers": nodes.proxied})
    with Submitter(behind, timeout_s=PATIENCE_S) as cut, Submitter(before, timeout_s=MANY_S) as beside:
        cut.submit(_request("1"))
        for way in nodes.ways:
            way.cut()
        with pytest.raises(DispatcherError):
            cut.submit(_request("2"))
        beside.submit(_request("3"))
    assert ["1", "3"] == [header(record, "ce_id") for record in whole(before, before.topics.requests)]


_CHILD = """
import sys, time
from pathlib import Path
from tests.chaos.cluster import cluster
with cluster(Path(sys.argv[1])) as made:
    print("up", flush=True)
    made.kill(2)
    made.start(2)
    made.freeze(3)
    print("harmed", flush=True)
    time.sleep(600)
"""


def test_the_cluster_ends_with_the_run_that_started_it(tmp_path: Path) -> None:
    """Also when that is killed: nodes that were started again or stand still are not left behind."""
    with subprocess.Popen([sys.executable, "-c", _CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        assert ["up\n", "harmed\n"] == [child.stdout.readline(), child.stdout.readline()]
        nodes = [LocalBroker(tmp_path / f"node{n}") for n in (1, 2, 3)]
        assert ["up", "up", "up"] == [node.status().state for node in nodes]
        child.send_signal(signal.SIGKILL)
    eventually(lambda: {"down"} == {node.status().state for node in nodes}, what="all nodes have ended")
