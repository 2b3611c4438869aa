"""Every failure of others that we know of has a test here that provokes it, or a reason why it cannot occur.

Two tables: `failures.toml` on Kafka's ground, `failures_callees.toml` on that of the callees.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.answers import CASES
from tests.e2e.kinds import KINDS
from tests.sim.test_kafka_failures import FAILURES

TESTS = Path(__file__).parent
# What is committed, whose a partition is, back-pressure, dead letters, transactions, shapes of records, the life of topics, the process.
REQUIRED = (
    *("A1", "A3", "A4", "A5", "A6", "A7", "A9", "A10", "A11", "A12", "A13a", "A13b", "A13"),
    *("B14", "B15", "B17", "B18", "B19", "B20", "B21", "B22", "B23", "B24", "B25", "B26", "B27", "B27b", "B28", "B28b", "B28d", "B29"),
    *("C30", "C31", "C32", "C33", "C34", "C35", "C36", "C37", "C37c", "C38"),
    *("D39", "D40", "D41", "D42", "D43", "D45", "D46", "D47", "D48", "D50", "D51", "D51a", "D51b", "D51c", "D51d", "D51e", "D51f"),
    *("E52", "E53", "E54", "E55", "E56", "E57", "E58"),
    *("F59", "F59b", "F60", "F62", "F63", "F64", "F65", "F66"),
    *("G67", "G69", "G70"),
    *("H72", "H73", "H74", "H75", "H76", "H77", "H78", "H79"),
)
# Hints, what to call again, failures that leave it open; tokens and money; circuit breakers; and the shapes of providers.
CALLEES = (
    *("B1", "B2", "B4", "B5", "B6", "B8", "B9", "B10", "B11", "B13", "B14", "B15", "B17"),
    *("B36", "B37", "B38", "B39", "B40", "B42", "B43", "B44"),
    *("B45", "B47", "B48", "B49"),
    *("openai-chat", "openai-responses", "anthropic", "gemini", "azure", "openrouter", "bedrock"),
    *("adaptive-timeout", "first-byte-timeout", "sent-again"),
)
FIELDS = {"cites", "symptom", "tests", "kinds", "reason"}
# A public issue or pull request; where a project keeps such things in a file, its name.
CITE = re.compile(r"[\w.-]+/[\w.-]+(#\d+| \S.*)")
WORLDS = [failure.name.partition(" ")[0] for failure in FAILURES]
TELLING = {failure.name.partition(" ")[0] for failure in FAILURES if failure.meets}
SOAK = "pytest.mark.soak"

Row = Mapping[str, Any]


@cache
def functions(path: str) -> dict[str, bool]:
    """Name the test functions of a file, and say whether `make test` runs them; none where there is no such file."""
    file = TESTS / path
    parsed = ast.parse(file.read_text()).body if file.is_file() else []
    tests = [node for node in parsed if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")]
    marks = {test.name: [ast.unparse(decorator) for decorator in test.decorator_list] for test in tests}
    return {name: SOAK not in found for name, found in marks.items() if not any("skip" in mark for mark in found)}


def faults(name: str, row: Row, telling: Collection[str] = TELLING) -> list[str]:
    """What is wrong with a row: nothing that provokes it in each run and no reason, or a test, kind or cite that is none.

    `telling`: rows for which simulated worlds stand that say what they have met.
    """
    found = [f"{name}: {field} is no field" for field in sorted(row.keys() - FIELDS)]
    found += [f"{name}: {cite!r} names nothing public" for cite in row.get("cites") or [""] if not CITE.fullmatch(cite)]
    if not row.get("symptom"):
        found.append(f"{name}: no symptom")
    for test in row.get("tests", ()):
        path, _, function = _parts(test)
        if function not in functions(path):
            found.append(f"{name}: there is no test {test}")
    kinds = {kind.name for kind in KINDS}
    found += [f"{name}: there is no kind {kind!r}" for kind in row.get("kinds", ()) if kind not in kinds]
    if row.get("kinds") or row.get("reason"):
        return found
    if not row.get("tests"):
        found += [] if name in telling else [f"{name}: no test, no reason, and no world that says what it meets"]
    elif name not in telling and not any(functions(path).get(function) for path, _, function in map(_parts, row["tests"])):
        found.append(f"{name}: only `make soak` runs its tests")
    return found


def _parts(test: str) -> tuple[str, str, str]:
    return test.partition("::")


def read(table: str) -> dict[str, Row]:
    """Read a table."""
    return tomllib.loads((TESTS / table).read_text())


def test_every_failure_of_others_has_a_row() -> None:
    """None is left out, and no simulated world stands for something that is not in the table, nor does an answer of a callee."""
    assert [] == [name for name in (*REQUIRED, *WORLDS) if name not in read("failures.toml")]
    assert [] == [name for name in (*CALLEES, *(case.row for case in CASES)) if name not in read("failures_callees.toml")]


@pytest.mark.parametrize(("table", "telling"), [("failures.toml", TELLING), ("failures_callees.toml", frozenset())])
def test_every_row_has_tests_that_exist_or_a_reason(table: str, telling: Collection[str]) -> None:
    """A test that was renamed or removed is missed here."""
    assert [] == [fault for name, row in read(table).items() for fault in faults(name, row, telling)]


def test_every_row_that_rests_upon_the_table_of_answers_has_answers_there() -> None:
    """The tests that go through that table prove nothing for a row that it does not have."""
    table = "core/callees/test_answers.py::test_each_answer_means_what_the_table_says"
    resting = {name for name, row in read("failures_callees.toml").items() if table in row["tests"]}
    assert {case.row for case in CASES} == resting


GOOD: dict[str, Any] = {"cites": ["a/b#1"], "symptom": "s", "tests": ["test_failures.py::test_every_failure_of_others_has_a_row"]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"tests": []},
        {"tests": ["test_failures.py::test_that_nobody_wrote"]},
        {"tests": ["no_such_file.py::test_x"]},
        {"tests": ["e2e/test_ladder.py::test_kafka_runs_with_nothing_but_wheels"]},
        {"tests": [], "kinds": ["no such kind"]},
        {"cites": []},
        {"cites": ["somebody said so"]},
        {"symptom": ""},
        {"worlds": ["A1"]},
    ],
)
def test_a_row_that_proves_nothing_is_found(wrong: Row) -> None:
    """A check that cannot fail is not a check."""
    assert [] == faults("X1", GOOD)
    assert [] == faults("X1", GOOD | {"tests": [], "reason": "it cannot occur"})
    assert [] != faults("X1", GOOD | dict(wrong))


def test_a_world_that_meets_nothing_proves_nothing() -> None:
    """A row that rests on worlds alone needs one that says what it must have met; one that says nothing is not enough."""
    silent = {name for name in WORLDS if name not in TELLING}
    assert [] == faults("A9", GOOD | {"tests": []})
    assert silent
    assert all(faults(name, GOOD | {"tests": []}) for name in silent)
