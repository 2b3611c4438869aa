"""Tokens and money of the replies in a range of the reply topics, added up."""

from __future__ import annotations

from dispatcher.adapters.kafka.log import TIMEOUT_S, LogReader
from dispatcher.client.search import Query
from dispatcher.core.operations.usage_report import UsageReport
from dispatcher.settings import Settings


def usage(settings: Settings, query: Query, by: str, *, timeout_s: float | None = None) -> UsageReport:
    """Add up what the replies that a query asks for were billed for, up to the end that is there now. Errors as `LogReader` has them.

    `by` is one of `usage_report.BY`. Replies that were sent to other topics (`topics.reply_topics`) are among them.
    """
    report = UsageReport(by)
    key = None if query.key is None else query.key.encode("utf-8", "surrogateescape")
    for topic in (settings.topics.replies, *settings.topics.reply_topics):
        with LogReader(settings, topic, timeout_s or TIMEOUT_S) as reader:
            for reply in reader.read(query.span, partitions=query.partitions, until_end=True):
                if key is None or reply.key == key:
                    report.add(reply)
    return report
