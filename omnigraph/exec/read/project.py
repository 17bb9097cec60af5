"""Projection: distinct, order by, limit and output columns of rows or groups.

Invariant: order and distinct work on codes, and values are gathered for the rows that remain.
"""

from collections.abc import Sequence
from time import perf_counter

import numpy as np
import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.profile import Profile
from omnigraph.exec.read.aggregate import Groups
from omnigraph.exec.read.codes import (
    Codes,
    codes_of,
    combined,
    encoded,
    first_of_each,
    is_sortable,
    namesakes,
)
from omnigraph.exec.read.context import Context
from omnigraph.exec.read.order import keys_of_codes, keys_of_values, ordered_rows
from omnigraph.exec.values.rows import Rows
from omnigraph.plan import ir

RowsOrGroups = Rows | Groups


class Projector:
    """The tail of one plan in one running query."""

    def __init__(self, plan: ir.ReadPlan, context: Context, nodes: Sequence[ir.Var] = ()) -> None:
        self._plan = plan
        self._nodes = nodes  # what goes on as a node, and is told apart by more than its id
        self._watch = context.watch
        self._evaluator = context.evaluator
        self._cache = context.tables.holdings.cache

    def project(
        self, rows: RowsOrGroups, profile: Profile, since: float
    ) -> tuple[tuple[pa.Array, ...], int]:
        """The output columns, and how many rows they have."""
        plan, watch = self._plan, self._watch
        watch.operator = "order by"
        if plan.having is not None:
            rows = self._having(plan.having, rows)
            profile.stage(rows.length, perf_counter() - since)
            since = perf_counter()
        total = rows.length
        rows = self._sorted(rows)
        sorted_at = perf_counter()
        watch.operator = "project"
        watch.tick()
        values = self._columns(rows)
        # In the order of the plan's lines: project, order by, slice. Cutting comes with sorting.
        profile.stage(rows.length, perf_counter() - sorted_at)
        if plan.order:
            profile.stage(total, sorted_at - since)
        if plan.limit is not None or plan.offset:
            profile.stage(rows.length, 0.0)
        return values, rows.length

    def _columns(self, rows: RowsOrGroups) -> tuple[pa.Array, ...]:
        """The output columns, counted while they are made."""
        made, held = list[pa.Array](), 0
        for column in self._plan.columns:
            made.append(self._column(column, rows))
            held += made[-1].nbytes
            self._watch.hold(held)
        return tuple(made)

    def arranged(self, rows: RowsOrGroups) -> Rows:
        """The rows or groups that stay, in their order, before columns are made of them."""
        if self._plan.having is not None:
            rows = self._having(self._plan.having, rows)
        rows = self._sorted(rows)
        return rows if isinstance(rows, Rows) else rows.as_rows()

    def _having(self, having: ir.Expr, rows: RowsOrGroups) -> Groups:
        assert isinstance(rows, Groups)
        return rows.take(np.flatnonzero(self._evaluator.keep(having, rows.as_rows())))

    def _sorted(self, rows: RowsOrGroups) -> RowsOrGroups:
        """Distinct, order, offset and limit."""
        plan = self._plan
        if plan.distinct:
            rows, codes = self._distinct(rows)
            keys = self._keys(rows) + [each.of_rows for each in codes]
        else:
            keys = self._keys(rows) if rows.length > 1 else []
        chosen = ordered_rows(keys, rows.length, offset=plan.offset, limit=plan.limit)
        return rows.take(chosen) if keys or len(chosen) < rows.length else rows

    def _distinct(self, rows: RowsOrGroups) -> tuple[RowsOrGroups, list[Codes]]:
        """Equal output rows as one, and the codes of their columns."""
        codes = [self._codes(column.value, rows) for column in self._plan.columns]
        bound = rows if isinstance(rows, Rows) else rows.examples
        whole = combined([*codes, *namesakes(self._nodes, bound)], rows.length)
        firsts = first_of_each(whole)
        kept = [Codes(each.of_rows[firsts], each.count) for each in codes]
        return rows.take(firsts), kept

    def _keys(self, rows: RowsOrGroups) -> list[np.ndarray]:
        """The order of the plan as integers."""
        keys = []
        for key in self._plan.order:
            keys += self._key(key, rows)
        return keys

    def _key(self, key: ir.SortKey, rows: RowsOrGroups) -> list[np.ndarray]:
        coded = _is_coded(key.value) if isinstance(rows, Rows) else key.value in rows.keys
        if not coded:
            values = self._value(key.value, rows)
            if is_sortable(values.type):
                return keys_of_values(values, descending=key.descending)
        codes = self._codes(key.value, rows)
        return keys_of_codes(codes.of_rows, descending=key.descending)

    def _codes(self, expr: ir.Expr, rows: RowsOrGroups) -> Codes:
        if isinstance(rows, Rows):
            return codes_of(expr, rows, self._evaluator, self._cache)
        return rows.keys.get(expr) or encoded(self._value(expr, rows))

    def _value(self, expr: ir.Expr, rows: RowsOrGroups) -> pa.Array:
        if isinstance(rows, Rows):
            return self._evaluator.values(expr, rows)
        return self._evaluator.values(expr, rows.as_rows())

    def _column(self, column: ir.OutputColumn, rows: RowsOrGroups) -> pa.Array:
        if column.type.is_vector:
            self._watch.hold(4 * rows.length * (column.type.dimension or 0))
        values = self._value(column.value, rows)
        declared = arrow_type(column.type)
        return values if values.type == declared else values.cast(declared)


def _is_coded(expr: ir.Expr) -> bool:
    """Whether codes are at hand, without the values: ids, and columns of text."""
    match expr:
        case ir.EntityId():
            return True
        case ir.Column(type=type_):
            return type_.is_text
        case _:
            return False
