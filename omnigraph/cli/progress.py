"""Progress bar with a rate for long commands, on a terminal.

The engine reports progress through a callback: a stage, a number of rows and the seconds so far.
`following` gives that callback, or None where standard error is no terminal.

Invariant: nothing is drawn unless standard error is a terminal, and whatever happens the bar is
gone or finished when the block ends, so that no message is written into it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class EngineProgress(Protocol):
    """Progress as the engine reports it."""

    @property
    def stage(self) -> str:
        """The stage of the work."""

    @property
    def rows(self) -> int:
        """How many rows so far."""

    @property
    def seconds(self) -> float:
        """How long so far."""


Follow = Callable[[EngineProgress], None]


@contextmanager
def following(
    verb: str, *, total: int | None = None, quiet: bool = False
) -> Iterator[Follow | None]:
    """A callback that draws a bar. `total` is how many rows there will be, if that is known."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    bar = _bar()
    task = bar.add_task(verb, total=total, rate="")

    def tell(progress: EngineProgress) -> None:
        rate = f"{progress.rows / progress.seconds:,.0f}/s" if progress.seconds > 0 else ""
        # A bar without a total is indeterminate until the end gives it one.
        known = progress.rows if progress.stage == "done" else total
        bar.update(
            task, description=progress.stage, completed=progress.rows, total=known, rate=rate
        )

    with bar:
        yield tell


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=30),
        TextColumn("{task.completed:>12,.0f} rows"),
        TextColumn("{task.fields[rate]:>12}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
