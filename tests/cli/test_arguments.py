"""Arguments that mean nothing: refused before Kafka is asked for anything, with one sentence, a hint and exit code 2."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatcher.cli import main

CALL = ("-k", "doc:1", "-u", "up", "/v1/x")
# Nobody listens there: a command that asked for Kafka all the same would end with 3.
NOWHERE = ("-b", "127.0.0.1:1", "--timeout", "1s")


@pytest.fixture(autouse=True)
def _a_folder_and_an_environment_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No settings and no files from outside, and the handler of Ctrl-C as it was."""
    for name in [name for name in os.environ if name.startswith("DISPATCHER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((), "submit --help"),
        (("-k", "doc:1", "/x"), "submit --help"),
        ((*CALL, "-d", "hello"), "content-type"),
        ((*CALL, "-m", "post"), "schemas/request"),
        ((*CALL, "-H", "novalue"), "for example"),
        ((*CALL, "--id", "a b"), "Idempotency-Key"),
        ((*CALL, "-d", "@missing.json"), "- for stdin"),
        (("--jsonl", "-", "-k", "doc:1"), "leave the other options"),
    ],
)
def test_what_cannot_be_a_request_is_not_sent(arguments: tuple[str, ...], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, nothing on stdout."""
    assert 2 == main(["submit", *arguments, *NOWHERE])
    out, err = capsys.readouterr()
    assert "" == out
    assert err.startswith("error: ")
    assert hint in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("-o", "latest"),
        ("-o", "5:"),
        ("-e", "-f"),
        ("-f", "-o", "1:2"),
        ("-p", "a"),
        ("-n", "0"),
        ("-o", "@2026-11-29T10:00"),
    ],
)
def test_no_argument_of_a_reader_is_ignored_or_guessed(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, nothing on stdout, a hint."""
    assert 2 == main(["replies", *arguments, *NOWHERE])
    out, err = capsys.readouterr()
    assert "" == out
    assert "hint: " in err
