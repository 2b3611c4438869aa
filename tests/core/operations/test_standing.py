from __future__ import annotations

import pytest

from dispatcher.core.internal.parked import Entry
from dispatcher.core.operations.standing import Facts, NotFound, Queued, Running, Standing, Terminal, standing
from dispatcher.core.progress.commit_note import CommitNote
from dispatcher.core.progress.headway import Headway

REQUEST = ("requests", 3, 10)
REPLY = ("replies", 3, 4)
LETTER = ("dlq", 3, 1)
MAP = Headway(7, CommitNote(bytes(16), 1, 1, 7, ((10, 12), (13, 14))))
ENTRY = Entry(10, b"doc:1", 0, 100, 0.0, "backoff")
YES, NO = True, False


@pytest.mark.parametrize(
    ("facts", "stands"),
    [
        (Facts(), NotFound()),
        (Facts(REQUEST, Headway(7), YES, 3), Queued(REQUEST, 3, YES, YES)),
        (Facts(REQUEST, Headway(7), NO, 3), Queued(REQUEST, 3, YES, NO)),
        (Facts(REQUEST, Headway(10), YES, 0), Running(REQUEST)),
        (Facts(REQUEST, Headway(10), NO, 0), Queued(REQUEST, 0, YES, NO)),
        # Between the committed position and the request are only marks of transactions.
        (Facts(REQUEST, Headway(8), YES, 0), Running(REQUEST)),
        # A group that has committed nothing calls nothing.
        (Facts(REQUEST, Headway(), YES, 0), Queued(REQUEST, 0, YES, YES)),
        (Facts(REQUEST, Headway(0), YES, 20_000, before_is_exact=False), Queued(REQUEST, 20_000, NO, YES)),
        (Facts(REQUEST, Headway(11), YES, 0, reply=REPLY, status="ok"), Terminal(REQUEST, REPLY, "ok", None, None)),
        # Answered out of turn, and answered since the position was read.
        (Facts(REQUEST, Headway(7), YES, 3, reply=REPLY, status="expired"), Terminal(REQUEST, REPLY, "expired", None, None)),
        (
            Facts(REQUEST, Headway(11), reply=REPLY, status="dead", reason="malformed", dead_letter=LETTER),
            Terminal(REQUEST, REPLY, "dead", "malformed", LETTER),
        ),
        # Retention took the reply, the request, or all but the dead letter.
        (Facts(REQUEST, Headway(11)), Terminal(REQUEST, None, None, None, None)),
        (Facts(None, reply=REPLY, status="ok"), Terminal(None, REPLY, "ok", None, None)),
        (Facts(None, dead_letter=LETTER, reason="malformed"), Terminal(None, None, "dead", "malformed", LETTER)),
        # Settled above the position: by what stands beside it. One that was moved aside is settled there, and has not ended.
        (Facts(REQUEST, MAP, YES, 0), Terminal(REQUEST, None, None, None, None)),
        (Facts(("requests", 3, 12), MAP, YES, 0), Running(("requests", 3, 12))),
        (Facts(REQUEST, MAP, YES, 0, parked=ENTRY), Queued(REQUEST, 0, YES, YES, ENTRY)),
        (Facts(REQUEST, Headway(11), NO, 2, parked=ENTRY), Queued(REQUEST, 2, YES, NO, ENTRY)),
        (Facts(REQUEST, MAP, YES, 0, reply=REPLY, status="ok", parked=ENTRY), Terminal(REQUEST, REPLY, "ok", None, None)),
        # Nothing of a lane that is held is called, but for what was in a call before.
        (Facts(REQUEST, Headway(10), YES, 0, held="paused"), Queued(REQUEST, 0, YES, YES, held="paused")),
        # The first of its key, behind thousands of other keys' that no worker has read yet.
        (Facts(REQUEST, Headway(5), YES, 0, is_near=False), Queued(REQUEST, 0, YES, YES)),
    ],
)
def test_where_a_request_stands(facts: Facts, stands: Standing) -> None:
    """Row 15: waiting, running, ended and unknown are four different things, decided from what is committed."""
    assert stands == standing(facts)


def test_the_place_in_a_lane_counts_from_one() -> None:
    """With three before it, it is the fourth."""
    assert 4 == Queued(REQUEST, 3, before_is_exact=True, is_owned=True).place
