"""How what callees take is divided among those who want it: max-min fair, in whole numbers.

A pure function of what all of them tell. Who reads the same tells the same; where somebody reads it later the sums may differ for a moment,
and nobody rests a promise on it (see `shares`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Of all there is, a share for everybody without asking, so that who wants some at last has some: a fortieth together.
FLOOR_SHARE = 40


@dataclass(frozen=True, slots=True)
class Want:
    """What one of them could use, and the `least` that is of use; whether it `has` that, and for how long it does or does not (seconds)."""

    amount: int
    least: int = 1
    has: bool = False
    since_s: float = 0.0


def divide(total: int, wants: Mapping[str, Want], turn_s: float) -> dict[str, int]:
    """Each one's part of `total`; together they are never more than that, and never less.

    Nobody gets more than it wants while another one has less; what nobody wants is for all alike. Where there is not enough for everybody's
    least, they take turns: who has had his for `turn_s` gives it to who has lacked it longest.

    >>> divide(50, {name: Want(90) for name in "abc"}, 2)
    {'a': 17, 'b': 17, 'c': 16}
    >>> divide(50, {"a": Want(90), "b": Want(4), "c": Want(0)}, 2)
    {'a': 46, 'b': 4, 'c': 0}
    >>> divide(10, {"a": Want(2), "b": Want(1), "c": Want(0)}, 2)
    {'a': 5, 'b': 3, 'c': 2}
    >>> divide(1, {"a": Want(3, has=True, since_s=1), "b": Want(3, since_s=9)}, 2)
    {'a': 1, 'b': 0}
    >>> divide(1, {"a": Want(3, has=True, since_s=3), "b": Want(3, since_s=1), "c": Want(3, since_s=9)}, 2)
    {'a': 0, 'b': 0, 'c': 1}
    >>> divide(100, {"a": Want(90, least=70, since_s=1), "b": Want(100, has=True)}, 2)
    {'a': 70, 'b': 30}
    """
    if not wants:
        return {}
    floor = total // (FLOOR_SHARE * len(wants))
    amounts = {name: min(total, max(floor, want.amount)) for name, want in sorted(wants.items())}
    parts = _levelled(total, amounts, dict.fromkeys(amounts, 0))
    if any(parts[name] < min(total, wants[name].least) for name in amounts if wants[name].amount):
        parts = _levelled(total, amounts, _leasts(total, wants, turn_s))
    left = total - sum(parts.values())
    return {name: part + left // len(parts) + (place < left % len(parts)) for place, (name, part) in enumerate(parts.items())}


def _leasts(total: int, wants: Mapping[str, Want], turn_s: float) -> dict[str, int]:
    """What is of use to those who have their turn, as many as there is enough for."""
    leasts: dict[str, int] = {}
    for name in sorted((name for name in wants if wants[name].amount), key=lambda name: (_place(wants[name], turn_s), name)):
        least = min(total, wants[name].least)
        if least <= total - sum(leasts.values()):
            leasts[name] = least
    return leasts


def _place(want: Want, turn_s: float) -> tuple[int, float]:
    """Who comes first of those who cannot all have enough: who has it and has not had its turn yet, then who lacks it longest."""
    if want.has and want.since_s < turn_s:
        return 0, -want.since_s
    return (2, want.since_s) if want.has else (1, -want.since_s)


def _levelled(total: int, amounts: Mapping[str, int], given: Mapping[str, int]) -> dict[str, int]:
    """One level for all that are `given` something, if it is nothing; no more than each wants, and no less than that."""
    low, high = 0, total
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if sum(_clamped(level, amounts, given).values()) <= total else (low, level - 1)
    parts = _clamped(low, amounts, given)
    left = total - sum(parts.values())
    for name in [name for name in given if parts[name] == low < amounts[name]][:left]:
        parts[name] += 1
    return parts


def _clamped(level: int, amounts: Mapping[str, int], given: Mapping[str, int]) -> dict[str, int]:
    return {name: max(given[name], min(amount, level)) if name in given else 0 for name, amount in amounts.items()}
