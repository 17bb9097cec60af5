"""Schema write: a write that creates, drops, renames and evolves tables, beside changing rows.

Invariant: a commit that brings another schema holds only if no table moved at all since it began,
and its files take their places with it or not at all.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa

from omnigraph.errors import AlreadyExists, OmnigraphError
from omnigraph.storage.lance.evolution import Evolution
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.names import owner_of, table_location
from omnigraph.storage.protocol.commit import Prepared
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import RowCounts, SchemaId, Tombstone, WriteBase
from omnigraph.types import TableKey


class SchemaWrite(Write):
    """A write that changes tables, not only their rows."""

    def __init__(self, *parts: Any, **facts: Any) -> None:
        super().__init__(*parts, **facts)
        self._schema: SchemaId | None = None
        self._narrows = False
        self._renames: dict[TableKey, TableKey] = {}
        self._new: dict[TableKey, WriteBase] = {}
        self._dropped: dict[TableKey, Tombstone] = {}
        self._files: dict[str, bytes] = {}
        self._reclaim: list[str] = []

    def create_table(self, table_key: TableKey, schema: pa.Schema) -> TableReader:
        """A new, empty table, which nobody sees before the commit."""
        if self._is_taken(table_key):
            raise AlreadyExists("table", table_key)
        location = self._free_location(table_key)
        self._new[table_key] = self._tables.create(table_key, schema, location)
        return self._tables.reader(self._new[table_key])

    def fill_table(self, table_key: TableKey, rows: pa.Table) -> None:
        """The first rows of a table that this write has made. No reader knows the table before the
        commit, so its head may move."""
        staged = self._tables.stage_append(self._new[table_key], rows)
        self._new[table_key] = self._tables.commit_staged(staged, self._operation)

    def count_rows(self, table_key: TableKey, *, inserted: int, updated: int, deleted: int) -> None:
        """What the later steps of a table's write do to its rows."""
        write, counts = self._writes[table_key], RowCounts(inserted, updated, deleted)
        self._writes[table_key] = replace(write, staged=replace(write.staged, counts=counts))

    def abandon(self) -> None:
        """Remove the tables that this write has made and will not commit. Best effort: what stays
        is reclaimed by cleanup."""
        with suppress(OmnigraphError):
            for pin in self._new.values():
                self._tables.remove(pin.location)
        self._new = {}

    def _is_taken(self, table_key: TableKey) -> bool:
        if table_key in self._new or table_key in self._renames.values():
            return True
        return table_key in self._state.pins and table_key not in self._dropped

    def _free_location(self, table_key: TableKey) -> str:
        """A folder no table has or had, on any branch: earlier commits read the old ones."""
        used = self._state.locations | {pin.location for pin in self._state.pins.values()}
        used |= {pin.location for pin in self._new.values()}
        numbered = (table_location(table_key, nth) for nth in count(1))
        return next(n for n in numbered if n not in used and not self._tables.is_taken(n))

    def drop_table(self, table_key: TableKey) -> None:
        """The end of a table. Its versions stay readable at earlier commits. Its head moves all the
        same: a writer that knows only the heads must see that the table it knew is no more."""
        self.evolve_table(table_key, Evolution())
        base = self.base(table_key)
        self._bury(replace(base, version=base.version + 1))

    def _bury(self, pin: WriteBase) -> None:
        owner = owner_of(self._state.branch)
        self._dropped[pin.table_key] = Tombstone(pin.table_key, pin.version, owner, pin.location)

    def evolve_table(self, table_key: TableKey, evolution: Evolution) -> None:
        """Columns that come, go and get other names."""
        self._keep(self._tables.stage_evolve(self._base(table_key), evolution))

    def fill_columns(
        self,
        table_key: TableKey,
        fields: Sequence[pa.Field],
        read: Sequence[str],
        values: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> None:
        """Columns with values made from each row of a table that has rows."""
        self._keep(self._tables.stage_add_columns(self._base(table_key), fields, read, values))

    def rewrite_rows(self, table_key: TableKey, rows: pa.RecordBatchReader) -> None:
        """Other rows instead of all that a table has."""
        base = self._base(table_key)
        fragments = self._tables.write_fragments(base, rows, replacing=True)
        self._keep(self._tables.stage_fragments(base, fragments, replacing=True))

    def rename_table(self, table_key: TableKey, to: TableKey) -> None:
        """The same table under another name. It needs a staged version of its own, so that a name
        that comes back is newer than its end."""
        if table_key not in self._writes:
            self.evolve_table(table_key, Evolution())
        self._bury(self.base(table_key))
        self._renames[table_key] = to

    def reclaim(self, table_key: TableKey) -> None:
        """Remove for good what earlier versions of a table hold, once this is published."""
        self._reclaim.append(self.read(table_key).pin.location)

    def replace_schema(self, schema: SchemaId, *, narrows: bool) -> None:
        """Another schema from this commit on. The commit holds only if no table moved at all. One
        that narrows is not finished by recovery when branches came meanwhile."""
        self._schema = schema
        self._narrows = narrows
        self._relied_on |= self._state.pins

    def replace_file(self, path: str, data: bytes) -> None:
        """A file beside the tables that changes with this commit."""
        self._files[path] = data

    def prepared(self, **conditions: Any) -> Prepared:
        """Everything that was staged, with the tables that come, go and get other names."""
        prepared = super().prepared(**conditions)
        filled = {k: RowCounts(pin.row_count) for k, pin in self._new.items() if pin.row_count}
        intent = replace(
            prepared.intent,
            counts={**prepared.intent.counts, **filled},
            new_tables=tuple(self._new.values()),
            tombstones=tuple(self._dropped.values()),
            schema=self._schema,
            narrows=self._narrows,
            renames=dict(self._renames),
            reclaim=tuple(self._reclaim),
        )
        return replace(prepared, intent=intent, files=dict(self._files))
