"""`usage` on a command line: its table, its JSON, and what it says where there is nothing."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from dispatcher import client
from dispatcher.cli import main
from dispatcher.client import Query
from dispatcher.core.internal.account import AGENT, Account, account_name
from dispatcher.core.internal.budget import DAY_S, Budgets
from dispatcher.core.messages.record import Record
from dispatcher.core.operations.balance import Balances
from dispatcher.core.operations.usage_report import UsageReport
from dispatcher.settings import Settings
from tests.core.operations.test_usage_report import reply
from tests.specimens import WALL

Ask = Callable[..., tuple[int, str, str, list[Any]]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ask:
    """Run a command line where these replies stand: exit code, stdout, stderr, and what was asked for."""

    def ask(*arguments: str, replies: tuple[Record, ...] = ()) -> tuple[int, str, str, list[Any]]:
        asked: list[Any] = []

        def usage(_: object, query: Query, by: str, **__: object) -> UsageReport:
            asked.extend((query, by))
            report = UsageReport(by)
            for one in replies:
                report.add(one)
            return report

        def balances(settings: Settings, **_: object) -> Balances:
            names = account_name(b"doc:1"), account_name(b"planner", AGENT)
            accounts = {name: Account(name, int(WALL // DAY_S), Decimal("0.5"), Decimal("0.1")) for name in names}
            return Balances(Budgets(settings.budgets), accounts, WALL)

        monkeypatch.setattr(client, "usage", usage)
        monkeypatch.setattr(client, "balances", balances)
        code = main(["usage", *arguments])
        printed = capfd.readouterr()
        return code, printed.out, printed.err, asked

    return ask


def test_people_see_a_table_and_its_total(ask: Ask) -> None:
    """The dearest first; money to a hundredth of a cent, a dash where it is not known."""
    code, out, _, asked = ask(replies=(reply("0.1234567", savings="1"), reply(None, b"doc:2")))
    lines = [line.split() for line in out.splitlines()]
    assert ["KEY", "REPLIES", "INPUT", "CACHED", "WRITTEN", "OUTPUT", "REASONING", "USD", "UNPRICED", "SAVED"] == lines[0]
    assert ["doc:1", "1", "10", "4", "0", "5", "2", "0.1235", "0", "1.0000"] == lines[1]
    assert ["doc:2", "1", "10", "4", "0", "5", "2", "-", "1", "-"] == lines[2]
    assert ["total", "2", "20", "8", "0", "10", "4", "0.1235", "1", "1.0000"] == lines[3]
    assert (0, 4, "key", True) == (code, len(lines), asked[1], asked[0].until_end)


def test_programs_get_an_object_a_line(ask: Ask) -> None:
    """Every digit of it, and null where a price is not known."""
    code, out, _, _ = ask("--by", "model", "--json", replies=(reply("0.1234567"), reply(None, model="x")))
    first, second = map(orjson.loads, out.splitlines())
    assert ("m", "0.1234567", 0) == (first["model"], first["cost_usd"], first["unpriced"])
    assert ("x", None, 1, 0) == (second["model"], second["cost_usd"], second["unpriced"], code)


def test_what_keys_have_left_of_their_budgets_stands_beside(ask: Ask, tmp_path: Path) -> None:
    """Where there are any, and sums are of keys: less what is set aside; a dash, and null, for a key that has none."""
    file = tmp_path / "d.toml"
    file.write_text('[budgets.docs]\nkeys = ["doc:*"]\nusd_per_day = 2\nreserve_usd = 0.1\n')
    replies = reply("0.5"), reply("0.2", b"doc:2"), reply("0.1", b"apikey:a")
    _, out, _, _ = ask("--config", str(file), replies=replies)
    lines = [line.split() for line in out.splitlines()]
    assert [("KEY", "LEFT"), ("doc:1", "1.4000"), ("doc:2", "2.0000"), ("apikey:a", "-"), ("total", "-")] == [(c[0], c[-1]) for c in lines]
    _, out, _, _ = ask("--config", str(file), "--json", replies=replies)
    first, _, third = map(orjson.loads, out.splitlines())
    day = {"usd_per_day": "2", "settled_usd": "0.5", "reserved_usd": "0.1", "left_usd": "1.4", "until": "2026-11-30T00:00:00.000Z"}
    assert ({"name": "docs", **day}, None) == (first["budget"], third["budget"])
    _, out, _, _ = ask("--config", str(file), "--by", "day", replies=replies)
    assert "LEFT" not in out


def test_what_agents_have_left_stands_beside_theirs(ask: Ask, tmp_path: Path) -> None:
    """In all partitions together; those that do not say who they are have one budget, where one is for all."""
    file = tmp_path / "d.toml"
    replies = reply("0.5", agent="planner"), reply("0.2", agent="writer"), reply("0.1")
    for agents, left in ('["planner"]', ["1.4000", "-", "-"]), ('["*"]', ["1.4000", "2.0000", "2.0000"]):
        file.write_text(f"[budgets.agents]\nagents = {agents}\nusd_per_day = 2\nreserve_usd = 0.1\n")
        _, out, _, _ = ask("--config", str(file), "--by", "agent", replies=replies)
        assert left == [line.split()[-1] for line in out.splitlines()][1:4]


def test_nothing_is_a_note_and_no_error(ask: Ask) -> None:
    """Stdout is data only."""
    code, out, err, asked = ask("--by", "day", "-k", "doc:1", "-p", "0,3", "-o", "@2026-11-29T00:00Z:@2026-11-30T00:00Z")
    assert (0, "") == (code, out)
    assert "no reply there says anything of tokens" in err
    assert ("doc:1", (0, 3), "day") == (asked[0].key, asked[0].partitions, asked[1])


@pytest.mark.parametrize("arguments", [("--by", "credential"), ("-o", "yesterday"), ("-p", "x")])
def test_what_cannot_be_meant_is_refused(ask: Ask, arguments: tuple[str, ...]) -> None:
    """Exit code 2, before anything is read."""
    code, _, _, asked = ask(*arguments)
    assert (2, []) == (code, asked)
