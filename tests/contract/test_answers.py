"""What callees answer, by the table, over a socket: no engine loses or adds a word that a verdict rests upon."""

from __future__ import annotations

from dispatcher.adapters.http import HttpEngine
from dispatcher.core.callees.verdict import Tries, judge
from dispatcher.core.instant import Instant
from dispatcher.core.messages.call import Answered
from tests.answers import CASES, CHANCE, MONO, WALL
from tests.contract.engines import CALL
from tests.contract.hostile import Act, HostileCallee


async def test_each_answer_is_read_as_it_was_sent(engine: HttpEngine, callee: HostileCallee) -> None:
    """Status, body and verdict are those of the table, whichever library has read them, each after one request."""
    for number, case in enumerate(CASES, 1):
        callee.play(Act((case.raw(),)))
        sent, read = case.answered(), await engine.call(CALL)
        assert isinstance(read, Answered), case
        assert (sent.status, sent.body, case) == (read.status, read.body, case)
        case.assert_is(judge(read, Tries(calls=1), case.patience, Instant(MONO, WALL), CHANCE))
        assert number == len(callee.requests)
