"""Paused and halted: nothing of the key starts until somebody lets it go on, and its time is not spent waiting."""

from __future__ import annotations

import pytest

from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.steps import Busy, Held, Idle, Wait
from dispatcher.core.messages.status import Reason, Status
from tests.core.aside import Aside
from tests.core.keyed import DECODER, KEY, Hold, fail, fetch, finish, keyed, offsets, park, run, settle, start
from tests.specimens import MONO, OWNER, answer, decoder, noted, now, record, settings, value


@pytest.mark.parametrize("why", ["paused", "halted"])
def test_nothing_of_a_held_key_starts(why: str) -> None:
    """Not even its decoding: what is refused is refused when its turn comes. There is no time at which that ends."""
    hold = Hold()
    lane = keyed(hold=hold)
    lane.add(record(b"{", 5), MONO)
    lane.add(record(offset=6), MONO)
    hold.why = why
    assert [Held(why), Held(why)] == [noted(lane, now(later_s)) for later_s in (0, 10_000)]
    assert (why, None) == lane.why(now())
    assert lane.is_waiting_long(now(), 1)
    hold.why = ""
    assert [5] == offsets([settle(lane)])
    assert 6 == start(lane)


def test_a_hold_comes_into_effect_in_a_wait() -> None:
    """In front of a retry: it stays held when its time has come, and starts at once when it may."""
    hold = Hold()
    lane = keyed(5, hold=hold)
    fail(lane, wait_s=20)
    hold.why = "paused"
    assert [Held("paused"), Held("paused")] == [noted(lane, now(later_s)) for later_s in (1, 30)]
    hold.why = ""
    assert Wait(MONO + 20, "retry_after") == noted(lane, now(1))
    assert 5 == start(lane, 30)


def test_a_call_in_hand_is_not_held() -> None:
    """It ends and is answered; its retry, and the next one, wait."""
    hold = Hold()
    lane = keyed(5, 6, hold=hold)
    start(lane)
    hold.why = "paused"
    assert isinstance(noted(lane, now()), Busy)
    lane.answered(answer(), now(), 0.5)
    assert [5] == offsets([settle(lane)])
    assert Held("paused") == noted(lane, now())


def test_a_held_key_can_be_parked_and_comes_back() -> None:
    """Before its first call as after; while it is held nothing is read back."""
    hold, aside = Hold(), Aside()
    lane = keyed(5, 6, hold=hold)
    fail(lane, wait_s=1)
    hold.why = "halted"
    assert ([5, 6], []) == park(lane, aside)
    assert Held("halted") == noted(lane, now(60))
    hold.why = ""
    assert [5, 6] == fetch(lane, aside, 60)
    assert 5 == start(lane, 60)


def test_what_was_read_back_meanwhile_waits_again() -> None:
    """Held while it was on its way: it leaves memory once more, and nothing is written for that."""
    hold, aside = Hold(), Aside()
    lane = keyed(5, 6, hold=hold)
    park(lane, aside)
    fetch(lane, aside)
    hold.why = "paused"
    assert Held("paused") == noted(lane, now())
    assert ([], [5, 6]) == park(lane, aside)
    hold.why = ""
    assert [5, 6] == run(lane, aside)


def test_in_a_strict_lane_the_key_of_the_head_decides() -> None:
    """One lane for all keys: it stands while a held key's request is its head, and other keys wait with it."""
    held = {b"b": "paused"}
    lane = Lane(OWNER, decoder(), None, lambda key: held.get(key or b"", ""))
    for offset, key in enumerate((b"a", b"b", b"a")):
        lane.add(record(offset=offset, key=key), MONO)
    assert 0 == finish(lane)
    assert Held("paused") == noted(lane, now())
    assert ("paused", None) == lane.why(now())
    held.clear()
    assert [1, 2] == [finish(lane), finish(lane)]


def test_in_a_strict_lane_that_has_parked_ones_their_key_decides() -> None:
    """Left from before, when there was a lane per key: what is told is what keeps the lane."""
    aside = Aside()
    park(keyed(1), aside)
    held = {KEY: "paused"}
    lane = Lane(OWNER, decoder(), None, lambda key: held.get(key or b"", ""))
    lane.add(record(offset=7, key=b"a"), MONO)
    lane.restore(aside.entries(), now())
    assert Held("paused") == noted(lane, now())
    assert ("paused", None) == lane.why(now())
    held = {b"a": "paused"}
    assert ("", None) == lane.why(now())


# --- halting --------------------------------------------------------------------------------------------------------------------------


def test_a_dead_letter_of_who_asked_for_it_halts_its_key() -> None:
    """With the outcome goes the command; the id is the request's place and the assignment's epoch: it halts once each time it fails."""
    lane = keyed()
    lane.add(record(value(attempts_max=1, after_failure="halt_key"), 5), MONO)
    start(lane)
    lane.answered(answer(500), now(), 0.5)
    outcome = settle(lane)
    assert outcome.halt is not None
    assert ("key:doc:42", "halted") == (outcome.halt.target, outcome.halt.state)
    assert f"halt/dispatcher.requests/0/5@pX3kQ9aZ/{OWNER.epoch}" == outcome.halt.id
    assert [b"key:doc:42"] == [message.key for message in outcome.extra]


@pytest.mark.parametrize(("status", "fields"), [(200, {"after_failure": "halt_key"}), (404, {"after_failure": "halt_key"}), (500, {})])
def test_nothing_else_halts(status: int, fields: dict[str, str]) -> None:
    """A good answer, a final one of the callee, and a dead letter of who did not ask for it."""
    lane = keyed()
    lane.add(record(value(attempts_max=1, **fields), 5), MONO)
    start(lane)
    lane.answered(answer(status), now(), 0.5)
    assert settle(lane).halt is None


def test_too_many_behind_a_halted_key_are_refused_at_once() -> None:
    """Out of turn, also beside a call in hand: a dead reply and letter that say why; those that were there before stay."""
    hold = Hold()
    lane = keyed(5, hold=hold)
    hold.why = "halted"
    lane.refuse(record(offset=6))
    lane.refuse(record(b"{", 7))
    refused = [settle(lane), settle(lane)]
    assert [(6, Reason.HALTED_KEY, 0), (7, Reason.MALFORMED, 0)] == [
        (one.record.offset, one.reply.reason, one.reply.attempts) for one in refused if one.reply is not None and one.record is not None
    ]
    assert [Reason.HALTED_KEY, Reason.MALFORMED] == [one.letter.reason for one in refused if one.letter is not None]
    assert Held("halted") == noted(lane, now())
    hold.why = ""
    start(lane)
    lane.refuse(record(offset=8))
    assert [8] == offsets([settle(lane)])
    assert isinstance(noted(lane, now()), Busy)
    lane.answered(answer(), now(), 0.5)
    outcome = settle(lane)
    assert (5, Status.OK) == (offsets([outcome])[0], outcome.reply and outcome.reply.status)
    assert isinstance(noted(lane, now()), Idle)


def test_the_refusal_says_how_many_wait() -> None:
    """As it is set."""
    lane = Lane(OWNER, decoder(settings(worker={"ordering": "key", "halted_max_records": 7})), KEY)
    lane.refuse(record(offset=6))
    outcome = settle(lane)
    assert outcome.letter is not None
    assert "7 requests wait behind that already" in outcome.letter.message
    assert DECODER.settings.worker.halted_max_records == 1000
