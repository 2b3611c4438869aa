"""A day's budget of lane keys on the broker: kept beside the replies, and by whoever has the partition next."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from dispatcher.client.lanes import Lanes, lane
from tests.e2e.kinds import key_on
from tests.e2e.stage import Stage, by_request, header, kill, stage, value
from tests.topics import SettingsFactory
from tests.waiting import eventually

# A day that begins twelve hours from now, or so: none does in a test.
NOON = (datetime.now(UTC).hour + 12) % 24
# Thirty cents a call, of which sixty pay two.
BUDGETS = {"documents": {"keys": ["doc:*"], "usd_per_day": 0.6, "reserve_usd": 0.3, "day_starts_at_h": NOON if NOON <= 12 else NOON - 24}}
MODELS = {"m": {"usd_per_million": 1}}
ANSWER = {"model": "m", "usage": {"prompt_tokens": 300_000, "completion_tokens": 0}}


def left(of: Stage, key: str) -> tuple[Decimal, Decimal]:
    """What a key has left of its day, and what of it is set aside."""
    balance = Lanes(of.settings).describe(lane(key)).balance
    assert balance is not None
    return balance.left, balance.reserved


@pytest.mark.faults
def test_no_key_spends_more_than_its_day_though_its_worker_is_killed(settings: SettingsFactory, tmp_path: Path) -> None:
    """B43: of eight requests at once, of a key each on three partitions, two calls are made and paid; the rest are `budget_exhausted`.

    A call in which the worker is killed may have been paid, so that it counts: it is made again by the next owner, and no further one is.
    """
    with stage(settings, tmp_path, partitions=3, budgets=BUDGETS, models=MODELS) as set_up:
        killed, one, other = (key_on(n, 3).decode() for n in range(3))
        replies, doomed = set_up.replies(), set_up.worker().ready()
        set_up.submit([killed], "/echo?fault=hang&times=1", prefix="killed", body=ANSWER)
        set_up.submit([killed] * 7, prefix="after", body=ANSWER)
        for key, prefix in ((one, "one"), (other, "other")):
            set_up.submit([key] * 8, prefix=prefix, body=ANSWER)
        eventually(lambda: set_up.calls(id="killed-0"), what="one is in its call")
        replies.await_count(16)
        assert (Decimal("0.3"), Decimal("0.3")) == left(set_up, killed)
        kill(doomed)
        set_up.worker()
        found = by_request(replies.await_count(24, 120))
        ends = Counter((name.split("-")[0], value(reply).get("reason", value(reply)["status"])) for name, reply in found.items())
        spent = {("after", "budget_exhausted"): 7} | {(name, "budget_exhausted"): 6 for name in ("one", "other")}
        assert {("killed", "ok"): 1, ("one", "ok"): 2, ("other", "ok"): 2} | spent == ends
        assert [2, 2, 2] == [len(set_up.calls(key=key)) for key in (killed, one, other)]
        assert all(header(found[f"{name}-0"], "dispatcher-status") == "ok" for name in ("killed", "one", "other"))
        assert [(Decimal(0), Decimal(0))] * 3 == [left(set_up, key) for key in (killed, one, other)]
        assert value(found["after-6"])["error"]["retry_at"].endswith(f"T{NOON:02}:00:00.000Z")
