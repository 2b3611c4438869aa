"""What one call has of the limits that it is under: reserved when it is let through, used when it is made, settled when it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dispatcher.core.callees.allowance import Allowance, allowances
from dispatcher.core.callees.finding import TOO_MANY_REQUESTS, Finding, Known, Party
from dispatcher.core.callees.limit import Limit
from dispatcher.core.callees.meter import TOKENS
from dispatcher.core.messages.call import Answered, CallResult
from dispatcher.core.messages.usage import Usage


@dataclass(frozen=True, slots=True)
class Statement:
    """What the end of a call says of limits: `tokens` that it took (None: not said), and what is left, by dimension."""

    tokens: int | None = None
    left: Mapping[str, Allowance] = field(default_factory=dict)


SILENT = Statement()


def statement_of(result: CallResult, used: Usage | None, wall: float) -> Statement:
    """What an answer says that was billed so; nothing where there is none. `wall`: now, in seconds since 1970."""
    if not isinstance(result, Answered):
        return SILENT
    return Statement(None if used is None else used.tokens.input + used.tokens.output, allowances(result.headers, wall))


class Reservation:
    """Owned by the pass of a call. `limits`: all that it is under; `tokens`: how many it is expected to take."""

    __slots__ = ("_began", "_entries", "_limits", "_losses", "_tokens")

    def __init__(self, limits: Sequence[Limit], tokens: int) -> None:
        self._limits = limits
        self._tokens = tokens
        self._entries = [(limit, entry) for limit in limits for entry in limit.hold(tokens)]
        self._losses = [limit.losses for limit in limits]
        self._began: float | None = None

    def may_begin(self, now: float) -> bool:
        """Whether the call may still be made: what was ours of its limits may have become less since it was let through."""
        of = {limit: [entry for its, entry in self._entries if its is limit] for limit in self._limits}
        return all(limit.may_begin(of[limit], losses, now) for limit, losses in zip(self._limits, self._losses, strict=True))

    def begin(self, now: float) -> None:
        """The call is made now: from here on what it takes leaves the windows."""
        if self._began is None:
            self._began = now
            for limit, entry in self._entries:
                limit.begin(entry, now)

    def end(self, finding: Finding | None, said: Statement, now: float, wait_max_s: float, *, is_of_credential: bool = True) -> None:
        """It has ended so (None: cut off), or is not made after all: what it did not take is given back.

        `is_of_credential`: what the callee says of its limits is; else it is of limits that name a model. What it says of times is believed
        for `wait_max_s` at most.
        """
        known = None if finding is None else finding.known
        if known not in {None, Known.NOT_SENT}:
            self.begin(now)  # nobody said when it went out
        is_gone = self._began is None or known in {Known.ANSWERED, Known.NOT_SENT}
        for limit in self._limits:
            limit.leave(now, is_gone=is_gone)
        if self._began is not None and finding is not None and finding.fault is Party.NOBODY:
            late_s = {limit: limit.late_by(now - self._began) for limit in self._limits}
            for limit, entry in self._entries:
                entry.meter.late(entry, self._began, late_s[limit])
        was_sent = self._began is not None and known is not Known.NOT_SENT
        tokens = self._taken(finding, said) if was_sent else 0
        for limit, entry in self._entries:
            limit.settle(entry, tokens if entry.meter.dimension == TOKENS else int(was_sent), now)
        if was_sent:
            meant = [limit for limit in self._limits if is_of_credential or limit.of.model is not None]
            self._heed(finding, said, meant, now, wait_max_s)

    def _heed(self, finding: Finding | None, said: Statement, meant: Sequence[Limit], now: float, wait_max_s: float) -> None:
        """What the callee says is left of the limits that it means; and that it was too much.

        A 429 is one of those of the credential, where there are such; else of any: whatever was too much, nothing else can be lowered.
        """
        for limit, entry in self._entries:
            if limit in meant and (told := said.left.get(entry.meter.dimension)) is not None:
                lasts_s = entry.meter.window_s if told.reset_s is None else told.reset_s
                entry.meter.hear(entry, told.left, now + min(lasts_s, wait_max_s), now)
        if self._began is not None and finding is not None and finding.status == TOO_MANY_REQUESTS and not finding.is_quota:
            of_credential = [limit for limit in meant if limit.of.credential is not None]
            for limit in of_credential or meant or self._limits:
                limit.refuse(self._began, now)

    def _taken(self, finding: Finding | None, said: Statement) -> int:
        """What the answer says; what was expected, where it says nothing; what was refused has taken none."""
        if said.tokens is not None:
            return said.tokens
        return 0 if finding is not None and finding.fault is Party.CALLER else self._tokens
