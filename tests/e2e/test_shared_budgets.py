"""A day's budget of an agent on the broker: shared by partitions of several workers, and never overshot, though one of them is killed."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dispatcher import client
from dispatcher.client.lanes import Lanes, lane
from tests.e2e.kinds import key_on
from tests.e2e.stage import by_request, kill, stage, value
from tests.e2e.test_budgets import ANSWER, MODELS, NOON
from tests.topics import SettingsFactory
from tests.waiting import eventually

# Thirty cents a call: five of them, and the part of each of three partitions pays one.
DAY = {"usd_per_day": 1.5, "reserve_usd": 0.3, "day_starts_at_h": NOON if NOON <= 12 else NOON - 24}
BUDGETS = {"agents": {"agents": ["*"], **DAY}}


@pytest.mark.faults
def test_an_agent_spends_its_day_in_all_partitions_and_no_more(settings: SettingsFactory, tmp_path: Path) -> None:
    """B43: of 24 requests in three partitions, which two workers share, five calls are made and paid; the rest are `budget_exhausted`.

    One is killed in a call, which may have been paid, so that it counts: four requests are answered. What one partition does not use is
    spent by others, those of the killed worker too.
    """
    with stage(settings, tmp_path, partitions=3, budgets=BUDGETS, models=MODELS) as set_up:
        keys = [key_on(n, 3).decode() for n in range(3)]
        replies, workers = set_up.replies(), [set_up.worker().ready() for _ in range(2)]
        set_up.submit(keys[:1], "/echo?fault=hang&times=1", prefix="killed", body=ANSWER, agent="planner")
        eventually(lambda: set_up.calls(id="killed-0"), what="one is in its call")
        owner = Lanes(set_up.settings).describe(lane(keys[0])).owner
        doomed = next(one for one in workers if f"{set_up.settings.topics.prefix}-{one.name}" == owner)
        kill(doomed)
        set_up.submit([key for key in keys for _ in range(7)] + keys[1:], prefix="after", body=ANSWER, agent="planner")
        found = by_request(replies.await_count(24, 120))
        ends = Counter(value(reply).get("reason", value(reply)["status"]) for reply in found.values())
        assert {"ok": 4, "budget_exhausted": 20} == ends
        assert 5 == len(set_up.calls())
        balance = client.balances(set_up.settings).of_agent("planner")
        assert balance is not None
        assert (Decimal(0), Decimal(0)) == (balance.left, balance.reserved)


@pytest.mark.faults
def test_a_budget_is_one_for_all_classes(settings: SettingsFactory, tmp_path: Path) -> None:
    """A key and an agent spend the same day's budget in the topics of three classes, and no more though a worker is killed in a call.

    What that call may have cost counts, though the next calls are of other classes; and one command tells what is left of all of it.
    """
    names, one = ("generation", "analysis", "monitoring"), {"keys": ["single:*"], **DAY, "usd_per_day": 0.6}
    of: dict[str, Any] = {
        "budgets": {"agents": {"agents": ["planner"], **DAY}, "keys": one},
        "classes": {name: {"weight": 2} for name in names},
    }
    with stage(settings, tmp_path, partitions=3, models=MODELS, **of) as set_up:
        keys = [key_on(n, 3).decode() for n in range(3)]
        replies, workers = set_up.replies(), [set_up.worker().ready() for _ in range(2)]
        of_nobody: dict[str, Any] = {"body": ANSWER}
        told = of_nobody | {"agent": "planner"}
        set_up.submit(keys[:1], "/echo?fault=hang&times=1", prefix="planner", **told | {"class": "generation"})
        eventually(lambda: set_up.calls(id="planner-0"), what="one is in its call")
        owner = Lanes(set_up.settings.of_class("generation")).describe(lane(keys[0])).owner
        kill(next(worker for worker in workers if f"{set_up.settings.topics.prefix}-{worker.name}" == owner))
        for name in names:
            set_up.submit(["single:2"] * 2, prefix=f"single-{name}", **of_nobody | {"class": name})
            set_up.submit([key for key in keys for _ in range(3)], prefix=f"planner-{name}", **told | {"class": name})
        found = by_request(replies.await_count(34, 120))
        ends = Counter((name.partition("-")[0], value(reply).get("reason", value(reply)["status"])) for name, reply in found.items())
        spent = "budget_exhausted"
        assert {("planner", "ok"): 4, ("planner", spent): 24, ("single", "ok"): 2, ("single", spent): 4} == ends
        assert 7 == len(set_up.calls())
        balances = client.balances(set_up.settings)
        for balance in (balances.of_agent("planner"), balances.of(b"single:2")):
            assert balance is not None
            assert (Decimal(0), Decimal(0)) == (balance.left, balance.reserved)
