"""Writes `once`: idempotent by the mark of their commit, also beside another process.

Invariant: of a write whose mark a commit carries by now, the outcome is that of the commit, never
what this process came to after it: a conflict, a precondition that failed, nothing to change.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from omnigraph.errors import Conflict, Refused
from omnigraph.storage.protocol.intent import AlreadyMarked
from omnigraph.storage.records import Commit


class Outcome(Protocol):
    """What a write did."""

    @property
    def commit(self) -> Commit | None:
        """The commit that it made, if there was something to change."""


Done = TypeVar("Done", bound=Outcome)


def written_once(
    marked: Callable[[], Commit | None],
    run: Callable[[], Done],
    repeated: Callable[[Commit], Done],
) -> Done:
    """What a write does, or what the commit that carries its mark did."""
    earlier = marked()
    if earlier is not None:
        return repeated(earlier)
    try:
        done = run()
    except AlreadyMarked as raced:
        return repeated(raced.commit)
    except (Refused, Conflict):
        raced_by = marked()
        if raced_by is None:
            raise
        return repeated(raced_by)
    other = None if done.commit is not None else marked()
    return done if other is None else repeated(other)
