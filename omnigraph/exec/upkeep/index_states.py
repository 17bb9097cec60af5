"""State of every index that a schema asks for: current, behind, missing or pending.

Invariant: reads alone. An index changes the speed of an answer and never the answer: rows that it
does not cover are looked at one by one, so also a ranked answer is of all rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omnigraph.catalog.model import Catalog
from omnigraph.exec.search.index_requests import decided
from omnigraph.exec.search.schema_indexes import by_table, schema_indexes
from omnigraph.exec.upkeep.build_indexes import is_in_topology
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store
from omnigraph.types import TableKey, parse_table_key

CURRENT, BEHIND, MISSING, PENDING = "current", "behind", "missing", "pending"


@dataclass(frozen=True, slots=True)
class IndexState:
    """One index: of how many rows it covers how many. `reason` says why it is pending.

    >>> og.IndexState("node:Person", "name", "btree", "current", 3, 3).state
    'current'
    """

    table: TableKey
    column: str
    kind: str
    state: str
    rows: int
    rows_covered: int
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The index as a server shows it."""
        entity_kind, type_name = parse_table_key(self.table)
        shown: dict[str, Any] = {
            "entity_kind": str(entity_kind),
            "type_name": type_name,
            "property": self.column,
            "kind": self.kind,
            "state": self.state,
            "rows": self.rows,
            "rows_covered": self.rows_covered,
        }
        return shown | ({"reason": self.reason} if self.reason else {})


def index_states(store: Store, catalog: Catalog, snapshot: Snapshot) -> Iterator[IndexState]:
    """The state of each index that the schema asks for, type by type."""
    for table, indexes in by_table(schema_indexes(catalog)):
        if table not in snapshot.tables:
            continue
        reader = store.reader(snapshot, table)
        existing = {each.name: each for each in reader.indexes()}
        rows = reader.pin.row_count
        for index in indexes:
            answer, built = decided(reader, index), existing.get(index.name)
            covered = 0 if built is None else min(built.rows, rows)
            if built is None and is_in_topology(reader.pin, index):
                answer = "topology files answer lookups by it"
            if isinstance(answer, IndexRequest):
                state, reason = (MISSING if built is None else BEHIND), ""
            else:
                state, reason = (PENDING if answer else CURRENT), answer
            yield IndexState(table, index.column, str(index.kind), state, rows, covered, reason)
