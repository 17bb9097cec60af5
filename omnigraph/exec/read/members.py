"""Entities of an interface: nodes of several tables under one numbering.

Invariant: a position belongs to one member, and a property is read there by the interface's name
for it. Equal ids in two tables are two nodes that sort alike.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.values.rows import BoundEntities, Domain, Positions
from omnigraph.plan import ir
from omnigraph.plan.expressions import substituted
from omnigraph.types import TableKey

_SPAN = 1 << 40
"""More than any table has positions: member n has those from n times this on."""


def of_member(member: ir.Member, part: Any, var: ir.Var | None = None) -> Any:
    """Columns of an interface, in an expression or by themselves, as those of a member."""
    own = dict(member.columns)

    def column(each: Any) -> ir.Expr | None:
        if not isinstance(each, ir.Column) or (var is not None and each.var != var):
            return None
        return ir.Column(each.var, each.name, own[each.name], each.type)

    return None if part is None else substituted(part, column)


class MemberDomains:
    """The domains of all members, as one."""

    def __init__(
        self, table: TableKey, members: tuple[ir.Member, ...], domains: tuple[Domain, ...]
    ) -> None:
        self._table = table
        self._members = members
        self._domains = domains

    @property
    def table(self) -> TableKey:
        return self._table

    def numbered(self, positions: Sequence[Positions]) -> Positions:
        """Positions in each member as positions here."""
        parts = [np.asarray(own, np.int64) + n * _SPAN for n, own in enumerate(positions)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def member_numbers(self, positions: Positions) -> tuple[np.ndarray, int]:
        """The number of the member that each position belongs to, -1 for null, and how many there
        are."""
        return np.where(positions < 0, -1, positions // _SPAN), len(self._domains)

    def split(self, positions: Positions) -> list[tuple[np.ndarray, BoundEntities]]:
        """For each member the indexes of its positions, and what they are bound to."""
        members, _ = self.member_numbers(positions)
        parts = list[tuple[np.ndarray, BoundEntities]]()
        for number, domain in enumerate(self._domains):
            mine = np.flatnonzero(members == number)
            parts.append((mine, BoundEntities(domain, positions[mine] - number * _SPAN)))
        return parts

    def ids_at(self, positions: Positions) -> pa.Array:
        parts = [(mine, own.domain.ids_at(own.positions)) for mine, own in self.split(positions)]
        return put_back(len(positions), parts, pa.string())

    def ranks_at(self, positions: Positions) -> np.ndarray:
        ids = self.ids_at(positions).dictionary_encode()
        order = np.argsort(pc.sort_indices(ids.dictionary).to_numpy())
        ranks = np.full(len(positions), -1, np.int64)
        known = np.flatnonzero(positions >= 0)
        ranks[known] = order[ids.indices.take(pa.array(known)).to_numpy()]
        return ranks

    def values_at(self, column: ir.Column, positions: Positions) -> pa.Array:
        parts = [
            (mine, own.domain.values_at(of_member(member, column), own.positions))
            for member, (mine, own) in zip(self._members, self.split(positions), strict=True)
        ]
        types = [values.type for _, values in parts if not pa.types.is_null(values.type)]
        return put_back(len(positions), parts, types[0] if types else arrow_type(column.type))

    def ends_at(self, end: ir.End, positions: Positions) -> pa.Array:
        raise AssertionError("nodes have no ends")


def put_back(count: int, parts: list[tuple[np.ndarray, pa.Array]], kind: pa.DataType) -> pa.Array:
    """Values at the indexes they belong to, null elsewhere."""
    if not parts:
        return pa.nulls(count, kind)
    whole = pa.concat_arrays([values.cast(kind) for _, values in parts])
    where = np.full(count, -1, np.int64)
    where[np.concatenate([mine for mine, _ in parts])] = np.arange(len(whole))
    return whole.take(pa.array(where, mask=where < 0))
