"""Point lookup: nodes whose id or column equals a constant, by binary search in a sorted column.

Invariant: a lookup gives the nodes that a pass over the column would give. A column is sorted once
it was searched often enough, and the order is cached with the version.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.exec.limits import announce
from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.memory.resident import Nodes
from omnigraph.exec.values.columns import in_one
from omnigraph.exec.values.constants import CONSTANTS, Given, fit
from omnigraph.exec.values.rows import Positions, as_numpy
from omnigraph.exec.values.string_column import StringColumn
from omnigraph.plan import ir
from omnigraph.types import NUMERICS, Scalar


def points_in(where: ir.Expr) -> list[ir.Compare]:
    """The equalities of a column with a constant among these conditions."""
    parts = where.parts if isinstance(where, ir.And) else (where,)
    return [part for part in parts if isinstance(part, ir.Compare) and _is_point(part)]


def _is_point(part: ir.Compare) -> bool:
    for subject, value in ((part.left, part.right), (part.right, part.left)):
        if isinstance(subject, ir.EntityId | ir.Column) and isinstance(value, CONSTANTS):
            return part.op is ir.CompareOp.EQ
    return False


def pointed_at(nodes: Nodes, cache: Cache, part: ir.Expr, given: Given) -> Positions | None:
    """The nodes that an equality selects; None if it is no equality, or no column is sorted."""
    if not isinstance(part, ir.Compare) or part.op is not ir.CompareOp.EQ:
        return None
    subject, value = part.left, part.right
    if isinstance(subject, CONSTANTS):
        subject, value = value, subject
    if not isinstance(value, CONSTANTS):
        return None
    key = given.of(value)
    if key is None:
        return np.empty(0, np.int64)
    match subject:
        case ir.EntityId():
            return nodes.existing(_one(nodes.ids.find(str(key))))
        case ir.Column():
            return _by_column(nodes, cache, subject, key)
        case _:
            return None


def _one(position: int) -> Positions:
    return np.array([position] if position >= 0 else [], np.int64)


def _by_column(
    nodes: Nodes, cache: Cache, column: ir.Column, value: ir.Constant
) -> Positions | None:
    name = nodes.source.columns.name_of(column)
    if name is None:
        return np.empty(0, np.int64)
    if column.type.is_text and nodes.is_id(column):
        return nodes.existing(_one(nodes.ids.find(str(value))))
    key = (nodes.key, "sorted", name)
    if cache.get(key) is None and cache.use(key) <= COSTS.key_passes_max:
        return None
    if column.type.is_text:
        positions = _sorted_texts(nodes, cache, name).equal_to(str(value))
    elif column.type.scalar in NUMERICS - {Scalar.F32, Scalar.F64}:
        assert isinstance(value, int | float)
        fitted = fit(ir.CompareOp.EQ, value, column.type.scalar)
        if isinstance(fitted, bool):
            return np.empty(0, np.int64)
        positions = _sorted_numbers(nodes, cache, name).equal_to(int(fitted[1]))
    else:
        return None
    return nodes.existing(positions)


class _SortedTexts:
    """Positions in the order of a text column, nulls left out."""

    def __init__(self, texts: StringColumn, order: np.ndarray) -> None:
        self._texts = texts
        self._order = order
        self._order_view = order.data

    def equal_to(self, text: str) -> Positions:
        first, last = self._texts.equal_to(self._order_view, text.encode("utf-8", "surrogatepass"))
        return self._order[first:last]


class _SortedNumbers:
    """Positions in the order of a column of integers, nulls left out."""

    def __init__(self, numbers: np.ndarray, order: np.ndarray) -> None:
        self._numbers = numbers
        self._order = order

    def equal_to(self, number: int) -> Positions:
        exact = self._numbers.dtype.type(number)
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

    return cache.made((nodes.key, "sorted", name), make)


def _sorted_numbers(nodes: Nodes, cache: Cache, name: str) -> _SortedNumbers:
    def make() -> tuple[_SortedNumbers, int]:
        values = nodes.column(name)
        order = _order_of(values)
        numbers = in_one(pa.chunked_array([values.take(pa.array(order))])).to_numpy()
        return _SortedNumbers(numbers, order), int(numbers.nbytes + order.nbytes)

    return cache.made((nodes.key, "sorted", name), make)
