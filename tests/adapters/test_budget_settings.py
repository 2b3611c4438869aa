"""Budgets in the configuration: what is one, and what could never be held."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from dispatcher.adapters.config import load
from dispatcher.errors import ConfigError
from dispatcher.settings import Settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "budgets.toml"


def loaded(file: Path) -> Settings:
    """The settings of a file alone."""
    return load(file=file, flags={}, properties=[], environ={})


def test_the_example_is_one() -> None:
    """Amounts are decimals: 0.1 is a tenth."""
    budgets = loaded(EXAMPLE).budgets
    assert ["documents", "planners", "team-a"] == sorted(budgets)
    assert [False, True, False] == [budgets[name].is_shared for name in sorted(budgets)]
    assert (Decimal("0.10"), "refuse", 0) == (budgets["documents"].reserve_usd, budgets["documents"].when_spent, 0)
    assert ("apikey:team-a",) == budgets["team-a"].keys


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("usd_per_day = 1\nreserve_usd = 2\n", "budgets.b: reserve_usd (2) is more than usd_per_day (1)"),
        ("usd_per_day = 1\nreserve_usd = 0\n", "budgets.b.reserve_usd must be greater than 0"),
        ('usd_per_day = 1\nreserve_usd = 1\nwhen_spent = "go on"\n', "budgets.b.when_spent must be one of refuse, wait"),
        (
            'usd_per_day = 1\nreserve_usd = 1\n[worker]\non_wrong_partition = "warn"\n',
            'worker.on_wrong_partition = "warn" executes requests of one key in several partitions',
        ),
    ],
)
def test_what_could_not_be_held_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    """With one sentence that says why."""
    file = tmp_path / "d.toml"
    file.write_text(f'[budgets.b]\nkeys = ["doc:*"]\n{text}')
    with pytest.raises(ConfigError) as refused:
        loaded(file)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "budgets.b: says whose it is in one way"),
        ('agents = ["a"]\nkeys = ["doc:*"]\n', "budgets.b: says whose it is in one way"),
        ('credentials = ["team-*", "team-b"]\n', "item 2 of budgets.b.credentials is not in [credentials], which has team-a"),
        ('agents = ["a*b"]\n', "budgets.b.agents.0 must be a name, or a beginning of names and a *"),
        (
            'agents = ["x", "a"]\n[budgets.c]\nagents = ["b", "a"]\nusd_per_day = 2\nreserve_usd = 1\n',
            "item 2 of budgets.c.agents stands in budgets.b, too, and one of them would not count",
        ),
        ('agents = ["*"]\n[worker]\npublishing = "at_least_once"\n', "budgets.b is shared by all partitions, which is kept only where"),
    ],
)
def test_whose_it_is_has_to_be_said_and_kept(tmp_path: Path, text: str, sentence: str) -> None:
    """In one way, of what there is, and where nobody's word is lost or comes too late."""
    file = tmp_path / "d.toml"
    file.write_text(f'[credentials.team-a]\nvalue = "x"\n[budgets.b]\nusd_per_day = 1\nreserve_usd = 0.1\n{text}')
    with pytest.raises(ConfigError) as refused:
        loaded(file)
    assert sentence in str(refused.value)


def test_of_keys_they_are_kept_at_least_once_too(tmp_path: Path) -> None:
    """Without a promise: as it was."""
    file = tmp_path / "d.toml"
    file.write_text('[budgets.b]\nkeys = ["*"]\nusd_per_day = 1\nreserve_usd = 0.1\n[worker]\npublishing = "at_least_once"\n')
    assert not loaded(file).budgets["b"].is_shared
