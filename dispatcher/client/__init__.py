"""For programs: `Dispatcher` and `SyncDispatcher` to submit, ask and wait; below them a submitter and searches of the topics."""

from __future__ import annotations

from dispatcher.client.budgets import balances
from dispatcher.client.call import Call, Request
from dispatcher.client.dispatcher import Dispatcher
from dispatcher.client.reply import DeadLetter, Reply
from dispatcher.client.search import Query, Search, dead_letters, replies, requests
from dispatcher.client.serving import serving
from dispatcher.client.submitter import OPEN_MAX, Submitter, stamp
from dispatcher.client.sync import SyncDispatcher
from dispatcher.client.usage import usage
from dispatcher.core.messages.submission import Receipt

__all__ = [
    "OPEN_MAX",
    "Call",
    "DeadLetter",
    "Dispatcher",
    "Query",
    "Receipt",
    "Reply",
    "Request",
    "Search",
    "Submitter",
    "SyncDispatcher",
    "balances",
    "dead_letters",
    "replies",
    "requests",
    "serving",
    "stamp",
    "usage",
]
