"""How `make newcomer` reads the README, and that it can read the README as it is."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from dispatcher.adapters.config import load
from tests.newcomer.readme import Shown, Typed, Written, missing, steps
from tests.newcomer.terminal import Terminal
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
PAGE = """
# x

```
agents ──▶ requests
```

```toml
# d.toml
[kafka]
```

```python
# one.py
print(1)
```

```python
print(2)
```

```
make install && export PATH="$PWD:$PATH"     # one line
dispatcher --config d.toml worker            # as many as you like
dispatcher sample-upstream &                 # a model
echo x | kcat -P \\
    -k a
```

```text
 1,516 requests over 20 s
 ...
```
"""


def test_a_page_is_read_in_its_order() -> None:
    """Pictures are passed over, continued lines are one command, and what stays is known, with or without its ampersand."""
    assert steps(PAGE) == [
        Written("d.toml", "# d.toml\n[kafka]\n"),
        Written("one.py", "# one.py\nprint(1)\n"),
        Typed('make install && export PATH="$PWD:$PATH"     # one line', stays=False),
        Typed("dispatcher --config d.toml worker            # as many as you like", stays=True),
        Typed("dispatcher sample-upstream", stays=True),
        Typed("echo x | kcat -P      -k a", stays=False),
        Shown(" 1,516 requests over 20 s\n ...\n"),
    ]


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("dispatcher dev", True),
        ("dispatcher -v dev --port 0", True),
        ("dispatcher submit -k worker -u dev /x", False),
        ("dispatcher broker up  # then a worker", False),
        ("make demo", False),
    ],
)
def test_commands_that_stay_are_known(line: str, *, stays: bool) -> None:
    """They get a terminal of their own."""
    assert steps(f"```\n{line}\n```\n") == [Typed(line, stays)]


def test_examples_of_output_are_compared_in_kind() -> None:
    """Numbers, times and layout may differ; a line that is gone may not."""
    shown = "│ requests │ 1,516 │\n ...\n 8.3 s  worker ready\n"
    assert missing(shown, "noise\n│ requests     │      12 │\n12.0 s worker ready\n") == []
    assert missing(shown, "│ requests │ 1 │\n") == ["N s worker ready"]


def test_a_terminal_keeps_its_variables_and_ends_what_stays(tmp_path: Path) -> None:
    """As a person's: `export` and `cd` last, output is kept apart, and Ctrl-C reaches what was left running."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with Terminal(tmp_path, {"PATH": "/usr/bin:/bin"}, scratch) as terminal:
        assert terminal.type("export A=1; cd scratch").code == 0
        done = terminal.type('echo "$A $PWD"; echo wrong >&2; false   # a remark')
        assert (done.code, done.out, done.err) == (1, f"1 {scratch}\n", "wrong\n")
        assert terminal.type("false | true").code == 1
        terminal.leave_running("trap 'exit 7' INT; echo set; tail -f /dev/null")
        eventually(lambda: any(path.read_text() == "set\n" for path in scratch.glob("*.out")), what="the trap is set")
        assert [code for _, code in terminal.end_staying()] == [7]


def test_the_readme_can_be_followed() -> None:
    """It has commands and a configuration that loads; the newcomer will find files and commands in an order that makes sense."""
    found = steps((ROOT / "README.md").read_text(encoding="utf-8"))
    typed = [step.line for step in found if isinstance(step, Typed)]
    assert any(line.startswith("make demo") for line in typed)
    assert any(isinstance(step, Shown) for step in found)
    for step in found:
        if isinstance(step, Written) and step.name.endswith(".toml"):
            tomllib.loads(step.text)
        elif isinstance(step, Written):
            compile(step.text, step.name, "exec")


def test_the_readmes_configuration_loads(tmp_path: Path) -> None:
    """The product takes the file that the README shows."""
    for step in steps((ROOT / "README.md").read_text(encoding="utf-8")):
        if isinstance(step, Written) and step.name.endswith(".toml"):
            (tmp_path / step.name).write_text(step.text)
            assert load(file=tmp_path / step.name, flags={}, properties=[], environ={}).upstreams
