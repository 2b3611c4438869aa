"""What the topics that are written take, and outcomes in a form that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dispatcher.adapters.kafka.sink import Undelivered
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.settings import Settings
from dispatcher.worker.ready import Ready, messages_of, outcome_index


class Destinations:
    """The topics as the broker last told. Owned by the publisher's thread.

    `limits` are bytes of one record per topic. A reply topic of the settings that is gone (deleted, or ours no more to write) is not
    written again before the next start, even if it comes back: it may have other partitions then.
    """

    def __init__(self, settings: Settings, limits: Mapping[str, int]) -> None:
        self._group = settings.worker.group
        self._replies, self._letters = settings.topics.replies, settings.topics.dead_letters
        # Our own topics are only waited for: the lanes stand, visibly, until they are there.
        self._senders = frozenset(settings.topics.reply_topics) - {self._replies, self._letters}
        self._limits = dict(limits)
        self._gone: frozenset[str] = frozenset()

    def learn(self, limits: Mapping[str, int] | None) -> bool:
        """Take in what the broker tells now (None: nothing); True where that is something else than before."""
        if limits is None:
            return False
        gone = self._gone | (self._senders - limits.keys())
        changed = (limits, gone) != (self._limits, self._gone)
        self._limits, self._gone = dict(limits), gone
        return changed

    def ready(self, outcome: Outcome) -> Ready:
        """Render `outcome`, cut where a message is over its topic's limit: one bad record aborts everybody's transaction."""
        if self._gone and outcome.reply is not None and outcome.reply.envelope.reply_topic in self._gone:
            outcome = self._moved(outcome)
        messages = outcome.messages()
        if any(message.size_bytes > self._limits.get(message.topic, message.size_bytes) for message in messages):
            outcome = outcome.fitted(self._limits)
            messages = outcome.messages()
        return Ready(outcome, messages)

    def mended(self, pending: Sequence[Ready], undelivered: Sequence[Undelivered]) -> list[Ready]:
        """`pending` with what the broker does not take in a form that it can take; equal to it where nothing can be mended here.

        For size one at a time, the largest: a batch of messages fails as a whole.
        """
        messages = messages_of(pending)
        result = list(pending)
        large = [failure.index for failure in undelivered if failure.kind == "too_large"]
        if large:
            worst = max(large, key=lambda index: messages[index].size_bytes)
            i = outcome_index(pending, worst)
            result[i] = self.ready(pending[i].outcome.cut(messages[worst].topic))
        for failure in undelivered:
            if failure.kind == "unwritable" and messages[failure.index].topic in self._senders:
                i = outcome_index(pending, failure.index)
                result[i] = self.ready(self._moved(pending[i].outcome))
        return result

    def _moved(self, outcome: Outcome) -> Outcome:
        return outcome.readdressed(self._replies, self._letters, self._group)
