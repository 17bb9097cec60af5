"""Query context: snapshot view, evaluator, watch and traversal mode of one running query.

Invariant: one snapshot, one set of parameter values, one moment, from start to end.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.exec.limits import Watch
from omnigraph.exec.memory.resident import Nodes, ResidentTable
from omnigraph.exec.memory.version import FetchedEntities
from omnigraph.exec.memory.view import TablesView
from omnigraph.exec.values.evaluate import Evaluator
from omnigraph.exec.values.rows import BoundEntities, Domain, Positions, Rows
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir


class TraversalMode(StrEnum):
    """How expansions find their edges: by index lookups, or in the adjacency (CSR) of the whole
    table. `auto` takes the cheaper way."""

    AUTO = "auto"
    INDEXED = "indexed"
    CSR = "csr"


ColumnsRead = Mapping[ir.Var, tuple[ir.Column, ...]]
"""The properties a query reads, by variable."""


@dataclass(frozen=True, slots=True)
class Context:
    """One running query."""

    tables: TablesView
    evaluator: Evaluator
    watch: Watch
    mode: TraversalMode
    frontier_max: int
    columns_read: ColumnsRead
    rows_max: int  # that an operator passes on at a time


def columns_read(part: Any) -> ColumnsRead:
    """The properties whose values a plan, or a part of one, reads, blobs and vectors aside: those
    are read for few rows. A searched column is left out too: the search reads it itself, or an
    index."""
    by_var: dict[ir.Var, dict[ir.Column, None]] = {}
    for column in _columns(part):
        if not column.type.is_blob and not column.type.is_vector:
            by_var.setdefault(column.var, {})[column] = None
    return {var: tuple(columns) for var, columns in by_var.items()}


def load_columns(columns: ColumnsRead, domains: Mapping[ir.Var, Domain]) -> None:
    """Bring into memory what is about to be read of wide entities, with few scans; a few columns
    are read one by one, when they are needed."""
    for var, read in columns.items():
        domain = domains.get(var)
        if len(read) > COSTS.columns_one_by_one_max and isinstance(
            domain, ResidentTable | FetchedEntities
        ):
            domain.load(read)


def domains_of(rows: Rows) -> Mapping[ir.Var, Domain]:
    """What each variable of the rows is bound in."""
    return {var: bound.domain for var, bound in rows.bindings.items()}


def load_compared(where: ir.Expr, domains: Mapping[ir.Var, Domain]) -> None:
    """The same for the columns of a long condition."""
    if isinstance(where, ir.And) and len(where.parts) > COSTS.columns_one_by_one_max:
        load_columns(columns_read(where), domains)


def _columns(part: Any) -> Iterator[ir.Column]:
    if isinstance(part, ir.Column):
        yield part
    elif isinstance(part, tuple):
        yield from _each(part)
    elif is_dataclass(part) and not isinstance(part, ir.TextMatch | ir.Nearest | ir.Bm25):
        yield from _each(getattr(part, field.name) for field in fields(part))


def _each(parts: Iterable[Any]) -> Iterator[ir.Column]:
    for part in parts:
        yield from _columns(part)


def positions_in(domain: Domain, ids: pa.Array | None, binding: BoundEntities) -> Positions:
    """The positions of a binding's entities in another domain of ids, -1 where they are not."""
    if binding.domain is domain:
        return binding.positions
    distinct, inverse = np.unique(binding.positions, return_inverse=True)
    own_ids = binding.domain.ids_at(distinct)
    if isinstance(domain, Nodes):
        return domain.ids.locate(own_ids)[inverse]
    assert ids is not None, "only a resident table finds ids by itself"
    indexes = pc.index_in(own_ids, value_set=ids).fill_null(-1)
    positions = np.where(distinct < 0, -1, indexes.to_numpy(zero_copy_only=False))
    return positions[inverse]
