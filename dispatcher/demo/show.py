"""What a person sees of the demo: steps and progress on stderr (rich on a terminal, plain lines on a pipe), the table on stdout."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.box import SQUARE
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from dispatcher.demo.drive import Driven
from dispatcher.demo.tally import Spread, Tally

# On a pipe, one line in so many seconds: enough to see that it lives.
PLAIN_EVERY_S = 5.0
# Both tables are as wide as each other, and fit in 80 columns.
WIDE, NARROW = 40, 7


class Show:
    """The display of one run. Owned by the main thread; a context manager, so that a live display always gives the terminal back."""

    def __init__(self, *, quiet: bool = False, color: bool = True) -> None:
        self._quiet = quiet
        self._color = color
        self._err = Console(stderr=True, quiet=quiet, no_color=not color, highlight=False)
        self._start = self._last = time.monotonic()
        self._progress: Progress | None = None
        self._tasks: tuple[TaskID, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end_progress()

    def step(self, text: str) -> None:
        """Say what begins now, with the seconds since the start."""
        self._err.print(f"{time.monotonic() - self._start:5.1f} s  {text}", soft_wrap=True)

    def warn(self, text: str) -> None:
        """Say what a person has to know to judge what follows, also with --quiet."""
        Console(stderr=True, no_color=not self._color, highlight=False).print(f"[bold yellow]warning:[/] {escape(text)}", soft_wrap=True)

    def watch(self, driven: Driven) -> None:
        """Show how far it is."""
        if self._quiet:
            return
        if self._err.is_terminal:
            self._live(driven)
        elif time.monotonic() - self._last >= PLAIN_EVERY_S:
            self._last = time.monotonic()
            self.step(f"sent {len(driven.sent)} of {driven.planned}, answered {len(driven.seen_s)} ({_counts(driven)})")

    def _live(self, driven: Driven) -> None:
        if self._progress is None or self._tasks is None:
            columns = TextColumn("{task.description:9}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}")
            self._progress = Progress(*columns, TimeElapsedColumn(), console=self._err, transient=True)
            self._progress.start()
            self._tasks = (
                self._progress.add_task("sent", total=driven.planned, note=""),
                self._progress.add_task("answered", total=driven.planned, note=""),
            )
        sent, answered = self._tasks
        self._progress.update(sent, completed=len(driven.sent), note=f"{driven.waiting} in the lanes")
        self._progress.update(answered, completed=len(driven.seen_s), note=_counts(driven))

    def end_progress(self) -> None:
        """Take the live display away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def report(self, tally: Tally) -> None:
        """Print the table, on stdout."""
        out = Console(file=sys.stdout, no_color=not self._color, highlight=False)
        out.print(_numbers(tally))
        out.print(_sum(tally))
        out.print(_times(tally))


def _counts(driven: Driven) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(driven.statuses.items())) or "none yet"


def _numbers(tally: Tally) -> Table:
    table = Table(show_header=False, box=SQUARE)
    table.add_column(min_width=WIDE)
    table.add_column(justify="right", min_width=NARROW)
    table.add_row("requests", f"{tally.requests:,}")
    for status, count in tally.statuses.items():
        table.add_row(f"replies: {status}", f"{count:,}")
    table.add_section()
    for reason, count in tally.reasons.items():
        table.add_row(f"dead letters: {reason}", f"{count:,}")
    table.add_section()
    table.add_row("calls that the upstream saw", f"{tally.calls:,}")
    table.add_row("  out of order", f"{tally.out_of_order:,}")
    table.add_row("  overlapping in one lane", f"{tally.overlapping:,}")
    return table


def _sum(tally: Tally) -> str:
    """Say why there are not as many calls as requests."""
    return (
        f"{tally.requests:,} requests - {tally.never_called:,} refused before a call + {tally.called_again:,} repeated calls"
        f" = {tally.requests - tally.never_called + tally.called_again:,} calls"
    )


def _times(tally: Tally) -> Table:
    table = Table(box=SQUARE)
    table.add_column("milliseconds", min_width=WIDE - 10)
    table.add_column("p50", justify="right", min_width=NARROW)
    table.add_column("p99", justify="right", min_width=NARROW)
    rows: dict[str, Spread] = {
        "queue wait (lane busy)": tally.queue_wait,
        "call (service time)": tally.service,
        "overhead (all the rest)": tally.overhead,
        "end to end": tally.end_to_end,
    }
    for name, spread in rows.items():
        table.add_row(name, f"{spread.p50_ms:,.1f}", f"{spread.p99_ms:,.1f}")
    return table
