"""What every operator of one running query is handed.

Invariant: one snapshot, one set of parameter values, one moment, from start to end.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.exec.limits import Watch
from omnigraph.exec.memory.resident import Nodes
from omnigraph.exec.memory.view import TablesView
from omnigraph.exec.values.evaluate import Evaluator
from omnigraph.exec.values.rows import BoundEntities, Domain, Positions
from omnigraph.plan import ir


class TraversalMode(StrEnum):
    """How walks find their edges. `auto` takes what costs less."""

    AUTO = "auto"
    INDEXED = "indexed"
    CSR = "csr"


WantedColumns = Mapping[ir.Var, tuple[ir.Column, ...]]
"""The properties a query looks at, by variable."""


@dataclass(frozen=True, slots=True)
class Context:
    """One running query."""

    tables: TablesView
    evaluator: Evaluator
    watch: Watch
    mode: TraversalMode
    frontier_max: int
    wanted: WantedColumns


def wanted_columns(plan: ir.ReadPlan) -> WantedColumns:
    """The properties whose values a plan looks at, blobs and vectors aside: those are read for
    few rows. What is searched is no value: a search reads its column itself, or an index."""
    found: dict[ir.Var, dict[ir.Column, None]] = {}
    for column in _columns(plan):
        if not column.type.is_blob and not column.type.is_vector:
            found.setdefault(column.var, {})[column] = None
    return {var: tuple(columns) for var, columns in found.items()}


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


def positions_in(domain: Domain, ids: pa.Array, binding: BoundEntities) -> Positions:
    """The positions of a binding's entities in another domain of ids, -1 where they are not."""
    if binding.domain is domain:
        return binding.positions
    there, inverse = np.unique(binding.positions, return_inverse=True)
    wanted = binding.domain.ids_at(there)
    if isinstance(domain, Nodes):
        return domain.ids.locate(wanted)[inverse]
    found = pc.index_in(wanted, value_set=ids).fill_null(-1)
    places = np.where(there < 0, -1, found.to_numpy(zero_copy_only=False))
    return places[inverse]
