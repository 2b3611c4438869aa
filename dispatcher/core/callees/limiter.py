"""All limits of a worker: which of them a call is under, and which upstreams share one.

A limit is of the calls that match all that it names: a credential, an upstream, a model. A call may be under several, and begins when all
of them let it through.
"""

from __future__ import annotations

from collections.abc import Mapping

from dispatcher.core.callees.limit import Limit
from dispatcher.core.messages.claim import Claim
from dispatcher.settings import LimitSettings, UpstreamSettings


class Limiter:
    """Owned by the gate. `limits` by name, as they are configured; `wait_max_s` as `Limit`'s."""

    def __init__(self, limits: Mapping[str, LimitSettings], wait_max_s: float) -> None:
        self.limits = {name: Limit(of, wait_max_s) for name, of in limits.items()}
        self._models = {of.model for of in limits.values() if of.model is not None}
        self._known: dict[tuple[str, str | None, str], tuple[Limit, ...]] = {}

    def of(self, claim: Claim) -> tuple[Limit, ...]:
        """Those that a call is under."""
        if not self.limits:
            return ()
        # What messages name is not kept: only models that a limit names, and aliases, which are configured.
        like = claim.upstream, claim.credential, claim.model if claim.model in self._models else ""
        found = self._known.get(like)
        if found is None:
            found = self._known[like] = tuple(limit for limit in self.limits.values() if _is_of(limit.of, Claim(*like)))
        return found

    def families(self, upstreams: Mapping[str, UpstreamSettings]) -> list[list[str]]:
        """The upstreams, those together that share a limit, directly or over others."""
        found = [[name] for name in upstreams]
        for limit in self.limits.values():
            members = {name for name, of in upstreams.items() if may_meet(limit.of, name, of)}
            joined = [family for family in found if not members.isdisjoint(family)]
            if len(joined) > 1:
                found = [family for family in found if family not in joined]
                found.append([name for family in joined for name in family])
        return found


def _is_of(limit: LimitSettings, claim: Claim) -> bool:
    return all(
        (
            limit.upstream in {None, claim.upstream},
            limit.credential in {None, claim.credential},
            limit.model in {None, claim.model},
        )
    )


def may_meet(limit: LimitSettings, name: str, upstream: UpstreamSettings) -> bool:
    """Whether calls to this upstream can be under this limit."""
    return limit.upstream in {None, name} and (limit.credential is None or limit.credential in upstream.credentials)
