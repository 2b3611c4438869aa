"""A flood of equal lines becomes one line now and then, which says how many there were."""

from __future__ import annotations

import doctest
from itertools import product

from dispatcher.core import repetition
from dispatcher.core.repetition import QUIET_S, Repetition

REFUSED = (
    "[thrd:127.0.0.1:{port}/1]: 127.0.0.1:{port}/1: Connect to ipv4#127.0.0.1:{port} failed: refused (after {ms}ms in state CONNECT{more})"
)


def test_the_examples_hold() -> None:
    """What the docstrings show is what the module does."""
    assert doctest.testmod(repetition).failed == 0


def test_the_first_is_written_and_its_like_are_counted() -> None:
    """Address, counter, time and thread do not make a line another one; after a while it is written again, with the count."""
    repetition = Repetition()
    assert repetition.heard(REFUSED.format(port=9092, ms=0, more=""), 100.0) == 0
    for n in range(7):
        more = f", {n} identical error(s) suppressed"
        assert repetition.heard(REFUSED.format(port=9093, ms=n, more=more), 100.0 + n) is None
    assert repetition.heard(REFUSED.format(port=9092, ms=0, more=""), 100.0 + QUIET_S) == 7
    assert repetition.heard(REFUSED.format(port=9092, ms=0, more=""), 101.0 + QUIET_S) is None


def test_another_line_is_never_held_back() -> None:
    """What says something else is written at once, and a line that comes seldom always."""
    repetition = Repetition()
    assert repetition.heard("host:1: Connect to host failed: refused", 0.0) == 0
    assert repetition.heard("host:1: Disconnected", 0.0) == 0
    assert repetition.heard("host:1: Disconnected", QUIET_S) == 0


def test_the_memory_is_bounded() -> None:
    """Lines that are all different are all written, and are not all remembered."""
    repetition = Repetition()
    names = ["".join(letters) for letters in product("abcdefghijklm", repeat=3)]
    assert [repetition.heard(name, 0.0) for name in names] == [0] * len(names)
    assert repetition.heard(names[0], 0.0) == 0
