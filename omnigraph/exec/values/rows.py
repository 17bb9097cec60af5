"""The rows of a running query: which entity each variable is bound to, and the slots.

Invariant: a binding is a position in a domain of entities, or -1 for null. Values are looked up
when they are asked for, so a row is a few integers however wide its entities are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph.plan import ir
from omnigraph.types import TableKey

Positions = np.ndarray
NULL = -1


class Domain(Protocol):
    """Entities of one table version that variables can be bound to, by position."""

    @property
    def table(self) -> TableKey: ...

    def ids_at(self, at: Positions) -> pa.Array:
        """The ids, null at -1."""
        ...

    def ranks_at(self, at: Positions) -> np.ndarray:
        """Numbers that order as the ids do, -1 at -1."""
        ...

    def values_at(self, column: ir.Column, at: Positions) -> pa.Array:
        """A property's values, null at -1 and where the version has no such column."""
        ...

    def ends_at(self, end: ir.End, at: Positions) -> pa.Array:
        """The ids at one end, for domains of edges."""
        ...


@dataclass(frozen=True, slots=True)
class Binding:
    """What a variable is, row by row."""

    domain: Domain
    at: Positions

    def take(self, rows: np.ndarray) -> "Binding":
        return Binding(self.domain, self.at[rows])


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of bindings. `slots` hold numpy arrays of numbers or truth values."""

    length: int
    bindings: Mapping[ir.Var, Binding]
    slots: Mapping[ir.Slot, pa.Array]

    def take(self, rows: np.ndarray) -> "Rows":
        """These rows, in this order, as often as they are named."""
        chosen = {slot: values.take(pa.array(rows)) for slot, values in self.slots.items()}
        return Rows(
            len(rows), {var: bound.take(rows) for var, bound in self.bindings.items()}, chosen
        )

    def where(self, keep: np.ndarray) -> "Rows":
        """The rows whose flag is set."""
        return self if keep.all() else self.take(np.flatnonzero(keep))

    def bind(self, var: ir.Var, binding: Binding) -> "Rows":
        """The same rows with one more variable."""
        return Rows(self.length, {**self.bindings, var: binding}, self.slots)

    def put(self, slot: ir.Slot, values: pa.Array) -> "Rows":
        """The same rows with one more slot."""
        return Rows(self.length, self.bindings, {**self.slots, slot: values})

    def bytes_as(self, length: int) -> int:
        """What that many such rows would hold."""
        return length * 8 * (len(self.bindings) + len(self.slots) + 1)


ONE_ROW = Rows(1, {}, {})
"""Where every pattern starts: one row that binds nothing."""


def as_numpy(values: pa.Array) -> np.ndarray:
    """An Arrow array as numpy has it; copied where Arrow packs bits."""
    array: np.ndarray = values.to_numpy(zero_copy_only=False)
    return array


def numbers_at(values: np.ndarray, at: Positions) -> np.ndarray:
    """Numbers by position, -1 at -1, also where there is nothing to look up."""
    if not len(at) or at.min() >= 0:
        return np.take(values, at)
    found = np.full(len(at), -1, np.int64)
    found[at >= 0] = values[at[at >= 0]]
    return found


def gather(values: pa.Array, at: Positions) -> pa.Array:
    """Values by position, null at -1."""
    if len(at) and at.min() < 0:
        return values.take(pa.array(at, mask=at < 0))
    return values.take(pa.array(at))
