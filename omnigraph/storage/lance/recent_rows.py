"""Row ids of entities that were read a moment ago, by table and id: a hint, never an answer.

Invariant: whoever takes a row id from here looks at the row and compares its id. A row id is that
of some version of the table; another version may have another row under it, or none.
"""

import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.lru import Lru
from omnigraph.storage.records import TablePin


class RecentRows:
    """Where entities of a graph were last seen. Safe to share between threads."""

    def __init__(self) -> None:
        self._rows: Lru[tuple[str, str], int] = Lru(COSTS.recent_rows_max)

    def note(self, pin: TablePin, ids: pa.Array, row_ids: pa.Array) -> None:
        """Keep the row ids of a few entities; a null row id is of one that is missing."""
        if len(ids) > COSTS.recent_read_rows_max:
            return
        for each, row_id in zip(ids.to_pylist(), row_ids.to_pylist(), strict=True):
            if each is not None and row_id is not None:
                self._rows.put((pin.location, each), row_id)

    def row_id(self, pin: TablePin, entity: str) -> int | None:
        """The row id that an entity had when it was last seen; None if it was not."""
        return self._rows.get((pin.location, entity))

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()
