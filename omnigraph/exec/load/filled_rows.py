"""Vectors of loaded rows: made from the texts that the input gives, before the rules are checked.

Invariant: rows keep their order and number. Of a patch only rows that give the text and not the
vector get one, and then give both.
"""

from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import NodeType, Type
from omnigraph.exec.load.ndjson import TypedRows
from omnigraph.exec.values.columns import with_columns
from omnigraph.exec.values.vector_base import Filled, VectorBase, other_model, vector_base_at
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import EmbeddedBy, Snapshot
from omnigraph.storage.store import Store


class FillsVectors(Protocol):
    """Makes the vectors of rows."""

    def filled(self, owner: Type, rows: pa.Table, base: VectorBase) -> Filled:
        """Return the vector columns of rows, with values where they were null."""
        ...


@dataclass(frozen=True, slots=True)
class RowFiller:
    """Fills rows for the head of a branch; texts that it has already keep their vectors."""

    store: Store
    fill: FillsVectors
    pinned: Snapshot
    is_replaced: bool  # whether the load replaces all rows of its types
    made: dict[str, EmbeddedBy] = field(default_factory=dict)

    def __call__(self, rows: TypedRows) -> TypedRows:
        owner = rows.owner
        if not isinstance(owner, NodeType) or all(p.embed is None for p in owner.properties):
            return rows
        base = vector_base_at(self.store, self.pinned, owner.table, is_replaced=self.is_replaced)
        done = self.fill.filled(owner, rows.table, base)
        self.made.update(done.embedded)
        table = with_columns(rows.table, done.columns) if done.columns else rows.table
        return replace(rows, table=table, absent=_absent(owner, rows))

    def record(self, write: Write) -> None:
        """Record the models with a write. Raises `BadRequest` if the branch has recorded another
        one since the rows were filled."""
        for key, by in self.made.items():
            now = write.state.embedded.get(key)
            if now is not None and now.model != by.model and now != self.pinned.embedded.get(key):
                raise other_model(key, now.model, by.model)
        write.embeds(self.made)


def row_filler(store: Store, fill: FillsVectors, branch: str, *, is_replaced: bool) -> RowFiller:
    """Return what fills rows of a load into a branch."""
    return RowFiller(store, fill, store.snapshot(branch), is_replaced)


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
