"""What a commit may say: per assignment the position, and what is settled above it, of what is published or goes out with the commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.progress.commit_note import RANGES_MAX_BYTES, CommitNote, Range, decode
from dispatcher.core.progress.spans import Spans
from dispatcher.core.progress.strand import RequestTopics
from dispatcher.worker.ready import Ready


class Frontier:
    """Owned by the publisher's thread. It knows of each assignment what was settled when it began, and what has been committed since."""

    def __init__(self, topics: RequestTopics) -> None:
        self._topics = topics
        self._settled: dict[Owner, Spans] = {}
        self.cuts = 0  # commits that could not tell of all that they settle, which partitions see to (`Partition.settle`)

    def begin(self, owner: Owner, settled: Iterable[Range]) -> None:
        """An assignment begins; those of its partition before it are over."""
        for other in [other for other in self._settled if other.strand == owner.strand]:
            del self._settled[other]
        self._settled[owner] = Spans(settled)

    def positions(self, pending: Sequence[Ready], transaction: int) -> dict[Owner, tuple[int, str]]:
        """Per assignment the position and metadata to commit with these outcomes, which are in order."""
        return {
            owner: (position, self._note(owner, position, spans, transaction)) for owner, (position, spans) in self._with(pending).items()
        }

    def acknowledge(self, pending: Sequence[Ready]) -> None:
        """They are published and committed."""
        for owner, (position, spans) in self._with(pending).items():
            spans.rise(position)
            self._settled[owner] = spans

    def tells(self, owner: Owner, transaction: int, metadata: str | None) -> bool:
        """Whether this was committed for an assignment in that transaction."""
        note = decode(metadata, self._topics.topic_id(owner.strand))
        return note is not None and note.epoch == owner.epoch and note.transaction == transaction

    def _with(self, pending: Sequence[Ready]) -> dict[Owner, tuple[int, Spans]]:
        """What is settled once these are: the position of the last, and all that is known of."""
        found: dict[Owner, tuple[int, Spans]] = {}
        for ready in pending:
            owner, outcome = ready.owner, ready.outcome
            spans = found[owner][1] if owner in found else self._settled.get(owner, Spans()).copy()
            if outcome.span is not None:
                spans.add(*outcome.span)
            found[owner] = outcome.position, spans
        return found

    def _note(self, owner: Owner, position: int, spans: Spans, transaction: int) -> str:
        above = spans.copy()
        above.rise(position)
        self.cuts += above.size_bytes > RANGES_MAX_BYTES
        return CommitNote(self._topics.topic_id(owner.strand), owner.epoch, transaction, position, tuple(above)).encode()
