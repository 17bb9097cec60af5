"""Bounds of query texts and expressions, and the check for the deadline that every layer can call.

The bounds hold for every request and cannot be raised: each keeps a step safe that has a stack of
fixed size or no deadline of its own. `checkpoint` raises the error of the request that the thread
works for, once its time is up; the engine installs the check, and lower layers only call it.

Measured: a filter of 31,744 alternatives passes through Lance, one of 32,768 overflows a stack in
it and ends the process, whatever the stack of the calling thread (256 KiB and 8 MiB gave the same).
A filter with 22 nested `NOT` takes 0.01 s to parse there, one with 24 more than 20 s. An `IN` list
takes no stack: a million items pass, in 20 s.
"""

from contextvars import ContextVar
from typing import Protocol

CONDITION_TERMS_MAX = 4_096
"""Comparisons and other leaves of one condition."""

EXPRESSION_DEPTH_MAX = 200
"""Levels of a syntax tree. The interpreter allows 1,000 calls in a chain; a level takes four."""

QUERY_CLAUSES_MAX = 512
"""Bindings, traversals, lists and blocks of one query; a stage counts as three. Operators run as a
chain of calls, of which the interpreter allows 1,000; chains of 900 were measured to pass."""

QUERY_VALUES_MAX = 4_096
"""Parameters, columns and sort keys of one query, stages included."""

FILTER_TERMS_MAX = 256
"""Terms of a filter that Lance evaluates: it plans so many in 0.02 s, and 4,096 in up to 1.4 s,
which no deadline interrupts."""

FILTER_DEPTH_MAX = 10
"""Levels of a condition that Lance evaluates; deeper ones are evaluated here."""

BACKFILL_OPERATORS_MAX = 128
"""Operators of an SQL expression that DataFusion evaluates. On a stack of 512 KiB, 300 additions
passed and 500 ended the process; on 8 MiB, 2,000 passed and 4,096 did not."""

TEXT_BYTES_MAX = 4 << 20
"""Bytes of one text or list that an expression makes, so that a kernel ends soon after a
deadline."""


class Deadline(Protocol):
    """Deadline of a request."""

    def tick(self) -> None:
        """Raise if the deadline has passed or the request was cancelled."""
        ...


REQUEST: ContextVar[Deadline | None] = ContextVar("request", default=None)
"""The deadline of the request that this thread works for."""


def checkpoint() -> None:
    """Raise the error of the current request if its deadline has passed or it was cancelled."""
    request = REQUEST.get()
    if request is not None:
        request.tick()
