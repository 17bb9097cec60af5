"""Rows of a running query: per variable a column of entity positions, and computed slots.

Invariant: late materialisation: a row holds positions in a domain of entities, or -1 for null, and
values are looked up when an expression reads them, however wide the entities are.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph.light_dataclass import dataclass
from omnigraph.number_arrays import to_arrow
from omnigraph.plan import ir
from omnigraph.query_limits import checkpoint
from omnigraph.types import TableKey

Positions = np.ndarray
NULL = -1


class Domain(Protocol):
    """Entities of one table version that variables can be bound to, by position."""

    @property
    def table(self) -> TableKey: ...

    def ids_at(self, positions: Positions) -> pa.Array:
        """The ids, null at -1."""
        ...

    def ranks_at(self, positions: Positions) -> np.ndarray:
        """Numbers that order as the ids do, -1 at -1."""
        ...

    def values_at(self, column: ir.Column, positions: Positions) -> pa.Array:
        """A property's values, null at -1 and where the version has no such column."""
        ...

    def ends_at(self, end: ir.End, positions: Positions) -> pa.Array:
        """The ids at one end, for domains of edges."""
        ...


@dataclass(frozen=True, slots=True)
class BoundEntities:
    """The entity a variable is bound to, row by row: positions in one domain."""

    domain: Domain
    positions: Positions

    def take(self, rows: np.ndarray) -> "BoundEntities":
        return BoundEntities(self.domain, self.positions[rows])


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of bindings. `slots` hold numpy arrays of numbers or truth values."""

    length: int
    bindings: Mapping[ir.Var, BoundEntities]
    slots: Mapping[ir.Slot, pa.Array]

    def take(self, rows: np.ndarray) -> "Rows":
        """These rows, in this order, as often as they are named."""
        chosen = dict[ir.Slot, pa.Array]()
        for slot, values in self.slots.items():
            checkpoint()
            chosen[slot] = values.take(pa.array(rows))
        bindings = dict[ir.Var, BoundEntities]()
        for var, bound in self.bindings.items():  # may be hundreds, of many rows
            checkpoint()
            bindings[var] = bound.take(rows)
        return Rows(len(rows), bindings, chosen)

    def between(self, first: int, end: int) -> "Rows":
        """The rows from one to before another; they share the memory."""
        if first == 0 and end >= self.length:
            return self
        bindings = {
            var: BoundEntities(bound.domain, bound.positions[first:end])
            for var, bound in self.bindings.items()
        }
        slots = {slot: values[first:end] for slot, values in self.slots.items()}
        return Rows(max(min(end, self.length) - first, 0), bindings, slots)

    def batches(self, rows_max: int | None) -> "Iterator[Rows]":
        """The rows, no more than `rows_max` at a time; of none there is one batch."""
        size = max(self.length, 1) if rows_max is None else rows_max
        for first in range(0, max(self.length, 1), size):
            yield self.between(first, first + size)

    def where(self, keep: np.ndarray) -> "Rows":
        """The rows whose flag is set."""
        return self if keep.all() else self.take(np.flatnonzero(keep))

    def bind(self, var: ir.Var, binding: BoundEntities) -> "Rows":
        """The same rows with one more variable."""
        return Rows(self.length, {**self.bindings, var: binding}, self.slots)

    def put(self, slot: ir.Slot, values: pa.Array) -> "Rows":
        """The same rows with one more slot."""
        return Rows(self.length, self.bindings, {**self.slots, slot: values})

    def bytes_as(self, length: int) -> int:
        """The bytes that many such rows would take."""
        return length * 8 * (len(self.bindings) + len(self.slots) + 1)


ONE_ROW = Rows(1, {}, {})
"""The start of every pattern: one row that binds nothing."""


def as_numpy(values: pa.Array) -> np.ndarray:
    """An Arrow array as numpy has it; copied where Arrow packs bits."""
    if pa.types.is_boolean(values.type) and len(values) and not values.null_count:
        packed = np.frombuffer(values.buffers()[1], np.uint8)
        end = values.offset + len(values)
        return np.unpackbits(packed, count=end, bitorder="little")[values.offset :].view(bool)
    array: np.ndarray = values.to_numpy(zero_copy_only=False)
    return array


def numbers_at(values: np.ndarray, positions: Positions) -> np.ndarray:
    """Numbers by position, -1 at -1, also where `values` is empty."""
    if not len(positions) or positions.min() >= 0:
        return np.take(values, positions)
    numbers = np.full(len(positions), -1, np.int64)
    numbers[positions >= 0] = values[positions[positions >= 0]]
    return numbers


def gather(values: pa.Array, positions: Positions) -> pa.Array:
    """Values by position, null at -1."""
    if len(positions) and positions.min() < 0:
        return values.take(pa.array(positions, mask=positions < 0))
    return values.take(to_arrow(positions))
