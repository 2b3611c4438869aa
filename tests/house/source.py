"""Rules over Python source. Each function takes a path (for the message) and the source, and returns one sentence per fault."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePath

FUNCTION_LINES_MAX = 60  # one screen
FILE_LINES_MAX = 500  # one noun
LOCKS = frozenset({"Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition", "Barrier", "allocate_lock"})
IMPURE_MODULES = frozenset(
    {
        "asyncio",
        "logging",
        "multiprocessing",
        "queue",
        "random",
        "secrets",
        "select",
        "signal",
        "socket",
        "sqlite3",
        "subprocess",
        "threading",
        "time",
    }
)
IMPURE_CALLS = frozenset({"now", "utcnow", "today", "uuid1", "uuid4", "uuid6", "uuid7", "urandom", "getrandom", "getpid", "gethostname"})
VAGUE_NAMES = frozenset({"util", "utils", "helper", "helpers", "manager", "managers", "base", "common", "misc"})
UNFINISHED = tuple(left + right for left, right in (("TO", "DO"), ("FIX", "ME"), ("XX", "X")))  # split, so that this file passes


def function_length(path: str, source: str) -> list[str]:
    """Functions longer than a screen; decorators are not counted."""
    return [
        f"{path}:{node.lineno}: {node.name} has {lines} lines, more than {FUNCTION_LINES_MAX}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]


def file_length(path: str, source: str) -> list[str]:
    """A file too long to hold one noun."""
    lines = len(source.splitlines())
    return [f"{path}: {lines} lines, more than {FILE_LINES_MAX}: it holds two nouns"] if lines > FILE_LINES_MAX else []


def clock_or_chance(path: str, source: str) -> list[str]:
    """Imports and calls by which the core would ask the world instead of being told: time, chance, sockets, threads."""
    faults = []
    for node, module in _imported_modules(source):
        if module.partition(".")[0] in IMPURE_MODULES:
            faults.append(f"{path}:{node.lineno}: the core imports {module}")
    for call, name in _called_names(source):
        if name in IMPURE_CALLS:
            faults.append(f"{path}:{call.lineno}: the core calls {name}(): pass it in")
    return faults


def locks(path: str, source: str) -> list[str]:
    """Locks in our code: one owner per state and letters between owners need none. A noun of our own may have the name of one."""
    module = ast.parse(source)
    imports = [node for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
    ours = {alias.asname or alias.name for node in imports if (node.module or "").startswith("dispatcher") for alias in node.names}
    faults = [
        f"{path}:{node.lineno}: imports {alias.name}"
        for node in imports
        if not (node.module or "").startswith("dispatcher")
        for alias in node.names
        if alias.name in LOCKS
    ]
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in LOCKS:
            own = isinstance(node.value, ast.Name) and node.value.id in ours
            faults += [] if own else [f"{path}:{node.lineno}: uses {node.attr}"]
    return faults


def sleeps(path: str, source: str) -> list[str]:
    """Waiting by the clock in a test, also by a condition that is the clock. `sleep(0)` passes: it gives others their turn, and no time."""
    return [
        f"{path}:{call.lineno}: sleeps: wait for the condition, with a deadline, or say why time must pass (tests/waiting.py)"
        for call, name in _called_names(source)
        if (name == "sleep" and not (call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0))
        or (name in {"eventually", "eventually_async"} and call.args and "monotonic" in ast.unparse(call.args[0]))
    ]


def vague_name(path: str, source: str) -> list[str]:
    """A module named after nothing. `source` is not read."""
    del source
    parts = {word for part in PurePath(path).with_suffix("").parts for word in part.split("_")}
    return [f"{path}: {word} names no noun" for word in sorted(parts & VAGUE_NAMES)]


def unfinished(path: str, source: str) -> list[str]:
    """Notes of work that was left for later, and bodies that only say so."""
    faults = [
        f"{path}:{number}: {word}"
        for number, line in enumerate(source.splitlines(), 1)
        for word in UNFINISHED
        if word in line.replace("_", " ").split() or f"{word}:" in line or f"{word}(" in line
    ]
    if path.endswith(".py"):
        faults += [f"{path}:{call.lineno}: a stub" for call, name in _called_names(source) if name == "NotImplementedError"]
    return faults


def error_tree(path: str, source: str) -> list[str]:
    """Differences between the exception tree drawn at the top of a module and its classes: names, parents, exit codes."""
    module = ast.parse(source)
    drawn, written = _drawn_tree(ast.get_docstring(module) or ""), _written_tree(module)
    return [
        f"{path}: {name} is drawn as (parent, exit code) {drawn.get(name)} and written as {written.get(name)}"
        for name in sorted(drawn.keys() | written.keys())
        if drawn.get(name) != written.get(name)
    ]


def _drawn_tree(drawing: str) -> dict[str, tuple[str, str]]:
    """(parent, exit code) by class, from lines `├── Name  code  words`: a level is four characters, the root stands alone."""
    drawn = {}
    above: list[str] = []
    for line in drawing.splitlines():
        branch = re.fullmatch(r"(?P<indent>(?:│   |    )*)(?:├── |└── )(?P<name>\w+) +(?P<code>\d+) .*", line)
        if branch:
            depth = len(branch["indent"]) // 4 + 1
            above = [*above[:depth], branch["name"]]
            drawn[branch["name"]] = (above[depth - 1], branch["code"])
        elif re.fullmatch(r"\w+", line):
            above = [line]
    return drawn


def _written_tree(module: ast.Module) -> dict[str, tuple[str, str]]:
    """(parent, exit code) by class, for all but the root; an exit code may be inherited."""
    codes: dict[str, str] = {}
    written = {}
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            parent = ast.unparse(node.bases[0]) if node.bases else ""
            own = [ast.unparse(s.value) for s in node.body if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "exit_code"]
            codes[node.name] = own[0] if own else codes.get(parent, "")
            if parent in codes:
                written[node.name] = (parent, codes[node.name])
    return written


def _imported_modules(source: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node, node.module


def _called_names(source: str) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node, node.func.attr
            elif isinstance(node.func, ast.Name):
                yield node, node.func.id
