"""Requests that are sent again under their ids, within the dedup window."""

from __future__ import annotations

from collections import defaultdict

from tests.guarantees.events import CallStarted, Event, Noted, Removed, ReplyVisible, Submitted

Position = tuple[int, int]


class Duplicates:
    """Of the requests with one id under one key one is called; the others get its answer, and the journal knows of what is answered.

    `repeats_allowed`: at least once, what the journal knows of may be called again, since its reply may be missing. `is_in_order`: what is
    called is the first of them; else any may be, and one that is called again after a crash may have been told of before.

    >>> def judged(*events):
    ...     judge = Duplicates()
    ...     for event in (*(Submitted(0, n, "k", name="a") for n in (1, 3)), Submitted(0, 5, "k", name="a", asks="more"), *events):
    ...         judge.see(event)
    ...     return judge.findings()
    >>> first = CallStarted(1, 0, 1, 1), ReplyVisible(0, 1, says="yes"), Noted(0, 1)
    >>> judged(*first, ReplyVisible(0, 3, says="yes", duplicate=True), ReplyVisible(0, 5, says="dead id_conflict", called=False))
    []
    >>> judged(CallStarted(0, 0, 1, 1), CallStarted(1, 0, 1, 2), *first[1:])
    []
    >>> judged(*first, CallStarted(2, 0, 5, 1))
    ['partition 0: a of key k was called at offsets 1, 5']
    >>> judged(*first, ReplyVisible(0, 3, says="no", duplicate=True))
    ['partition 0: offset 3 was answered with what is no answer to a of key k']
    >>> judged(*first, ReplyVisible(0, 5, says="yes", duplicate=True))
    ['partition 0: offset 5 was answered with what is no answer to a of key k']
    >>> judged(*first[:2])
    ['partition 0: offset 1 was answered, and the journal does not know of it']
    >>> judged(Noted(0, 1))
    ['partition 0: the journal knows of offset 1, which was not answered']
    >>> judged(*first, CallStarted(2, 0, 1, 2))
    ['partition 0: offset 1 was called in epoch 2, and the journal knew of its end']
    >>> early = CallStarted(0, 0, 1, 1), ReplyVisible(0, 3, says="expired", called=False), *first[1:]
    >>> judged(*early, ReplyVisible(0, 5, says="yes", duplicate=True))[0].partition(" with ")[0]
    'partition 0: offset 5 was answered'

    What retention took away before it was answered, nobody knows of.

    >>> judged(CallStarted(0, 0, 1, 1), Removed(0, 2), CallStarted(1, 0, 3, 2))
    []
    """

    def __init__(self, *, repeats_allowed: bool = False, is_in_order: bool = True) -> None:
        self._repeats_allowed = repeats_allowed
        self._is_in_order = is_in_order
        self._epochs: dict[Position, int] = {}  # the last one that called it
        self._ended: dict[Position, int] = {}  # the last one that had called it when the journal knew of it
        self._again: list[str] = []
        self._submitted: dict[Position, Submitted] = {}
        self._called: dict[tuple[int, str, str], set[int]] = defaultdict(set)
        self._answers: dict[Position, set[str]] = defaultdict(set)
        self._called_replies: set[Position] = set()
        self._duplicates: dict[Position, set[str]] = defaultdict(set)
        self._noted: set[Position] = set()
        self._repeated: set[tuple[int, str, str]] = set()  # what was called more than once
        self._removed: dict[int, int] = {}

    def see(self, event: Event) -> None:
        """Take in requests with ids, calls, replies, and what the journal is told."""
        match event:
            case Submitted(partition, offset, name=name) if name:
                self._submitted[partition, offset] = event
            case CallStarted(partition=partition, offset=offset) if (of := self._submitted.get((partition, offset))) is not None:
                self._called[partition, of.key, of.name].add(offset)
                self._start(event)
            case ReplyVisible(partition, offset, duplicate=True):
                self._duplicates[partition, offset].add(event.says)
            case ReplyVisible(partition, offset):
                self._answers[partition, offset].add(event.says)
                if event.called:
                    self._called_replies.add((partition, offset))
            case Noted(partition, offset):
                self._noted.add((partition, offset))
                if (partition, offset) in self._epochs:
                    self._ended[partition, offset] = self._epochs[partition, offset]
            case Removed(partition, before):
                self._removed[partition] = before
            case _:
                pass

    def _start(self, event: CallStarted) -> None:
        position = event.partition, event.offset
        if not self._repeats_allowed and event.epoch > self._ended.get(position, event.epoch):
            self._again.append(
                f"partition {event.partition}: offset {event.offset} was called in epoch {event.epoch}, and the journal knew of its end"
            )
        if position in self._epochs:
            of = self._submitted[position]
            self._repeated.add((of.partition, of.key, of.name))
        self._epochs[position] = max(event.epoch, self._epochs.get(position, event.epoch))

    def findings(self) -> list[str]:
        """Say what was called or answered otherwise."""
        found = list(self._again)
        for (partition, key, name), offsets in self._called.items():
            left = [n for n in sorted(offsets) if n >= self._removed.get(partition, 0) or (partition, n) in self._noted]
            if not self._is_in_order:  # another owner may have begun with another of them
                left = [n for n in left if (partition, n) in self._called_replies]
            if len(left) > 1:
                found.append(f"partition {partition}: {name} of key {key} was called at offsets {', '.join(map(str, left))}")
        for position, says in self._duplicates.items():
            of = self._submitted[position]
            is_repeated = (of.partition, of.key, of.name) in self._repeated and not self._is_in_order
            if not says <= self._possible(position) and not is_repeated:
                found.append(
                    f"partition {position[0]}: offset {position[1]} was answered with what is no answer to {of.name} of key {of.key}"
                )
        silent = (self._called_replies & self._submitted.keys()) - self._noted
        found += [f"partition {n}: offset {offset} was answered, and the journal does not know of it" for n, offset in sorted(silent)]
        unanswered = self._noted - self._answers.keys() - self._duplicates.keys()
        return found + [f"partition {n}: the journal knows of offset {offset}, which was not answered" for n, offset in sorted(unanswered)]

    def _possible(self, position: Position) -> set[str]:
        """What this request, and those before it with its key and id that ask for the same, were answered otherwise.

        Where one of them was called, that is the answer: others were ended before their turn.
        """
        of = self._submitted[position]
        same = [
            (one.partition, one.offset)
            for one in self._submitted.values()
            if (one.partition, one.key, one.name, one.asks) == (of.partition, of.key, of.name, of.asks)
            and (one.offset <= of.offset or not self._is_in_order)
        ]
        called = [one for one in same if one in self._called_replies]
        return {says for one in called or same for says in self._answers.get(one, ())}
