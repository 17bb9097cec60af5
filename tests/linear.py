"""Linearizability checker: whether one order of operations explains what each of them saw.

The method is that of Wing, Gong and Lowe: take an operation that no other one ended before, apply
it to the model, go on with the rest, and go back where that fails. Sets of operations that were
tried with one state are not tried again.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Call:
    """An operation, when it began and ended, and what it was and saw."""

    begun: int
    ended: int
    facts: Any


Model = Callable[[Hashable, Any], Hashable | None]
"""The state after an operation, or None where it could not have seen what it saw."""


def is_linearizable(calls: Sequence[Call], model: Model, first: Hashable) -> bool:
    """Whether the calls can be put in an order that the model explains, none before one that had
    ended when it began."""
    ordered = sorted(calls, key=lambda call: call.begun)
    tried: set[tuple[int, Hashable]] = set()
    stack: list[tuple[int, Hashable]] = [((1 << len(ordered)) - 1, first)]
    while stack:
        left, state = stack.pop()
        if not left:
            return True
        if (left, state) in tried:
            continue
        tried.add((left, state))
        rest = [n for n in range(len(ordered)) if left >> n & 1]
        until = min(ordered[n].ended for n in rest)
        for n in rest:
            if ordered[n].begun > until:
                break
            after = model(state, ordered[n].facts)
            if after is not None:
                stack.append((left & ~(1 << n), after))
    return False


def register(state: Hashable, facts: Any) -> Hashable | None:
    """A register that is read, or set if it holds what was expected."""
    kind, old, new = facts
    if state != old:
        return None
    return new if kind == "swap" else state
