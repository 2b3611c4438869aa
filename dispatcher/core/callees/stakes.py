"""What a worker tells the others of the limits that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from dispatcher.core.bounds import OFFSET_MAX, TIME_MAX_S

# It comes from a topic: whoever may write there may have written anything.
Amount = Annotated[int, Field(ge=0, le=OFFSET_MAX)]
Seconds = Annotated[float, Field(ge=0, le=TIME_MAX_S)]


@dataclass(frozen=True, slots=True)
class Stake:
    """What a worker has of one quantity: of calls at once, or of requests or tokens in a window.

    `claim`: from when this was told it uses no more, and what it uses it may use for as long as its lease; 0: nothing. `wanted`: what it
    could use, `least` of which is of use. `spent`: what it had used in the window before. `lingers_s`: so long after its lease what it
    claims may be in use, or count, at the callee.
    """

    claim: Amount
    wanted: Amount
    least: Amount
    spent: Amount
    lingers_s: Seconds


@dataclass(frozen=True, slots=True)
class Stakes:
    """All of one process, `who`. `number` counts what it has told; `lease_s`: for how long it goes by that.

    `has`: whether it has what is of use of everything that it wants, and `since_s`: for how long it does, or does not.
    """

    who: str
    number: Amount
    lease_s: Seconds
    has: bool
    since_s: Seconds
    of: Mapping[str, Stake]
