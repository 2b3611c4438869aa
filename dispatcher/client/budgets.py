"""What keys, credentials and agents have left of their budgets: read from the state topic, where workers commit what they spend."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from dispatcher.adapters.kafka.admin import connect, facts_of
from dispatcher.adapters.kafka.log import TIMEOUT_S, LogReader
from dispatcher.core.internal.account import Account, fold, together
from dispatcher.core.internal.budget import Budgets
from dispatcher.core.messages.classes import book_of
from dispatcher.core.operations.balance import Balances
from dispatcher.core.operations.positions import START, Span
from dispatcher.settings import Settings


def balances(settings: Settings, partitions: Sequence[int] | None = None, *, timeout_s: float | None = None) -> Balances:
    """Read what has been spent in these partitions (None: in all), by the [budgets] of these settings. Blocks. Errors as `LogReader`'s.

    Of a credential and an agent all have to be read. Nothing is read where no budget is configured.
    """
    accounts: dict[str, Account] = {}
    if settings.budgets:
        accounts = _accounts(settings, partitions, timeout_s or TIMEOUT_S)
    return Balances(Budgets(settings.budgets), accounts, time.time())


def _accounts(settings: Settings, partitions: Sequence[int] | None, timeout_s: float) -> dict[str, Account]:
    topics, cluster = settings.topics, connect(settings, timeout_s)
    first = settings.request_topics[0]
    known = facts_of(cluster, [first, topics.state])
    requests, state = known.get(first), known.get(topics.state)
    if requests is None or state is None:
        return {}
    book = book_of(requests.topic_id_text, has_classes=bool(settings.kinds))
    found: defaultdict[int, dict[str, Account]] = defaultdict(dict)
    with LogReader(settings, topics.state, timeout_s) as reader:
        for record in reader.read(Span(START), partitions=partitions, until_end=True):
            fold(found[record.partition], record, book)
    of_name: defaultdict[str, list[Account]] = defaultdict(list)
    for accounts in found.values():
        for account in accounts.values():
            of_name[account.name].append(account)
    return {name: together(of) for name, of in of_name.items()}
