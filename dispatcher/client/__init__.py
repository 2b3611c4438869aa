"""For programs that send requests and read what became of them: submit; replies, requests, dead letters."""

from __future__ import annotations

from dispatcher.client.search import Query, Search, dead_letters, replies, requests
from dispatcher.client.submitter import OPEN_MAX, Submitter, stamp, uuid7

__all__ = ["OPEN_MAX", "Query", "Search", "Submitter", "dead_letters", "replies", "requests", "stamp", "uuid7"]
