"""The state topic as lanes and partitions meet it: the last note of each request counts."""

from __future__ import annotations

from dispatcher.core.internal.account import Account, fold
from dispatcher.core.internal.tried import Noted, Tried, place_of, read_tried
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.messages.record import Record
from tests.specimens import TOPIC_ID

STATE = "dispatcher.state"


class Notes:
    """What is known of requests, by offset, and of what keys have spent, by the names of their accounts."""

    def __init__(self) -> None:
        self.known: dict[int, Tried] = {}
        self.accounts: dict[str, Account] = {}

    def publish(self, outcome: Outcome) -> None:
        """Write what an outcome has for this topic."""
        for message in outcome.messages():
            if message.topic == STATE:
                written = Record(STATE, message.partition, 0, message.key, message.value, message.headers)
                if fold(self.accounts, written, TOPIC_ID):
                    continue
                offset, tried = place_of(written, TOPIC_ID), read_tried(written, TOPIC_ID)
                assert offset is not None
                if tried is None:
                    self.known.pop(offset, None)
                else:
                    self.known[offset] = tried

    def noted(self) -> Noted:
        """What a new owner reads."""
        return Noted(list(self.known.values()), accounts=tuple(self.accounts.values()))
