"""Write: one write under preparation, from its snapshot to the staged tables its commit takes.

A writer begins a `Write`, reads through it, stages at most one change a table and hands it to
`Store.commit`. Reading a table through the write makes its version a condition of the commit.

Invariant: nothing durable happens here, except forks and files nothing refers to.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest, NotFound, PreconditionFailed, unpublished
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.staging import Fragments, StagedWrite, TableStaging
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.locks.turns import Turn
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.state import State, crowd_lock, publish_lock
from omnigraph.storage.names import lock_name
from omnigraph.storage.protocol.commit import Prepared, Step, TableWrite
from omnigraph.storage.protocol.intent import Intent, WriterKind
from omnigraph.storage.records import (
    CommitFacts,
    CommitId,
    EmbeddedBy,
    EmbeddedChange,
    OperationId,
    Origin,
    TablePin,
    WriteBase,
    facts_of,
)
from omnigraph.types import TableKey

if TYPE_CHECKING:
    from ulid import ULID
else:
    ULID = deferred("ulid", "ULID")


class Write:
    """A write under preparation. Not shared between threads."""

    def __init__(
        self,
        state: State,
        tables: Tables,
        branches: Branches,
        facts: CommitFacts,
        *,
        kind: WriterKind,
        turn: Turn,
    ) -> None:
        self._state = state
        self._tables = tables
        self._branches = branches
        self._facts = facts
        self._kind = kind
        self.turn = turn
        self._operation = OperationId(str(ULID()))
        self._bases: dict[TableKey, WriteBase] = {}
        self._relied_on: dict[TableKey, TablePin] = {}
        self._writes: dict[TableKey, TableWrite] = {}
        self._embedded: dict[str, EmbeddedBy | None] = {}

    @property
    def operation_id(self) -> OperationId:
        return self._operation

    @property
    def state(self) -> State:
        """The branch as this write sees it."""
        return self._state

    def require_head(self, head: CommitId, tables: Iterable[TableKey]) -> None:
        """Raise `PreconditionFailed` if the branch has moved on from a head that this attempt was
        decided on. The next one keeps the branch, and the tables to write, where they are from
        before it decides."""
        if self._state.head != head:
            branch = self._state.branch
            self.turn.takes(lock_name(key, branch) for key in tables)
            self.turn.takes((publish_lock(branch), crowd_lock(branch)))
            raise PreconditionFailed(branch, head, self._state.head)

    @unpublished()
    def read(self, table_key: TableKey) -> TableReader:
        """The table at this write's base. The commit holds only if it stays at that version."""
        pin = self._state.pins.get(table_key)
        if pin is None:
            raise NotFound("table", table_key)
        self._relied_on[table_key] = pin
        return self._tables.reader(pin)

    @unpublished()
    def append(self, table_key: TableKey, rows: pa.Table) -> None:
        """Stage rows to add."""
        self._keep(self._tables.stage_append(self._base(table_key), rows), is_own=True)

    @unpublished()
    def base(self, table_key: TableKey) -> WriteBase:
        """Return the version of a table that this write builds on, in the folder of its branch."""
        if table_key not in self._bases:
            self._bases[table_key] = self._branches.fork(self._state, table_key, self.turn.kept)
        return self._bases[table_key]

    @unpublished()
    def fragments(
        self, table_key: TableKey, fragments: Fragments, *, replacing: bool = False
    ) -> None:
        """Stage rows that `Tables.write_fragments` wrote beside the table."""
        base = self._base(table_key)
        self._keep(self._tables.stage_fragments(base, fragments, replacing=replacing))

    @unpublished()
    def upsert(self, table_key: TableKey, rows: pa.Table | pa.RecordBatchReader) -> None:
        """Stage rows to add, or to replace those of the same id."""
        self._keep(self._tables.stage_merge_insert(self._base(table_key), rows), is_own=True)

    @unpublished()
    def patch(
        self,
        table_key: TableKey,
        *,
        removed: pa.Array,
        added: pa.Table,
        updated: int,
        addresses: pa.Array | None = None,
    ) -> None:
        """Stage the removal of rows known by row id, and new rows, in one version; `updated` of the
        new rows replace removed ones. Addresses are those of the removed rows in the version that
        this write builds on."""
        staged = self._tables.stage_patch(
            self._base(table_key),
            removed=removed,
            added=added,
            updated=updated,
            addresses=addresses,
        )
        self._keep(staged, is_own=True)

    @unpublished()
    def replace(self, table_key: TableKey, *, addresses: pa.Array, added: pa.Table) -> None:
        """Stage the removal of rows known by their address in `read`, and new rows, in one
        version."""
        base = self._base(table_key)
        staged = self._tables.stage_replace(base, addresses=addresses, added=added)
        self._keep(staged, is_own=True)

    @unpublished()
    def replace_rows(
        self,
        table_key: TableKey,
        *,
        left: Fragments,
        gone: Sequence[int],
        added: Fragments,
        updated: int,
    ) -> None:
        """Stage rows that `Tables.without_rows` took out and those that take their places, of which
        `updated` replace one that was taken out."""
        base = self._base(table_key)
        staged = self._tables.stage_update(base, left=left, gone=gone, added=added, updated=updated)
        self._keep(staged)

    @unpublished()
    def create_indexes(self, table_key: TableKey, requests: Sequence[IndexRequest]) -> None:
        """Stage indexes over every row."""
        self._keep(self._tables.stage_create_indexes(self._base(table_key), requests))

    def upkeep(self, staged: StagedWrite, *steps: Step) -> None:
        """A staged version of a table, and what Lance commits by itself after it."""
        self._writes[staged.table_key] = TableWrite(staged, steps)

    def then(
        self, table_key: TableKey, step: Callable[[TableStaging, WriteBase], StagedWrite | None]
    ) -> None:
        """A further version of a table that has a staged one: what a branch merge needs."""
        write = self._writes[table_key]
        bound: Step = lambda pin: step(self._tables, pin)  # noqa: E731
        self._writes[table_key] = replace(write, then=(*write.then, bound))

    def embeds(self, models: EmbeddedChange) -> None:
        """Record the models of the vectors that this write stages."""
        self._embedded |= models

    def _base(self, table_key: TableKey) -> WriteBase:
        if table_key in self._writes:
            raise BadRequest(f"{table_key} has a staged write", "fold the rows of a table into one")
        return self.base(table_key)

    def _keep(self, staged: StagedWrite, *, is_own: bool = False) -> None:
        self._writes[staged.table_key] = TableWrite(staged, is_own=is_own)

    def prepared(
        self,
        *,
        expected_head: CommitId | None = None,
        merged_parent: CommitId | None = None,
        merged_from: Origin | None = None,
        mark: str | None = None,
    ) -> Prepared:
        """Everything that was staged, with the conditions of its commit."""
        counts = {key: self._writes[key].staged.counts for key in sorted(self._writes)}
        recorded = self._state.embedded
        facts = replace(
            self._facts,
            embedded={k: by for k, by in self._embedded.items() if recorded.get(k) != by},
            merged_parent=merged_parent,
            merged_from=merged_from,
            mark=mark,
            counts={key: count for key, count in counts.items() if count},
        )
        return Prepared(
            Intent(
                operation_id=self._operation,
                commit_id=CommitId(str(ULID())),
                rollback_id=CommitId(str(ULID())),
                kind=self._kind,
                branch=self._state.branch,
                branch_identity=self._state.identity,
                **facts_of(facts),
            ),
            writes=tuple(self._writes[key] for key in sorted(self._writes)),
            expected_head=expected_head,
            relied_on=dict(self._relied_on),
            base_schema=self._state.schema,
            forks=any(self._state.pins.get(key) != base for key, base in self._bases.items()),
        )
