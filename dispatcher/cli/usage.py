"""`dispatcher usage`: what the answers were billed for, added up from the replies."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.app import Options
from dispatcher.cli.planned import columns
from dispatcher.cli.replies import Key, Partitions, partition_numbers
from dispatcher.cli.rows import NOTHING, key_word, note, say

if TYPE_CHECKING:
    from decimal import Decimal

    from dispatcher.core.operations.balance import Balance, Balances
    from dispatcher.core.operations.usage_report import Name, Row

_COLUMNS = ("REPLIES", "INPUT", "CACHED", "WRITTEN", "OUTPUT", "REASONING", "USD", "UNPRICED", "SAVED")


class By(StrEnum):
    """What sums are made for."""

    KEY = "key"
    AGENT = "agent"
    MODEL = "model"
    DAY = "day"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("usage")(_usage)


def _usage(
    ctx: typer.Context,
    by: Annotated[By, typer.Option("--by", help="A sum for each of these.")] = By.KEY,
    offset: Annotated[
        str | None,
        typer.Option("-o", "--offset", metavar="FROM[:TO]", help="As of `replies`: @-24h, @2026-11-29T00:00Z:@-1h.", show_default="start"),
    ] = None,
    key: Key = None,
    partitions: Partitions = None,
) -> None:
    """Add up what the replies say of tokens and cost: all attempts of each request, and nothing for duplicates.

    CACHED, WRITTEN (into a cache) are among INPUT, REASONING is among OUTPUT. USD is of the replies whose price is known, UNPRICED counts
    the others. SAVED: what usage.reference_model would have cost more. LEFT, with --by key or agent and where there are [budgets]: what
    that may spend today. Reads what stands in the topics now; --json has one object a line.
    """
    from dispatcher import client
    from dispatcher.core.operations.positions import START, Span, parse_span

    options: Options = ctx.obj
    span = Span(START) if offset is None else parse_span(offset, datetime.now(UTC))
    query = client.Query(span, partition_numbers(partitions), until_end=True, key=key)
    settings = options.settings()
    report = client.usage(settings, query, by.value, timeout_s=options.timeout_s)
    left = client.balances(settings, timeout_s=options.timeout_s) if by in {By.KEY, By.AGENT} and settings.budgets else None
    rows = report.rows()
    if options.json:
        for name, row in rows:
            _say_json(by.value, name, row, left)
    elif rows:
        heads = (by.value.upper(), *_COLUMNS, *(() if left is None else ("LEFT",)))
        table = [heads, *((_named(name), *_cells(row), *_left(by.value, name, left)) for name, row in rows)]
        table.append(("total", *_cells(report.total), *(() if left is None else (NOTHING,))))
        for line in columns(table):
            say(line)
    elif not options.quiet:
        note("note: no reply there says anything of tokens")


def _say_json(by: str, name: Name, row: Row, left: Balances | None) -> None:
    import orjson

    fields = {by: name, **row.fields()}
    if left is not None:
        balance = _balance(by, name, left)
        fields["budget"] = None if balance is None else balance.fields()
    say(orjson.dumps(fields))


def _left(by: str, name: Name, left: Balances | None) -> tuple[str, ...]:
    """The cell of what a key or an agent may spend still, where there is such a column."""
    if left is None:
        return ()
    balance = _balance(by, name, left)
    return (_money(None if balance is None else balance.left),)


def _balance(by: str, name: Name, left: Balances) -> Balance | None:
    return left.of_agent(name if isinstance(name, str) else "") if by == By.AGENT.value else left.of(_key_of(name))


def _key_of(name: Name) -> bytes | None:
    from dispatcher.core.messages.record_json import raw_of

    return raw_of(name, "key")


def _named(name: Name) -> str:
    return key_word(name)


def _cells(row: Row) -> tuple[str, ...]:
    tokens = row.tokens
    counts = (row.replies, tokens.input, tokens.cache_read, tokens.cache_write, tokens.output, tokens.reasoning)
    return (*map(str, counts), _money(row.known_cost), str(row.unpriced), _money(row.savings))


def _money(amount: Decimal | None) -> str:
    """Show an amount to a hundredth of a cent; `--json` has all of it."""
    return NOTHING if amount is None else f"{amount:.4f}"
