"""Retry budgets: how often each kind of work is tried again, and the one loop that does it.

Invariant: every budget of the program stands in this table, and loops do not nest: inside an
attempt nothing is tried again for the same loss. The publisher's own attempts (P4) are one step of
a commit; when they are used up the failure is no `Conflict`, so no writer tries that step again.
"""

from collections.abc import Callable
from typing import TypeVar

from omnigraph.errors import (
    ConstraintViolated,
    NotFound,
    PreconditionFailed,
    Reclaimed,
    SchemaChanged,
    TypeCheckError,
    VersionMismatch,
)
from omnigraph.light_dataclass import dataclass

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Budget:
    """How many attempts a kind of work has, and which failures count as a lost race."""

    attempts: int
    lost: tuple[type[Exception], ...] = ()


WRITE = Budget(32, (VersionMismatch,))
"""Inserts, loads and schema changes: what they write does not depend on the rows they lost to.
Updates and deletes have the budget that their caller asks for (`change_budget`)."""

STRICT = Budget(1, (VersionMismatch,))
"""Updates and deletes whose caller asks for no retries: a lost race is their answer."""

MERGE = Budget(10, (VersionMismatch, PreconditionFailed, SchemaChanged, NotFound, Reclaimed))
"""A merge decides anew when its target moved. Another branch that history leads to may be deleted
while it is read; the next attempt does without it."""

CHECKED_MERGE = Budget(5, (PreconditionFailed,))
"""A merge with checks reads its result first, and reads it anew when one of the branches moved."""

REVIEW = Budget(32)
"""The change of one review beside those of other actors."""

ENSURE_INDICES = Budget(3, (VersionMismatch,))
"""An index build is long; a table that is written all the time waits for the next run."""

OPTIMIZE = Budget(32, (VersionMismatch,))
"""A compaction is committed on whatever came meanwhile, as long as its fragments are there. A
table that a dead writer left ahead and live ones keep locked is looked at as often."""

HEAD_READ = Budget(4, (Reclaimed,))
"""A read of a branch head that became old, and was cleaned up, while it was read: the next attempt
reads the head as it is then. Upkeep begins again too."""

PUBLISH = Budget(5)
"""P4: one publish against other publishers of the branch."""

AUDIT = Budget(20)
"""The append of one audit row beside those of other recoveries."""

SCHEMA = Budget(8, (SchemaChanged, TypeCheckError, NotFound, Reclaimed))
"""Plans made under a schema that another process changed meanwhile. A change that may lose data
deletes at once what they read."""


def change_budget(retries: int) -> Budget:
    """The budget of an update or delete whose caller asks for retries. A broken rule may be a lost
    race too; whether it is, the writer says."""
    return Budget(retries + 1, (VersionMismatch, ConstraintViolated))


def retried(
    budget: Budget,
    attempt: Callable[[int], Result],
    *,
    lost: tuple[type[Exception], ...] = (),
    counts: Callable[[Exception], bool] = lambda loss: True,
) -> Result:
    """Run `attempt`, given the number of losses so far, until it wins, the budget is used up or a
    loss does not count. `lost` are failures that count beside the budget's own."""
    for losses in range(budget.attempts - 1):
        try:
            return attempt(losses)
        except (*budget.lost, *lost) as loss:
            if not counts(loss):
                raise
    return attempt(budget.attempts - 1)
