"""`lanes` on a command line: what it prints of a board, a lane and an effect, how it ends, and what cannot be meant is refused."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pytest

from dispatcher.cli import lanes as module
from dispatcher.cli import main
from dispatcher.client.lanes import Description, Effect, Skip
from dispatcher.core.internal.control import HALTED, PAUSED, Command, Kind, Target
from dispatcher.core.internal.lane_report import LaneReport, PartitionReport, WorkerReport
from dispatcher.core.internal.parked import Entry
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.operations.balance import Balance
from dispatcher.core.operations.lane_board import Edges, Facts, LaneRow, in_force
from dispatcher.core.progress.commit_note import CommitNote
from dispatcher.core.progress.headway import Headway
from tests.specimens import WALL

KEY = Target(Kind.KEY, "doc:42")
REQUEST = Target(Kind.REQUEST, "dispatcher.requests/0/41@AbCdEfGh")
AT = "2026-11-29T10:00:00.000Z"
HALT = Command("halt/1", str(KEY), HALTED, AT, "dispatcher/team", "request r-1 ended as a dead letter")
PAUSE = Command("id-1", str(KEY), PAUSED, AT, "ana@desk", "too many errors")


class Fake:
    """Lanes that answer as they are told, and keep what was asked for."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def answer(*arguments: Any) -> Any:
            self.asked.append((name, *arguments))
            return self.answers[name]

        return answer


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Run a command line against lanes that answer so: exit code, stdout, stderr, and what was asked for."""

    def ask(*arguments: str, **answers: Any) -> tuple[int, str, str, list[tuple[Any, ...]]]:
        fake = Fake(**answers)
        monkeypatch.setattr(module, "_lanes", lambda _options: fake)
        code = main(["lanes", *arguments])
        printed = capfd.readouterr()
        return code, printed.out, printed.err, fake.asked

    return ask


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause",), "name a lane by its KEY, or a partition by -p N"),
        (("pause", "doc:42", "-p", "3"), "name a lane by its KEY, or a partition by -p N"),
        (("resume",), "name a lane by its KEY"),
        (("describe",), "name a lane by its KEY"),
        (("pause", "-p", "-1"), "-p"),
        (("pause", ""), "the key has 0 bytes"),
        (("pause", "k" * 1025), "the key has 1025 bytes"),
        (("pause", "\udcff"), "not UTF-8"),
        (("skip",), "name a lane by its KEY, or a request by --id"),
        (("skip", "doc:42", "--id", "r-1"), "name a lane by its KEY, or a request by --id"),
    ],
)
def test_what_cannot_be_meant_is_refused(ask: Any, arguments: tuple[str, ...], said: str) -> None:
    """Before anything is asked of Kafka: exit code 2, and nothing on stdout."""
    code, out, err, asked = ask(*arguments)
    assert (2, "", []) == (code, out, asked)
    assert said in err


# --- the board ------------------------------------------------------------------------------------------------------------------------

HOME = partition_for(b"doc:42", 2)
LANE = LaneReport("doc:7", "retry_after", 1_795_946_400.5, calling=False, queued=3, parked=2, head="r-7", offset=41, attempts=2, waited_s=9)
REPORT = PartitionReport(0, 7, 40, 5, 1, 2, 4, "", (LANE,))
FACTS = Facts(
    {0: Edges(0, 50), 1: Edges(0, 50)},
    {0: Headway(40, CommitNote(bytes(16), 1, 1)), 1: Headway()},
    {0: "dispatcher-a"},
    {"a": WorkerReport("a", AT, "key", 2.0, 17, (REPORT,))},
    in_force([PAUSE]),
)


def test_a_board_is_two_tables(ask: Any) -> None:
    """Partitions, then the lanes that are worth a look; - where only a worker would know."""
    code, out, err, _ = ask("list", facts=FACTS)
    assert (0, "") == (code, err)
    paused = ["1", "0"] if HOME == 0 else ["0", "1"]
    tables = [[line.split() for line in table.splitlines()] for table in out.split("\n\n")]
    assert ["0", "a", "40", "10", "5", "1", "2", paused[0], "0", "-"] == tables[0][1]
    assert ["1", "-", "-", "50", "-", "-", "-", paused[1], "0", "no_worker"] == tables[0][2]
    assert ["0", "doc:7", "waiting", "retry_after", "2026-11-29T10:00:00.500Z", "3", "2", "2", "r-7"] in tables[1]
    assert [str(HOME), "doc:42", "paused", '"ana@desk:', "too", "many", 'errors"', "-", "-", "-", "-", "-"] in tables[1]


def test_a_long_key_pads_no_column(ask: Any) -> None:
    """Of a kilobyte the beginning is shown; programs get it whole."""
    lane = replace(LANE, key="k" * 1024)
    facts = replace(FACTS, reports={"a": replace(FACTS.reports["a"], partitions=(replace(REPORT, notable=(lane,)),))})
    _, out, _, _ = ask("list", facts=facts)
    assert "k" * 63 + "…" in out
    assert max(map(len, out.splitlines())) < 200
    _, out, _, _ = ask("list", "--json", facts=facts)
    assert "k" * 1024 in out


def test_a_board_for_programs_is_an_object_a_line(ask: Any) -> None:
    """Each says its kind; what is not known is null."""
    code, out, _, _ = ask("list", "--json", facts=FACTS)
    rows = [orjson.loads(line) for line in out.splitlines()]
    assert (0, ["partition"] * 2 + ["lane"] * 2) == (code, [row["kind"] for row in rows])
    assert (None, "no_worker", 50) == (rows[1]["held"], rows[1]["why"], rows[1]["lag"])
    lanes = {row["key"]: row for row in rows[2:]}
    assert {"id": "id-1", "state": "paused", "at": AT, "by": "ana@desk", "reason": "too many errors"} == lanes["doc:42"]["command"]
    assert "2026-11-29T10:00:00.500Z" == lanes["doc:7"]["until"]


# --- one lane -------------------------------------------------------------------------------------------------------------------------

ROW = LaneRow("doc:42", 3, "halted", "halted", None, 2, 1, "r-2", 44, 0, 9.5, False, HALT)  # noqa: FBT003 - a row
FOUND = Description(
    ROW, "a", 3, is_exact=True, parked=1, head=REQUEST.name, head_id="r-2", first_parked=Entry(41, b"doc:42", 5, 100, 0, "halted")
)


def test_a_lane_is_described(ask: Any) -> None:
    """Why it stands, since when and by whom; what waits in it; whose turn it is."""
    code, out, err, asked = ask("describe", "doc:42", describe=FOUND)
    assert (0, "", [("describe", KEY)]) == (code, err, asked)
    assert [
        "lane doc:42: halted",
        "partition: 3",
        "owner: a",
        f'since: {AT} by dispatcher/team, "request r-1 ended as a dead letter"',
        "queued: 3, of which parked 1",
        "first parked: offset 41, halted, due now",
        f"head: r-2 at {REQUEST.name}, attempts 0",
    ] == out.splitlines()


def test_a_lane_is_described_for_programs(ask: Any) -> None:
    """One object."""
    _, out, _, _ = ask("describe", "doc:42", "--json", describe=FOUND)
    found = orjson.loads(out)
    expected = {"key": "doc:42", "partition": 3, "owner": "a", "state": "halted", "queued": 3, "exact": True, "parked": 1, "head_id": "r-2"}
    assert expected == {name: found[name] for name in expected}
    assert (HALT.reason, {"offset": 41, "why": "halted", "due": None}) == (found["command"]["reason"], found["first_parked"])


def test_what_a_key_has_left_of_its_budget_is_told(ask: Any) -> None:
    """And what is set aside for a call; for programs as its own object."""
    balance = Balance("docs", Decimal(2), Decimal("0.5"), Decimal("0.1"), Decimal("1.4"), WALL)
    _, out, _, _ = ask("describe", "doc:42", describe=replace(FOUND, balance=balance))
    assert "budget docs: 1.4 of 2 USD left until 2026-11-29T10:00:00.000Z, 0.1 set aside for a call" == out.splitlines()[-1]
    _, out, _, _ = ask("describe", "doc:42", "--json", describe=replace(FOUND, balance=balance))
    assert "1.4" == orjson.loads(out)["budget"]["left_usd"]
    assert orjson.loads(out)["credential_budget"] is None


def test_what_a_credential_has_left_is_told_of_its_key(ask: Any) -> None:
    """Beside what the key itself has."""
    balance = Balance("keys", Decimal(2), Decimal("0.5"), Decimal(0), Decimal("1.5"), WALL)
    _, out, _, _ = ask("describe", "doc:42", describe=replace(FOUND, shared=balance))
    assert "credential's budget keys: 1.5 of 2 USD left until 2026-11-29T10:00:00.000Z" == out.splitlines()[-1]
    _, out, _, _ = ask("describe", "doc:42", "--json", describe=replace(FOUND, shared=balance))
    assert "1.5" == orjson.loads(out)["credential_budget"]["left_usd"]


def test_an_empty_lane_says_so(ask: Any) -> None:
    """Nothing is queued, nobody tells of it."""
    row = LaneRow("doc:42", 3, "queued", "", None, None, None, None, None, None, None, None, None)
    _, out, _, _ = ask("describe", "doc:42", describe=Description(row, None, 0, True, 0, None, None, None))  # noqa: FBT003 - a description
    assert ["lane doc:42: empty", "partition: 3", "owner: no worker", "queued: 0, of which parked 0"] == out.splitlines()


# --- commands -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "said"),
    [
        (Effect(KEY, 3, True, PAUSE, 17, "a", "a"), "key:doc:42 paused: worker a knows"),  # noqa: FBT003 - an effect
        (Effect(KEY, 3, True, PAUSE, 17), "key:doc:42 paused: no worker has partition 3 now, whoever gets it reads this first"),  # noqa: FBT003
        (Effect(KEY, 3, False, PAUSE), f"key:doc:42 is already paused since {AT} by ana@desk: nothing was written"),  # noqa: FBT003
        (Effect(KEY, 3, False, HALT), f"key:doc:42 is already halted since {AT} by dispatcher/team: nothing was written"),  # noqa: FBT003
    ],
)
def test_an_effect_is_told(ask: Any, effect: Effect, said: str) -> None:
    """Who says so; or that nobody can; or that it was so before."""
    code, out, err, asked = ask("pause", "doc:42", "--reason", "tired", pause=effect)
    assert (0, said + "\n", "", [("pause", KEY, "tired")]) == (code, out, err, asked)


def test_what_is_halted_anew_is_not_said_to_run(ask: Any) -> None:
    """Somebody let go on what was shown, and the key is halted by another request by now."""
    effect = Effect(KEY, 3, changed=False, command=HALT, owner="a")
    assert f"key:doc:42 is halted anew since {AT} by dispatcher/team\n" == ask("resume", "doc:42", resume=effect)[1]
    told = orjson.loads(ask("--json", "resume", "doc:42", resume=effect)[1])
    assert ("halted", False, "halt/1") == (told["state"], told["changed"], told["command"]["id"])


@pytest.mark.parametrize("json", [False, True])
def test_who_has_not_been_heard_is_no_success(ask: Any, json: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Exit code 4: it is written, and the worker that has the partition has not said that it knows."""
    effect = Effect(KEY, 3, changed=True, command=PAUSE, offset=17, owner="a")
    code, out, err, _ = ask("pause", "doc:42", *(["--json"] if json else []), pause=effect)
    assert 4 == code
    assert "that key:doc:42 is paused stands in the control topic at offset 17, and worker a has not said that it knows" in err
    assert (17, None) == ((found := orjson.loads(out))["offset"], found["confirmed_by"]) if json else out == ""


def test_a_partition_is_named_by_its_number(ask: Any) -> None:
    """And what runs already is said to."""
    effect = Effect(Target(Kind.PARTITION, "3"), 3, changed=False, command=None)
    code, out, _, asked = ask("resume", "-p", "3", resume=effect)
    assert (0, [("resume", Target(Kind.PARTITION, "3"), "")]) == (code, asked)
    assert "partition:3 is already running: nothing was written\n" == out


def test_a_lane_of_a_paused_partition_goes_nowhere(ask: Any) -> None:
    """Resumed or not: a note says what holds it."""
    around = Command("id-2", "partition:3", PAUSED, AT, "ana@desk", "")
    effect = Effect(KEY, 3, changed=True, command=None, offset=17, owner="a", confirmed_by="a", around=around)
    code, out, err, _ = ask("resume", "doc:42", resume=effect)
    assert (0, "key:doc:42 running: worker a knows\n") == (code, out)
    assert "partition 3 is paused as a whole" in err


SKIP = Skip(REQUEST, 0, b"doc:42", "", "r-2", parked=True, behind=4)


def test_a_skip_only_plans(ask: Any) -> None:
    """It says what would end, what stands behind it, and the command that does just this."""
    code, out, _, asked = ask("skip", "doc:42", plan_skip=SKIP)
    assert (0, [("plan_skip", b"doc:42")]) == (code, asked)
    assert "request r-2 (parked) of key doc:42 ends as cancelled, 4 requests waiting behind it" in out
    assert f"dispatcher lanes skip --id {REQUEST.name} --execute" in out


def test_a_skip_of_a_halted_lane_lets_it_go_on(ask: Any) -> None:
    """The request that failed has its dead letter."""
    _, out, _, _ = ask("skip", "doc:42", plan_skip=Skip(KEY, 0, b"doc:42", behind=4, command=HALT))
    assert f'key:doc:42 is halted since {AT} ("request r-1 ended as a dead letter"): it goes on, 4 requests waiting' in out
    assert "dispatcher lanes skip doc:42 --execute" in out


def test_a_skip_asks_before_it_is_done(ask: Any) -> None:
    """Without a terminal -y is needed: exit code 5, and nothing is done."""
    code, out, err, asked = ask("skip", "doc:42", "--execute", plan_skip=SKIP)
    assert (5, "", ["plan_skip"]) == (code, out, [name for name, *_ in asked])
    assert "nobody was asked" in err


def test_a_skip_is_done(ask: Any) -> None:
    """With -y: by the plan that was shown, and the worker that ended it is named."""
    effect = Effect(REQUEST, 0, changed=True, command=None, offset=17, owner="a", confirmed_by="a")
    code, out, err, asked = ask("skip", "--id", "r-2", "--execute", "-y", "--reason", "old", plan_skip_request=SKIP, skip=effect)
    assert (0, [("plan_skip_request", "r-2"), ("skip", SKIP, "old")]) == (code, asked)
    assert f"request:{REQUEST.name} skipped: worker a ended it\n" == out
    assert "ends as cancelled" in err


@pytest.mark.parametrize("json", [False, True])
def test_what_has_ended_is_not_skipped(ask: Any, json: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """With --execute as well: it says so, and ends with 0."""
    plan = Skip(None, 0, None, "the request has ended: ok")
    code, out, _, asked = ask("skip", "--id", "r-2", "--execute", *(["--json"] if json else []), plan_skip_request=plan)
    assert (0, 1) == (code, len(asked))
    assert "the request has ended: ok" in out
