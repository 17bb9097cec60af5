"""Vectors of loaded rows: made from the texts that the input gives, before the rules are checked.

Invariant: rows keep their order and number. Of a patch only rows that give the text and not the
vector get one, and then give both.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import NodeType, Type
from omnigraph.exec.load.ndjson import TypedRows
from omnigraph.exec.values.columns import with_columns
from omnigraph.exec.values.selection import rows_by_key
from omnigraph.storage.store import Store

Committed = Callable[[pa.Array, list[str]], pa.Table]


class FillsVectors(Protocol):
    """Makes the vectors of rows."""

    def filled(
        self, owner: Type, rows: pa.Table, committed: Committed | None
    ) -> dict[str, pa.Array]:
        """The vector columns of rows, by name, with values where they were null."""
        ...


def row_filler(store: Store, fill: FillsVectors, branch: str) -> Callable[[TypedRows], TypedRows]:
    """Fills rows for a branch; texts that its head has already keep their vectors."""
    pinned = store.snapshot(branch)

    def filled(rows: TypedRows) -> TypedRows:
        owner = rows.owner
        if not isinstance(owner, NodeType) or all(p.embed is None for p in owner.properties):
            return rows
        committed: Committed | None = None
        pin = pinned.tables.get(owner.table)
        if pin is not None and pin.row_count:
            committed = partial(rows_by_key, store.reader(pinned, owner.table), "id")
        columns = fill.filled(owner, rows.table, committed)
        table = with_columns(rows.table, columns) if columns else rows.table
        return replace(rows, table=table, absent=_absent(owner, rows))

    return filled


def _absent(owner: NodeType, rows: TypedRows) -> dict[str, pa.Array]:
    """Which properties rows of a patch leave as they are: a vector whose text they give is not."""
    absent = dict(rows.absent)
    for prop in owner.properties:
        if prop.embed is None or prop.name not in absent:
            continue
        untouched = absent.get(prop.embed.source)
        if untouched is None:
            del absent[prop.name]
        else:
            absent[prop.name] = pc.and_(absent[prop.name], untouched)
    return absent
