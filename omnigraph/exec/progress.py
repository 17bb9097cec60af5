"""Progress callbacks: the values that loads, exports, merges and upkeep report, and their meter.

Invariant: reporting decides nothing; work without a listener does the same.
"""

import time
from collections.abc import Callable
from dataclasses import field

from omnigraph.light_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a load, an export or a merge is: the stage, the rows it has seen and the seconds it
    has run."""

    stage: str
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class UpkeepProgress:
    """How far upkeep is: so many of so many tasks of a stage."""

    stage: str
    done: int
    total: int
    table: str = ""


OnProgress = Callable[[Progress], None]
OnUpkeepProgress = Callable[[UpkeepProgress], None]


@dataclass(slots=True)
class Meter:
    """Counts the rows of one piece of work and its seconds, and reports both to a listener."""

    tell: OnProgress | None = None
    rows: int = 0
    started: float = field(default_factory=time.monotonic)

    def add(self, rows: int, stage: str = "export") -> None:
        """Report that many more rows."""
        self.report(stage, self.rows + rows)

    def report(self, stage: str, rows: int) -> None:
        """Report that many rows in all."""
        self.rows = rows
        if self.tell is not None:
            self.tell(Progress(stage, rows, time.monotonic() - self.started))
