"""The README as a newcomer takes it: files to write, commands to type, and what they are said to print. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELLS = frozenset({"", "sh", "bash", "console"})
# What a shell block has to begin with, to be one: other blocks without a language are pictures.
_PROGRAMS = re.compile(r"(make|dispatcher|export|echo|kcat|git|cd|python3?|pip|node|npm|mvn|curl)\b")
# Commands that stay: a person gives each a terminal of its own.
_STAYING = re.compile(r"(^|\s)dispatcher(\s+--?\S+(\s+\S+\.toml)?)*\s+(worker|dev|sample-upstream|gateway|status --serve)(\s|$)")
# The ampersand of such a command, and a remark behind it.
_BEHIND = re.compile(r"\s*(?<!&)&\s*(#.*)?$")


@dataclass(frozen=True, slots=True)
class Written:
    """A file that the README shows with its name in a comment on its first line."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Typed:
    """A command as it stands there; `stays` for one that does not come back by itself."""

    line: str
    stays: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """Output that the README shows, of the commands before it."""

    text: str


Step = Written | Typed | Shown


def steps(markdown: str) -> list[Step]:
    """List what a newcomer does, in the order of the page."""
    return [step for fence in _FENCE.finditer(markdown) for step in _of(fence["language"], fence["body"])]


def _of(language: str, body: str) -> Iterator[Step]:
    if language in {"toml", "python"}:
        name = re.match(r"# (\S+\.(toml|py))\n", body)
        if name:
            yield Written(name[1], body)
    elif language == "text":
        yield Shown(body)
    elif language in _SHELLS and _PROGRAMS.match(body.removeprefix("$ ")):
        for line in body.replace("\\\n", " ").splitlines():
            command = line.removeprefix("$ ").strip()
            if command and not command.startswith("#"):
                yield Typed(_BEHIND.sub("", command), bool(_STAYING.search(_uncommented(command))))


def _uncommented(command: str) -> str:
    return re.sub(r"\s+#.*", "", command)


def shape(text: str) -> list[str]:
    """What a text says in kind: its lines without numbers, times and layout."""
    lines = (" ".join(re.sub(r"[\d][\d,.]*", "N", line).split()) for line in text.splitlines())
    return [line for line in lines if line not in {"", "..."}]


def missing(shown: str, printed: str) -> list[str]:
    """List the lines of an example that the real output does not have in kind."""
    real = set(shape(printed))
    return [line for line in shape(shown) if line not in real]
