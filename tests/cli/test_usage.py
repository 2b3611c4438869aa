"""`usage` on a command line: its table, its JSON, and what it says where there is nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from dispatcher import client
from dispatcher.cli import main
from dispatcher.client import Query
from dispatcher.core.messages.record import Record
from dispatcher.core.operations.usage_report import UsageReport
from tests.core.operations.test_usage_report import reply

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

        monkeypatch.setattr(client, "usage", usage)
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
