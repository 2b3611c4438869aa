"""`replay` before it asks Kafka anything: what cannot be meant is refused, with the way to say it."""

from __future__ import annotations

import pytest

from dispatcher.cli import main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "needs -o FROM:TO, or --plan"),
        (("-o", "0:10"), "name it with -p"),
        (("-o", "start:10", "-p", "0,1"), "name it with -p"),
        (("-o", "10:end"), "name it with -p"),
        (("-o", "start"), "-o start:end"),
        (("-o", "end:start"), "ends before it begins"),
        (("-o", "@5:end"), "cannot be read"),
        (("-o", "start:end", "-p", "x"), "-p 0,3"),
        (("-o", "start:end", "--rate", "5"), "for example --rate 5/s"),
        (("-o", "start:end", "--limit", "0"), "--limit"),
        (("-o", "start:end", "-n", "0"), "-n"),
        (("-o", "start:end", "--recorded", "--execute"), "executes nothing"),
        (("-o", "start:end", "--recorded", "--rate", "5/s"), "executes nothing"),
        (("--plan", "abc", "--execute"), "not a plan"),
        (("--plan", "abc", "-k", "doc:1"), "--plan says which requests"),
        (("--plan", "abc", "--include-replays"), "--plan says which requests"),
    ],
)
def test_what_cannot_be_meant_is_refused(capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str) -> None:
    """Row 33: one spelling, one meaning: offsets need one partition, times have an @, and nothing that was given is ignored."""
    assert 2 == main(["replay", *arguments])
    printed = capfd.readouterr()
    assert "" == printed.out
    assert said in printed.err
