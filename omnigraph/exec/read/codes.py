"""Order-preserving integer codes of values, for sorting, grouping and distinct.

Invariant: equal values have equal codes, a lesser value a lesser code, and null the least, -1. NaN
follows every number and equals itself; -0.0 equals 0.0; strings order by their bytes.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cmp_to_key

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import scalar_of
from omnigraph.exec.limits import announce
from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.memory.resident import ResidentTable
from omnigraph.exec.read.members import MemberDomains
from omnigraph.exec.values.bounded import PIECE_BYTES
from omnigraph.exec.values.evaluate import Evaluator
from omnigraph.exec.values.rows import Rows, as_numpy
from omnigraph.exec.values.scalars import SCALARS
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.query_limits import checkpoint

_LONG = 1 << 14
"""Bytes of texts, on average, from which comparing them takes longer than calling Python does."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A code a row, below `count`."""

    of_rows: np.ndarray
    count: int


def codes_of(expr: ir.Expr, rows: Rows, evaluator: Evaluator, cache: Cache) -> Codes:
    """The codes of an expression's values."""
    match expr:
        case ir.EntityId(var=var):
            bound = rows.bindings[var]
            ranks = bound.domain.ranks_at(bound.positions)
            return Codes(ranks, int(ranks.max(initial=-1)) + 1)
        case ir.Column(var=var):
            bound = rows.bindings[var]
            domain = bound.domain
            if isinstance(domain, ResidentTable) and not expr.type.is_vector:
                whole = _column_codes(domain, expr, rows.length, cache)
                if whole is not None:
                    return Codes(whole.of_rows[bound.positions], whole.count)
    return encoded(evaluator.values(expr, rows))


def namesakes(nodes: Iterable[ir.Var], rows: Rows) -> Iterator[Codes]:
    """What tells nodes of an interface apart that have one id: the type that each is of."""
    for bound in (rows.bindings[node] for node in nodes):
        if isinstance(bound.domain, MemberDomains):
            yield Codes(*bound.domain.member_numbers(bound.positions))


def _column_codes(
    domain: ResidentTable, column: ir.Column, rows: int, cache: Cache
) -> Codes | None:
    """Codes of a whole column, by position and then for null, when there are rows enough."""
    name = domain.source.columns.name_of(column)
    if name is None:
        return None
    key = (domain.key, "codes", name)
    whole: Codes | None = cache.get(key)
    if whole is None and rows * 2 >= domain.size:
        codes = encoded(domain.column(name))
        whole = Codes(np.append(codes.of_rows, -1), codes.count)  # position -1 is null
        cache.put(key, whole, whole.of_rows.nbytes)
    return whole


def encoded(values: pa.Array) -> Codes:
    """The codes of an array."""
    if pa.types.is_nested(values.type):
        return _encoded_lists(values)
    if pa.types.is_null(values.type):
        return Codes(np.full(len(values), -1), 0)
    if pa.types.is_floating(values.type):
        values = pa.array(sortable(values), mask=~present(values))
    if pa.types.is_string(values.type) and values.nbytes > max(PIECE_BYTES, _LONG * len(values)):
        return _encoded_long(values)
    dictionary = values.dictionary_encode()
    order = pc.array_sort_indices(dictionary.dictionary).to_numpy()
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order] = np.arange(len(order))
    ranks[-1] = -1
    codes = dictionary.indices
    if codes.null_count:
        codes = codes.fill_null(-1)
    return Codes(ranks[as_numpy(codes)], len(order))


def _encoded_long(values: pa.Array) -> Codes:
    """Long texts, with a check of the deadline before each is read or compared."""
    announce(2 * values.nbytes)
    texts = dict[int, bytes]()
    for row, value in enumerate(values):
        checkpoint()
        if value.is_valid:
            texts[row] = value.as_buffer().to_pybytes()

    def compared(row: int, other: int) -> int:
        checkpoint()
        if texts[row] == texts[other]:
            return 0
        return 1 if texts[row] > texts[other] else -1

    order = sorted(texts, key=cmp_to_key(compared))
    codes, count = np.full(len(values), -1, np.int64), 0
    for nth, row in enumerate(order):
        count += nth > 0 and compared(order[nth - 1], row) != 0
        codes[row] = count
    return Codes(codes, count + bool(order))


def _encoded_lists(values: pa.Array) -> Codes:
    """Lists have no Arrow order: the distinct ones are sorted as Python tuples."""
    texts = [None if each is None else tuple(each) for each in values.to_pylist()]
    ranks = {each: rank for rank, each in enumerate(sorted({t for t in texts if t is not None}))}
    return Codes(np.array([-1 if t is None else ranks[t] for t in texts], np.int64), len(ranks))


def present(values: pa.Array) -> np.ndarray:
    """Flags of the rows that have a value."""
    return as_numpy(values.is_valid())


def sortable(values: pa.Array) -> np.ndarray:
    """Numbers, truth values, dates and moments as 64-bit integers in their order, nulls as any."""
    order = _order_of(values.type)
    assert order is not None
    return order(values)


def is_sortable(kind: pa.DataType) -> bool:
    """Whether values have an integer of their own, without looking at the others."""
    return _order_of(kind) is not None


def _order_of(kind: pa.DataType) -> Callable[[pa.Array], np.ndarray] | None:
    scalar = scalar_of(kind)
    return None if scalar is None else SCALARS[scalar].order


def combined(codes: list[Codes], length: int) -> Codes:
    """Rows of codes as one code, the first the most significant; dense."""
    whole = Codes(np.zeros(length, np.int64), min(length, 1))
    for each in codes:
        shifted = whole.of_rows * (each.count + 1) + (each.of_rows + 1)
        whole = dense(shifted, whole.count * (each.count + 1))
    return whole


def dense(codes: np.ndarray, count: int) -> Codes:
    """The same codes without gaps."""
    if count <= max(4 * len(codes), 1024):
        used = np.zeros(count, bool)
        used[codes] = True
        ranks = np.cumsum(used) - 1
        return Codes(ranks[codes], int(ranks[-1]) + 1 if count else 0)
    distinct, inverse = np.unique(codes, return_inverse=True)
    return Codes(inverse, len(distinct))


def first_of_each(codes: Codes) -> np.ndarray:
    """The first row of every code, in the order of the codes."""
    firsts = np.full(codes.count, -1)
    firsts[codes.of_rows[::-1]] = np.arange(len(codes.of_rows))[::-1]
    return firsts
