"""The cluster that the tests of one module harm, whole again after each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.cluster import COPIES, Cluster, cluster
from tests.topics import SettingsFactory


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run the cluster of this module."""
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def nodes(standing: Cluster) -> Iterator[Cluster]:
    """Lend the cluster to one test."""
    yield standing
    standing.mend()


@pytest.fixture
def settings(nodes: Cluster, prefix: str) -> Iterator[SettingsFactory]:
    """Make settings for the cluster; see `SettingsFactory`."""
    factory = SettingsFactory(nodes.bootstrap, prefix, COPIES)
    yield factory
    nodes.mend()
    factory.clean()
