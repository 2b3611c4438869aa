"""What can be known of how a call ended: three kinds that exclude each other, and nothing that could change under a lane."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import get_args

import pytest

from dispatcher.core.messages.call import Ambiguous, Answered, Call, CallResult, NotSent

CALL = Call("openai", "POST", "/x", (), b"{}", "team-a", 60.0)


def test_a_call_ends_in_one_of_three_ways() -> None:
    """Answered, certainly not sent, or unknown: a timeout is never taken for "did not happen"."""
    assert set(get_args(CallResult)) == {Answered, NotSent, Ambiguous}


@pytest.mark.parametrize("value", [CALL, Answered(200, (), b""), NotSent("dns", "no such name"), Ambiguous("timeout", "60 s")])
def test_calls_and_results_are_frozen(value: Call | CallResult) -> None:
    """They travel between owners: nobody changes them."""
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, "other")


def test_an_answer_is_whole_unless_said_otherwise() -> None:
    """`truncated` marks an answer that was longer than what is kept."""
    assert not Answered(200, (), b"x").truncated


def test_a_call_holds_no_address_and_no_secret() -> None:
    """Upstream and credential are aliases; the HTTP adapter alone adds what they stand for."""
    assert set(Call.__slots__) == {"upstream", "method", "path", "headers", "body", "credential", "timeout_s"}
