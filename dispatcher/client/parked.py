"""What stands in the parked topic: requests that workers have moved aside, by where they stood."""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.adapters.kafka.admin import Cluster, facts_of
from dispatcher.adapters.kafka.log import LogReader
from dispatcher.adapters.kafka.starts import log_edges
from dispatcher.core.internal.parked import Entry, read_about
from dispatcher.core.operations.positions import START, Span
from dispatcher.settings import Settings

# By partition and offset of the original.
Index = dict[int, dict[int, Entry]]


def index(settings: Settings, cluster: Cluster, partitions: Sequence[int], topic_id_text: str, *, whole: bool = False) -> Index:
    """Read what is parked of the request topic of that id, up to the end that is there now. Blocks. Errors as `LogReader` has them.

    Also what is void: entries of records that the group has not settled, which no worker takes up. Empty where there is no such topic.
    `whole`: also what open transactions hide, which are waited for.
    """
    topics = settings.topics
    known = facts_of(cluster, [topics.parked]).get(topics.parked)
    found: Index = {number: {} for number in partitions if known is not None and number < known.partitions}
    if not found:
        return found
    with LogReader(settings, topics.parked, cluster.timeout_s) as reader:
        if whole:
            reader.await_stable(log_edges(cluster, topics.parked, [*found], "latest"))
        for record in reader.read(Span(START), partitions=[*found], until_end=True):
            about = read_about(record, topic_id_text, topics.requests)
            if about is None:
                continue
            if about.request is None:
                found[record.partition].pop(about.offset, None)
            else:
                found[record.partition][about.offset] = about.request.entry(record.offset)
    return found
