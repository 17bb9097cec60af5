"""The nodes that one value of one column names, found in a sorted column.

Invariant: what is found is what a pass over the column would find. A column is sorted once it was
searched often enough, and the order is kept with the version.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.exec.limits import announce
from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.memory.resident import Nodes
from omnigraph.exec.values.columns import in_one
from omnigraph.exec.values.constants import CONSTANTS, Given, fit
from omnigraph.exec.values.rows import Positions, as_numpy
from omnigraph.exec.values.string_column import StringColumn
from omnigraph.plan import ir
from omnigraph.types import NUMERICS, Scalar

_PASSES = 1
"""A column is sorted once it was searched more often than this: a pass costs less than a sort."""


def points_in(where: ir.Expr) -> list[ir.Compare]:
    """The conditions among these that name one value of one column."""
    parts = where.parts if isinstance(where, ir.And) else (where,)
    return [part for part in parts if isinstance(part, ir.Compare) and _is_point(part)]


def _is_point(part: ir.Compare) -> bool:
    for subject, value in ((part.left, part.right), (part.right, part.left)):
        if isinstance(subject, ir.EntityId | ir.Column) and isinstance(value, CONSTANTS):
            return part.op is ir.CompareOp.EQ
    return False


def pointed_at(nodes: Nodes, cache: Cache, part: ir.Expr, given: Given) -> Positions | None:
    """The nodes an equality names, if it is one and a sorted column can tell."""
    if not isinstance(part, ir.Compare) or part.op is not ir.CompareOp.EQ:
        return None
    subject, value = part.left, part.right
    if isinstance(subject, CONSTANTS):
        subject, value = value, subject
    if not isinstance(value, CONSTANTS):
        return None
    wanted = given.of(value)
    if wanted is None:
        return np.empty(0, np.int64)
    match subject:
        case ir.EntityId():
            return _present(nodes, _one(nodes.ids.find(str(wanted))))
        case ir.Column():
            return _by_column(nodes, cache, subject, wanted)
        case _:
            return None


def _one(position: int) -> Positions:
    return np.array([position] if position >= 0 else [], np.int64)


def _present(nodes: Nodes, at: Positions) -> Positions:
    if nodes.present is nodes.everything or not len(at):
        return at
    places = np.minimum(np.searchsorted(nodes.present, at), len(nodes.present) - 1)
    return at[nodes.present[places] == at] if len(nodes.present) else at[:0]


def _by_column(
    nodes: Nodes, cache: Cache, column: ir.Column, wanted: ir.Constant
) -> Positions | None:
    name = nodes.source.columns.name_of(column)
    if name is None:
        return np.empty(0, np.int64)
    key = (nodes.source.key, "sorted", name)
    if cache.get(key) is None and cache.use(key) <= _PASSES:
        return None
    if column.type.is_text:
        found = _sorted_texts(nodes, cache, name).equal_to(str(wanted))
    elif column.type.scalar in NUMERICS - {Scalar.F32, Scalar.F64}:
        assert isinstance(wanted, int | float)
        fitted = fit(ir.CompareOp.EQ, wanted, column.type.scalar)
        if isinstance(fitted, bool):
            return np.empty(0, np.int64)
        found = _sorted_numbers(nodes, cache, name).equal_to(int(fitted[1]))
    else:
        return None
    return _present(nodes, found)


class _SortedTexts:
    """Positions in the order of a text column, nulls left out."""

    def __init__(self, texts: StringColumn, order: np.ndarray) -> None:
        self._texts = texts
        self._order = order
        self._places = order.data

    def equal_to(self, wanted: str) -> Positions:
        first, last = self._texts.equal_to(self._places, wanted.encode("utf-8", "surrogatepass"))
        return self._order[first:last]


class _SortedNumbers:
    """Positions in the order of a column of integers, nulls left out."""

    def __init__(self, numbers: np.ndarray, order: np.ndarray) -> None:
        self._numbers = numbers
        self._order = order

    def equal_to(self, wanted: int) -> Positions:
        exact = self._numbers.dtype.type(wanted)
        first = np.searchsorted(self._numbers, exact, "left")
        last = np.searchsorted(self._numbers, exact, "right")
        return self._order[first:last]


def _order_of(values: pa.Array) -> np.ndarray:
    announce(16 * len(values))
    order = as_numpy(pc.array_sort_indices(values, null_placement="at_end"))
    return order[: len(values) - values.null_count].astype(np.int64)


def _sorted_texts(nodes: Nodes, cache: Cache, name: str) -> _SortedTexts:
    def make() -> tuple[_SortedTexts, int]:
        values = nodes.column(name)
        if values.equals(nodes.ids.strings):  # a key of one string is the id
            return _SortedTexts(nodes.ids.texts, nodes.ids.order), 0
        order = _order_of(values)
        return _SortedTexts(StringColumn(values), order), int(values.nbytes + order.nbytes)

    return cache.made((nodes.source.key, "sorted", name), make)


def _sorted_numbers(nodes: Nodes, cache: Cache, name: str) -> _SortedNumbers:
    def make() -> tuple[_SortedNumbers, int]:
        values = nodes.column(name)
        order = _order_of(values)
        numbers = in_one(pa.chunked_array([values.take(pa.array(order))])).to_numpy()
        return _SortedNumbers(numbers, order), int(numbers.nbytes + order.nbytes)

    return cache.made((nodes.source.key, "sorted", name), make)
