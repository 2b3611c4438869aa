"""Why a lane stands: a set of reasons, each with its owner. None of them is a time that stands for another, and none hides another."""

from __future__ import annotations

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from dispatcher.core.internal.control import HALTED, PAUSED, RUNNING, Command, Desired, key_target, message, partition_target
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.steps import Held, Start, Wait
from dispatcher.core.messages.record import Record
from tests.core.keyed import DECODER, KEY
from tests.specimens import MONO, OWNER, answer, noted, now, record

WAIT_MAX_S = DECODER.settings.worker.wait_max_s
TOPIC = DECODER.settings.topics.control
TARGETS = {"key": (key_target(KEY), (PAUSED, HALTED)), "partition": (partition_target(OWNER.partition), (PAUSED,))}


class Reasons(RuleBasedStateMachine):
    """A lane of one key whose request is refused, while people pause, halt and resume its key and its partition."""

    @initialize()
    def begin(self) -> None:
        self.desired = Desired()
        self.lane = Lane(OWNER, DECODER, KEY, lambda key: self.desired.why_held(key, OWNER.partition))
        self.lane.add(record(), MONO)
        self.wanted: dict[str, str] = {}  # by who is held: what people said last, if it holds
        self.later_s = 0.0
        self.due_s = 0.0  # when the callee said to come again
        self.hinted_s: float | None = None
        self.said = 0

    @rule(who=st.sampled_from(sorted(TARGETS)), number=st.integers(0, 1))
    def hold(self, who: str, number: int) -> None:
        """Somebody holds it, for whatever reason that can be given for such a target."""
        target, states = TARGETS[who]
        self._say(target, states[number % len(states)])
        self.wanted[who] = states[number % len(states)]

    @rule(who=st.sampled_from(sorted(TARGETS)))
    def let_go(self, who: str) -> None:
        """Somebody lets it go on, as far as that reason goes; also where there was none."""
        self._say(TARGETS[who][0], RUNNING)
        self.wanted.pop(who, None)

    @rule(seconds=st.floats(0.1, 50_000))
    def time_passes(self, seconds: float) -> None:
        """A moment, or a day."""
        self.later_s += seconds

    @precondition(lambda self: not self.wanted and self.later_s >= self.due_s and self.hinted_s is None)
    @rule(seconds=st.integers(1, 500))
    def refused(self, seconds: int) -> None:
        """It is called, and told to come again."""
        assert isinstance(noted(self.lane, now(self.later_s)), Start)
        self.lane.answered(answer(503, headers=(("retry-after", str(seconds)),)), now(self.later_s), 0.5)
        self.due_s, self.hinted_s = self.later_s + seconds, self.later_s

    @invariant()
    def says_what_keeps_it(self) -> None:
        """Held while anybody holds it, whatever the time; else it waits for its own time, which lies within what it may wait at most."""
        at = now(self.later_s)
        why, until = self.lane.why(at)
        if self.wanted:
            assert (Held(why), None) == (noted(self.lane, at), until)
            assert why in self.wanted.values()
        elif self.later_s < self.due_s:
            step = noted(self.lane, at)
            assert isinstance(step, Wait)
            assert (step.why, step.until) == (why, until)
            assert at.mono < step.until <= at.mono + WAIT_MAX_S
            assert abs(MONO + self.due_s - step.until) < 1
        else:
            assert ("", None) == (why, until)

    def teardown(self) -> None:
        """Once every reason is gone it goes on: none was lost, and none is left."""
        if not hasattr(self, "lane"):
            return
        for target, _ in TARGETS.values():
            self._say(target, RUNNING)
        assert 0 == len(self.desired)
        assert isinstance(noted(self.lane, now(max(self.later_s, self.due_s) + 1)), Start)

    def _say(self, target: str, state: str) -> None:
        self.said += 1
        written = message(Command(f"c-{self.said}", target, state, "2026-11-29T10:00:00Z", "ana"), TOPIC)
        self.desired.apply(Record(TOPIC, 0, self.said, written.key, written.value, written.headers))


def test_reasons_to_stand_are_a_set() -> None:
    """Whatever is held and let go by whom, in whatever order, and whenever: the lane stands as long as one reason is left."""
    run_state_machine_as_test(Reasons, settings=hypothesis_settings(max_examples=150, stateful_step_count=20, deadline=None))
