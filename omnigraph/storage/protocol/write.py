"""One write, from its snapshot to its commit: what every writer builds on.

A writer begins a `Write`, reads through it, stages at most one change a table and commits. Reading
a table through the write makes its version a condition of the commit.

Invariant: nothing durable happens before `commit`, except forks and files nothing refers to.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import pyarrow as pa
from ulid import ULID

from omnigraph.errors import AlreadyExists, BadRequest, NotFound
from omnigraph.storage.lance.evolution import Evolution
from omnigraph.storage.lance.indexing import IndexRequest
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.staging import Fragments, StagedWrite
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.manifest import State
from omnigraph.storage.names import owner_of, table_location
from omnigraph.storage.protocol.commit import Prepared, Step, TableWrite
from omnigraph.storage.records import (
    Commit,
    CommitId,
    OperationId,
    Origin,
    SchemaId,
    TablePin,
    Tombstone,
)
from omnigraph.types import TableKey


class Write:
    """A write under preparation. Not shared between threads."""

    def __init__(
        self,
        state: State,
        schema: SchemaId | None,
        tables: Tables,
        branches: Branches,
        finish: Callable[[Prepared], Commit],
        *,
        kind: str,
        actor: str | None,
    ) -> None:
        self._state = state
        self._base_schema = schema
        self._schema: SchemaId | None = None
        self._renames: dict[TableKey, TableKey] = {}
        self._tables = tables
        self._branches = branches
        self._finish = finish
        self._kind = kind
        self._actor = actor
        self._operation = OperationId(str(ULID()))
        self._bases: dict[TableKey, TablePin] = {}
        self._relied_on: dict[TableKey, TablePin] = {}
        self._writes: dict[TableKey, TableWrite] = {}
        self._new: dict[TableKey, TablePin] = {}
        self._dropped: dict[TableKey, Tombstone] = {}
        self._files: dict[str, bytes] = {}
        self._reclaim: list[str] = []

    @property
    def operation_id(self) -> OperationId:
        return self._operation

    @property
    def state(self) -> State:
        """The branch as this write sees it."""
        return self._state

    def read(self, table_key: TableKey) -> TableReader:
        """The table at this write's base. The commit holds only if it stays at that version."""
        pin = self._state.pins.get(table_key)
        if pin is None:
            raise NotFound("table", table_key)
        self._relied_on[table_key] = pin
        return self._tables.reader(pin)

    def append(self, table_key: TableKey, rows: pa.Table) -> None:
        """Stage rows to add."""
        self._keep(self._tables.stage_append(self._base(table_key), rows))

    def base(self, table_key: TableKey) -> TablePin:
        """The version of a table that this write builds on, on the write's own branch."""
        if table_key not in self._bases:
            self._bases[table_key] = self._branches.fork(self._state, table_key)
        return self._bases[table_key]

    def fragments(
        self, table_key: TableKey, fragments: Fragments, *, replacing: bool = False
    ) -> None:
        """Stage rows that `Tables.write_fragments` wrote beside the table."""
        base = self._base(table_key)
        self._keep(self._tables.stage_fragments(base, fragments, replacing=replacing))

    def upsert(self, table_key: TableKey, rows: pa.Table | pa.RecordBatchReader) -> None:
        """Stage rows to add, or to replace those of the same id."""
        self._keep(self._tables.stage_merge_insert(self._base(table_key), rows))

    def patch(
        self,
        table_key: TableKey,
        *,
        removed: pa.Array,
        added: pa.Table,
        addresses: pa.Array | None = None,
    ) -> None:
        """Stage the removal of rows known by row id, and new rows, in one version. Addresses are
        those of the removed rows in the version that this write builds on."""
        base = self._base(table_key)
        staged = self._tables.stage_patch(base, removed=removed, added=added, addresses=addresses)
        self._keep(staged)

    def replace(self, table_key: TableKey, *, at: pa.Array, added: pa.Table) -> None:
        """Stage the removal of rows known by their address in `read`, and new rows, in one
        version."""
        self._keep(self._tables.stage_replace(self._base(table_key), addresses=at, added=added))

    def replace_rows(
        self, table_key: TableKey, *, left: Fragments, gone: Sequence[int], added: Fragments
    ) -> None:
        """Stage rows that `Tables.without_rows` took out and those that take their places."""
        base = self._base(table_key)
        self._keep(self._tables.stage_update(base, left=left, gone=gone, added=added))

    def create_indexes(self, table_key: TableKey, requests: Sequence[IndexRequest]) -> None:
        """Stage indexes over every row."""
        self._keep(self._tables.stage_create_indexes(self._base(table_key), requests))

    def upkeep(self, staged: StagedWrite, *steps: Step) -> None:
        """A staged version of a table, and what Lance commits by itself after it."""
        self._writes[staged.table_key] = TableWrite(staged, steps)

    def then(
        self, table_key: TableKey, step: Callable[[Tables, TablePin], StagedWrite | None]
    ) -> None:
        """A further version of a table that has a staged one: what a branch merge needs."""
        write = self._writes[table_key]
        bound: Step = lambda pin: step(self._tables, pin)  # noqa: E731
        self._writes[table_key] = TableWrite(write.staged, (*write.then, bound))

    def create_table(self, table_key: TableKey, schema: pa.Schema) -> None:
        """A new, empty table, which nobody sees before the commit."""
        if self._is_taken(table_key):
            raise AlreadyExists("table", table_key)
        location = self._free_location(table_key)
        self._new[table_key] = self._tables.create(table_key, schema, location)

    def _is_taken(self, table_key: TableKey) -> bool:
        if table_key in self._new or table_key in self._renames.values():
            return True
        return table_key in self._state.pins and table_key not in self._dropped

    def _free_location(self, table_key: TableKey) -> str:
        """A folder no table has or had: earlier commits read the old ones."""
        used = self._state.locations | {pin.location for pin in self._state.pins.values()}
        found = (table_location(table_key, nth) for nth in count(1))
        return next(location for location in found if location not in used)

    def drop_table(self, table_key: TableKey) -> None:
        """The end of a table. Its versions stay readable at earlier commits. Its head moves all the
        same: a writer that knows only the heads must see that the table it knew is no more."""
        self.evolve_table(table_key, Evolution())
        base = self.base(table_key)
        self._bury(replace(base, version=base.version + 1))

    def _bury(self, pin: TablePin) -> None:
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

    def replace_schema(self, schema: SchemaId) -> None:
        """Another schema from this commit on. The commit holds only if no table moved at all."""
        self._schema = schema
        self._relied_on |= self._state.pins

    def replace_file(self, path: str, data: bytes) -> None:
        """A file beside the tables that changes with this commit."""
        self._files[path] = data

    def commit(
        self,
        *,
        expected_head: CommitId | None = None,
        merged_parent: CommitId | None = None,
        merged_from: Origin | None = None,
        mark: str | None = None,
    ) -> Commit:
        """Publish everything staged as one commit; `AlreadyMarked` if one carries the mark."""
        return self._finish(
            Prepared(
                operation_id=self._operation,
                commit_id=CommitId(str(ULID())),
                rollback_id=CommitId(str(ULID())),
                kind=self._kind,
                branch=self._state.branch,
                branch_identity=self._state.identity,
                writes=tuple(self._writes[key] for key in sorted(self._writes)),
                actor=self._actor,
                merged_parent=merged_parent,
                merged_from=merged_from,
                expected_head=expected_head,
                relied_on=dict(self._relied_on),
                new_tables=tuple(self._new.values()),
                tombstones=tuple(self._dropped.values()),
                files=dict(self._files),
                base_schema=self._base_schema,
                schema=self._schema,
                renames=dict(self._renames),
                reclaim=tuple(self._reclaim),
                mark=mark,
            )
        )

    def _base(self, table_key: TableKey) -> TablePin:
        if table_key in self._writes:
            raise BadRequest(f"{table_key} has a staged write", "fold the rows of a table into one")
        return self.base(table_key)

    def _keep(self, staged: StagedWrite) -> None:
        self._writes[staged.table_key] = TableWrite(staged)
