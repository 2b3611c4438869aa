"""The house keeps its rules, and each rule is able to fail: every check also runs on a planted fault."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from dispatcher.adapters.metrics import Metrics
from tests.house import docs, source

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = (
    "README.md",
    "OPERATING.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "schemas/README.md",
    "schemas/examples/README.md",
)
Check = Callable[[str, str], list[str]]


def tracked_files() -> list[Path]:
    """Text files that belong to the repository; without git, those that stand in it."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=False
    )
    if listed.returncode == 0:
        names = listed.stdout.decode().split("\0")
        return [ROOT / name for name in names if name and (ROOT / name).is_file()]
    kept = ("dispatcher", "tests", "schemas", "examples")
    return [path for top in kept for path in (ROOT / top).rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def texts(*tops: str, suffix: str = "") -> list[tuple[str, str]]:
    """(path, text) of the tracked files under `tops` with that suffix; binary files are left out."""
    found = []
    for path in tracked_files():
        name = path.relative_to(ROOT).as_posix()
        if (not tops or name.startswith(tops)) and name.endswith(suffix):
            try:
                found.append((name, path.read_text("utf-8")))
            except UnicodeDecodeError:
                continue
    return found


def faults(check: Check, files: list[tuple[str, str]]) -> list[str]:
    """What `check` finds in `files`, which must be some: a check over nothing proves nothing."""
    assert files
    return [fault for path, text in files for fault in check(path, text)]


LONG = "def f():\n" + "    x = 1\n" * 60
PLANTED: list[tuple[Check, str]] = [
    (source.function_length, LONG),
    (source.function_length, "class A:\n    async def f(self):\n" + "        x = 1\n" * 60),
    (source.file_length, "\n" * 501),
    (source.clock_or_chance, "import time"),
    (source.clock_or_chance, "def f():\n    from random import random"),
    (source.clock_or_chance, "import os\nos.urandom(3)"),
    (source.clock_or_chance, "from datetime import datetime, UTC\nnow = datetime.now(UTC)"),
    (source.clock_or_chance, "from uuid import uuid4\nuuid4()"),
    (source.clock_or_chance, "import asyncio.events"),
    (source.locks, "import threading\ngate = threading.Lock()"),
    (source.locks, "from asyncio import Semaphore as Gate"),
    (source.locks, "from multiprocessing import synchronize\nx = synchronize.Condition"),
    (source.sleeps, "import time\ntime.sleep(1)"),
    (source.sleeps, "import asyncio\nasync def f():\n    await asyncio.sleep(0.1)"),
    (source.sleeps, "from time import sleep\nsleep(delay)"),
    (source.sleeps, "eventually(lambda: time.monotonic() - began > 5, what='five seconds')"),
    (source.unfinished, "x = 1  # TO" + "DO later"),
    (source.unfinished, "# FIX" + "ME: this"),
    (source.unfinished, "def f():\n    raise NotImplementedError('soon')"),
    (source.error_tree, '"""Tree\n\nA\n└── B   2  text\n"""\nclass A(Exception): ...\nclass B(A):\n    exit_code = 3'),
    (source.error_tree, '"""Tree\n\nA\n└── B   2  text\n"""\nclass A(Exception): ...'),
    (
        source.error_tree,
        '"""Tree\n\nA\n├── B   1  text\n└── C   1  text\n"""\nclass A(Exception):\n    exit_code = 1\nclass B(A): ...\nclass C(B): ...',
    ),
    (source.error_tree, '"""Tree\n\nA\n"""\nclass A(Exception): ...\nclass C(A):\n    exit_code = 1'),
    (docs.machine_traces, "see /wo" + "rk/main/x"),
    (docs.machine_traces, "path = '/ro" + "ot/.cache'"),
    (docs.machine_traces, "index https://py" + "pi.org/simple"),
]


@pytest.mark.parametrize(("check", "planted"), PLANTED, ids=lambda value: value.__name__ if callable(value) else "")
def test_each_rule_finds_its_planted_fault(check: Check, planted: str) -> None:
    """A check that cannot fail is not a check."""
    assert check("planted.py", planted) != []


@pytest.mark.parametrize("name", ["utils.py", "kafka_helpers.py", "worker/manager.py", "base/lane.py", "common.py"])
def test_a_vague_module_name_is_found(name: str) -> None:
    """Names that could hold anything are found, in files and in folders."""
    assert source.vague_name(name, "") != []


def test_rules_leave_good_code_alone() -> None:
    """The checks do not fire on what only looks like a fault."""
    good = "def f(now, deadline):\n    return now < deadline\n\nclock = 'time.sleep'\nawaited = base_url\n"
    for check in (source.function_length, source.clock_or_chance, source.locks, source.sleeps, source.unfinished, source.file_length):
        assert check("good.py", good) == []
    assert source.sleeps("good.py", "import asyncio\nasync def f():\n    await asyncio.sleep(0)") == []
    assert (
        source.locks("good.py", "from dispatcher.worker import letters\nfrom dispatcher.worker.letters import Barrier\nletters.Barrier()")
        == []
    )
    classes = "class A(Exception):\n    exit_code = 1\nclass B(A):\n    exit_code = 2\nclass C(B): ..."
    tree = '"""Tree\n\nA\n└── B   2  text\n    └── C   2  text\n"""\n' + classes
    assert source.error_tree("good.py", tree) == []
    assert source.vague_name("database.py", "") == []
    assert docs.machine_traces("good.md", "https://example.com/work/x and ../work/y and /workers/1") == []


def test_functions_fit_a_screen() -> None:
    """No function of the package has more than 60 lines."""
    assert faults(source.function_length, texts("dispatcher/", suffix=".py")) == []


def test_files_hold_one_noun() -> None:
    """No Python file has more than 500 lines, tests included."""
    assert faults(source.file_length, texts("dispatcher/", "tests/", suffix=".py")) == []


def test_the_core_asks_nobody() -> None:
    """No module of the core takes time, chance, identity or I/O from anywhere but its arguments."""
    assert faults(source.clock_or_chance, texts("dispatcher/core/", suffix=".py")) == []


def test_our_code_takes_no_lock() -> None:
    """No lock, semaphore, condition or barrier in the package."""
    assert faults(source.locks, texts("dispatcher/", suffix=".py")) == []


def test_tests_wait_for_conditions() -> None:
    """No test sleeps; the one place that may is the polling of `tests/waiting.py`."""
    files = [(path, text) for path, text in texts("tests/", suffix=".py") if path != "tests/waiting.py"]
    assert faults(source.sleeps, files) == []


def test_modules_are_named_after_nouns() -> None:
    """No utils, helpers, manager, base, common or misc."""
    assert faults(source.vague_name, texts("dispatcher/", "tests/", suffix=".py")) == []


def test_nothing_is_left_for_later() -> None:
    """No notes of unfinished work and no stubs."""
    files = [(path, text) for path, text in texts("dispatcher/", "tests/", "examples/", suffix=".py") if path != "tests/test_house.py"]
    assert faults(source.unfinished, files) == []


def test_the_error_tree_is_drawn_as_written() -> None:
    """The tree at the top of errors.py names every class with its exit code."""
    assert faults(source.error_tree, texts("dispatcher/errors.py")) == []


def test_no_file_knows_a_machine_or_a_registry() -> None:
    """What is committed works elsewhere: no personal paths, and where packages come from is the user's choice."""
    assert faults(docs.machine_traces, [(path, text) for path, text in texts() if path != "tests/house/docs.py"]) == []


# --- who may import whom ----------------------------------------------------------------------------------------------

PLANTED_ARROWS = {
    "core asks an adapter": ("core/lanes/lane.py", "import planted.adapters.http"),
    "core reads the clock": ("core/lanes/lane.py", "import time"),
    "core knows Kafka": ("core/lanes/lane.py", "import confluent_kafka"),
    "a message knows the lanes": ("core/messages/__init__.py", "import planted.core.lanes.lane"),
    "adapter knows an adapter": ("adapters/http.py", "import planted.adapters.logs"),
    "adapter knows the command line": ("adapters/http.py", "import planted.cli"),
    "client knows the worker": ("client.py", "import planted.worker"),
    "errors know settings": ("errors.py", "import planted.settings"),
    "settings know the core": ("settings.py", "import planted.core.lanes.lane"),
    "the callee knows Kafka": ("sample_upstream.py", "import confluent_kafka"),
}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts of the pyproject.toml in `folder`."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def plant_tree(folder: Path) -> None:
    """A package `planted` with the rooms of the house and its contracts, all kept."""
    rooms = ("__init__", "settings", "errors", "client", "sample_upstream", "demo", "cli/__init__", "worker/__init__", "core/__init__")
    core = (f"core/{room}/__init__" for room in ("messages", "progress", "callees", "internal", "lanes", "operations"))
    for room in (*rooms, *core, "core/lanes/lane", "adapters/__init__", "adapters/http", "adapters/logs"):
        path = folder / "planted" / f"{room}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    config = (ROOT / "pyproject.toml").read_text()
    contracts = config[config.index("[tool.importlinter]") :]
    (folder / "pyproject.toml").write_text(re.sub(r"\bdispatcher\b", "planted", contracts))


def test_imports_follow_the_arrows() -> None:
    """The command line -> demo -> worker | client -> adapters -> core -> settings | errors, adapters apart, a pure core, rooms in order."""
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("name", PLANTED_ARROWS)
def test_a_wrong_arrow_is_found(name: str, tmp_path: Path) -> None:
    """Each contract fails on an import that breaks it, and on nothing else."""
    plant_tree(tmp_path)
    path, line = PLANTED_ARROWS[name]
    (tmp_path / "planted" / path).write_text(line + "\n")
    result = lint_imports(tmp_path)
    assert result.returncode != 0
    assert "BROKEN" in result.stdout, result.stdout + result.stderr


def test_a_tree_in_order_passes(tmp_path: Path) -> None:
    """The planted tree itself is clean: what fails above fails because of the one planted line."""
    plant_tree(tmp_path)
    assert lint_imports(tmp_path).returncode == 0


# --- documents, locks -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def command() -> docs.Command:
    """The command line as it is built."""
    from dispatcher.cli.app import app  # the other checks must run where the command line cannot be imported

    return docs.command_of(typer.main.get_command(app))


def toy() -> docs.Command:
    """A command line of one group and one command, for planted faults."""
    app, topics = typer.Typer(), typer.Typer()

    @topics.command()
    def init(partitions: int = 12) -> None: ...

    @app.command()
    def worker() -> None: ...

    @topics.callback()
    def group() -> None: ...

    app.add_typer(topics, name="topics")
    return docs.command_of(typer.main.get_command(app))


@pytest.mark.parametrize(
    "text",
    [
        "`dispatcher wroker`",
        "`dispatcher topics init|chekc`",
        "```sh\n$ .venv/bin/dispatcher topics init --partition 3\n```",
        "`dispatcher worker -q`",
    ],
)
def test_an_unknown_command_in_a_document_is_found(text: str) -> None:
    """A verb or an option that does not exist is found in inline code and in shell blocks."""
    assert docs.unknown_commands("planted.md", text, toy()) != []


def test_documents_may_speak_of_the_dispatcher() -> None:
    """Prose, values of options and right commands pass."""
    text = "the `dispatcher` package\n```sh\nA=1 dispatcher topics init --partitions 3 # worker\n```\n`dispatcher worker` `dispatcher.core`"
    assert docs.unknown_commands("good.md", text, toy()) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_name_real_commands(name: str, command: docs.Command) -> None:
    """Every `dispatcher ...` and `make ...` of the top documents can be typed."""
    text = (ROOT / name).read_text()
    assert docs.unknown_commands(name, text, command) == []
    assert docs.unknown_targets(name, text, (ROOT / "Makefile").read_text()) == []


def test_the_table_of_examples_has_each_of_them() -> None:
    """Once, and nothing that is not there."""
    told = re.findall(r"^\| `([^`]+)` \|", (ROOT / "examples/README.md").read_text(), re.MULTILINE)
    assert sorted(path.name for path in (ROOT / "examples").iterdir() if path.name != "README.md") == sorted(told)


def test_an_unknown_target_in_a_document_is_found() -> None:
    """`make` of something that the Makefile has not is found; variables are not targets."""
    assert docs.unknown_targets("planted.md", "`make tset`", "test: x\n") != []
    assert docs.unknown_targets("good.md", "`make test PYTEST_ARGS=-x`", "test: x\n") == []


def test_make_help_shows_every_target() -> None:
    """Each phony target has a sentence, or it does not exist for a user."""
    assert docs.unhelpful_targets("Makefile", (ROOT / "Makefile").read_text()) == []
    assert docs.unhelpful_targets("planted", ".PHONY: a\na: b\n") != []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_name_real_metrics(name: str) -> None:
    """Every metric of the top documents is made by the code and on the public list."""
    defined = docs.defined_metrics(Metrics("partition", "exactly_once").registry)
    assert docs.unknown_metrics(name, (ROOT / name).read_text(), defined) == []


def test_the_code_makes_only_public_metrics() -> None:
    """Metric names are public API: what metrics.py makes is on the list."""
    defined = docs.defined_metrics(Metrics("partition", "exactly_once").registry)
    assert defined
    assert defined <= docs.METRICS


def test_an_unknown_metric_is_found() -> None:
    """Neither a metric that nobody makes nor one that is not public passes."""
    assert docs.unknown_metrics("planted.md", "dispatcher_requests_total", []) != []
    assert docs.unknown_metrics("planted.md", "dispatcher_secret_total", ["dispatcher_secret_total"]) != []
    assert docs.unknown_metrics("good.md", "dispatcher_queue_wait_seconds_bucket", ["dispatcher_queue_wait_seconds"]) == []


LOCKS = {"requirements.lock": ["broker"], "requirements-jvm.lock": ["jvm"], "requirements-dev.lock": ["broker", "jvm", "dev"]}


@pytest.mark.parametrize("name", LOCKS)
def test_the_locks_hold_what_the_project_asks_for(name: str) -> None:
    """Each lock pins, with hashes and without an address, everything that pyproject.toml asks for."""
    lock, project = (ROOT / name).read_text(), (ROOT / "pyproject.toml").read_text()
    assert docs.lock_faults(name, lock, project, LOCKS[name], alone=name == "requirements-jvm.lock") == []


def test_all_locks_pin_the_same_versions() -> None:
    """What users run is what the tests ran on."""
    pins = [dict(re.findall(r"^(\S+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE)) for name in LOCKS]
    assert all(pins)
    assert all(some.items() <= pins[-1].items() for some in pins)


@pytest.mark.parametrize(
    "lock", ["", "b==2\\\n --hash=sha256:0", "a==0.9 \\\n --hash=sha256:0", "a==2.0\n", "-i x\na==2.0 --hash=sha256:0"]
)
def test_a_stale_lock_is_found(lock: str) -> None:
    """Missing, too old, unhashed and redirected entries are found."""
    project = '[project]\nname="p"\ndependencies=["a>=1"]\n[dependency-groups]\nbuild=[]\n'
    assert docs.lock_faults("planted", lock, project, []) != []
    assert docs.lock_faults("good", "a==2.0 \\\n    --hash=sha256:0\n", project, []) == []


def test_every_ignored_rule_has_its_reason() -> None:
    """Each line of a lint or warning exception in pyproject.toml ends in a comment that says why."""
    text = (ROOT / "pyproject.toml").read_text()
    rules = [line for line in text.splitlines() if re.match(r'^    "([A-Z]+\d+|ignore:.*)",', line)]
    assert rules
    assert [line for line in rules if not re.search(r", +# \S.{6,}", line)] == []
    assert tomllib.loads(text)["tool"]["mypy"]["strict"] is True
