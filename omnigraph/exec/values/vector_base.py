"""State that vectors of texts are added to, and the result of making them.

Invariant: the vectors of a property that has a record were made by one model. A write that would
add those of another is refused, unless it leaves none of the earlier ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph import environment
from omnigraph.errors import BadRequest
from omnigraph.exec.values.selection import rows_by_key
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.records import Embedded, EmbeddedBy, Snapshot
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

CommittedRows = Callable[[pa.Array, list[str]], pa.Table]
"""Returns columns of the committed rows that have some ids."""


@dataclass(frozen=True, slots=True)
class VectorBase:
    """Committed rows of one type, and the models that its branch records."""

    recorded: Embedded
    reader: TableReader | None  # None: the table has no rows
    is_replaced: bool = False  # whether the write replaces all rows

    @property
    def rows(self) -> CommittedRows | None:
        """Lookup of committed rows by id; None if there are none."""
        reader = self.reader
        if reader is None:
            return None
        return lambda ids, columns: rows_by_key(reader, "id", ids, columns)

    def keeps_vectors(self, name: str) -> bool:
        """Return whether vectors of a property stay beside those of the write."""
        if self.is_replaced or self.reader is None:
            return False
        quoted = name.replace("`", "``")
        return self.reader.count(f"`{quoted}` IS NOT NULL") > 0


@dataclass(frozen=True, slots=True)
class Filled:
    """Vector columns by name, and the model of those that were made."""

    columns: dict[str, pa.Array] = field(default_factory=dict)
    embedded: dict[str, EmbeddedBy] = field(default_factory=dict)


def vector_base(reader: TableReader, recorded: Embedded) -> VectorBase:
    """Return the base of a write that reads its table with `reader`."""
    return VectorBase(recorded, reader if reader.pin.row_count else None)


def vector_base_at(
    store: Store, snapshot: Snapshot, table: TableKey, *, is_replaced: bool
) -> VectorBase:
    """Return the base of a write to one table of a snapshot."""
    pin = snapshot.tables.get(table)
    has_rows = pin is not None and pin.row_count
    reader = store.reader(snapshot, table) if has_rows else None
    return VectorBase(snapshot.embedded, reader, is_replaced)


def other_model(name: str, model: str, other: str) -> BadRequest:
    """Return the refusal of a model other than the one of a property's vectors."""
    return BadRequest(
        f"property '{name}' is embedded with model '{model}', the provider uses '{other}'",
        f"set {environment.EMBED_MODEL.name} to '{model}', or give a vector",
    )
