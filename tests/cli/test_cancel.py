"""`dispatcher cancel`: what it says and how it ends, for each way in which a request may have ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from dispatcher.cli import main
from dispatcher.client import Receipt, Reply, SyncDispatcher
from dispatcher.core.messages.record import Record
from dispatcher.errors import CallFailed, ReplyGone, WaitTimeout

RECEIPT = Receipt("r-1", "dispatcher.requests", 3, 41, b"doc:42", "2026-11-29T10:00:00.000Z")
CUT = {
    "kind": "cancelled_in_call",
    "message": "cancelled by ann: too slow; call number 1 was cut off, and the callee may have done it",
}


def reply(status: str, **value: Any) -> Reply:
    """A reply to the request."""
    names = {"ce_causationid": "r-1", "dispatcher-request-topic": "dispatcher.requests", "dispatcher-request-partition": "3"}
    names |= {"dispatcher-request-offset": "41", "dispatcher-duration-ms": "12"}
    headers = tuple((name, text.encode()) for name, text in names.items())
    content = orjson.dumps({"status": status, "attempts": 1, **value})
    return Reply.of(Record("dispatcher.replies", 3, 7, b"doc:42", content, headers))


Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ask:
    """Run the command against a client that gives this reply, or raises this; what it was asked is checked by the test's own callable."""

    def run(outcome: Reply | Exception, *arguments: str, wanted: Receipt | str = "r-1", **options: Any) -> tuple[int, str, str]:
        asked: list[Any] = []

        def cancel(_: SyncDispatcher, *given: Any, **named: Any) -> Reply:
            asked.append((given, named))
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(SyncDispatcher, "cancel", cancel)
        code = main(["cancel", *arguments, "-b", "127.0.0.1:1"])
        assert [((wanted,), {"reason": "", "timeout": 30.0} | options)] == asked
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return run


def test_one_that_was_cancelled_is_exit_code_0(ask: Ask) -> None:
    """On stdout who wanted it, and what became of its call; nothing on stderr."""
    code, out, err = ask(reply("cancelled", error=CUT), "r-1", "--reason", "too slow", "--timeout", "5s", reason="too slow", timeout=5.0)
    assert (0, f"request r-1 is cancelled: {CUT['message']}\n", "") == (code, out, err)


@pytest.mark.parametrize("status", ["ok", "error", "dead", "expired"])
def test_one_that_had_ended_otherwise_is_exit_code_5(ask: Ask, status: str) -> None:
    """Nothing was cancelled: stderr says how it ended and where its reply is; stdout is empty."""
    code, out, err = ask(reply(status), "r-1")
    assert (5, "") == (code, out)
    assert f"request r-1 has ended, as {status}: nothing was cancelled" in err
    assert "dispatcher.replies/3/7" in err


@pytest.mark.parametrize(("status", "expected"), [("cancelled", 0), ("ok", 5)])
def test_for_programs_it_is_one_object(ask: Ask, status: str, expected: int) -> None:
    """Status and place of the reply, in either case, beside the exit code."""
    error = CUT if status == "cancelled" else None
    code, out, _ = ask(reply(status, error=error), "r-1", "--json")
    place = {"topic": "dispatcher.replies", "partition": 3, "offset": 7}
    assert expected == code
    assert {
        "request_id": "r-1",
        "cancelled": status == "cancelled",
        "status": status,
        "error": error,
        "attempts": 1,
        "reply": place,
    } == json.loads(out)


@pytest.mark.parametrize(
    ("error", "expected"),
    [(CallFailed("there is no request 'r-1'"), 1), (ReplyGone("its reply is gone"), 1), (WaitTimeout("it stands written"), 4)],
)
def test_what_cannot_be_said_has_its_own_exit_code(ask: Ask, error: Exception, expected: int) -> None:
    """Not there, ended without a reply, not ended in time: one sentence on stderr."""
    code, out, err = ask(error, "r-1")
    assert (expected, "") == (code, out)
    assert str(error) in err


def test_a_receipt_names_its_request(ask: Ask) -> None:
    """As `wait` takes it."""
    code, _, _ = ask(reply("cancelled", error=CUT), json.dumps(RECEIPT.as_json()), wanted=RECEIPT)
    assert 0 == code


@pytest.mark.parametrize(
    ("arguments", "said"), [(("a b",), "not the id of a request"), (("{",), "not a receipt"), ((), "missing argument")]
)
def test_what_cannot_be_meant_is_exit_code_2(capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str) -> None:
    """Told without a broker, and nothing is on stdout."""
    assert 2 == main(["cancel", *arguments, "-b", "127.0.0.1:1"])
    printed = capfd.readouterr()
    assert "" == printed.out
    assert said in printed.err.lower()
