"""Tables of a graph: created, read, staged and committed one version at a time.

Invariant: no method moves a table head but `commit_staged`. A staged write is committed through the
handle it was staged on, and the version it makes is the staged version + 1. Anything else means
another writer moved the head without holding the table's lock, and raises `CommitRaced` after the
fact: the sidecar is there, and recovery settles it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from omnigraph.errors import BadRequest, NotFound
from omnigraph.storage.lance.columns import KEY
from omnigraph.storage.lance.datasets import (
    OPERATION_PROPERTY,
    CommitRaced,
    Handle,
    create_or_replace,
)
from omnigraph.storage.lance.staging import StagedWrite, TableStaging
from omnigraph.storage.lance.written_files import (
    files_since,
    owe_base,
    refused_files,
    staged_files,
    version_files,
)
from omnigraph.storage.names import table_location
from omnigraph.storage.records import OperationId, TablePin, WriteBase, base_of
from omnigraph.types import TableKey

Pin = TypeVar("Pin", bound=TablePin)


class Tables(TableStaging):
    """Every table of a graph. The verbs that stage are inherited; here are those that make tables
    and advance their heads."""

    def create(
        self, table_key: TableKey, schema: pa.Schema, location: str | None = None
    ) -> WriteBase:
        """A new, empty table with stable row ids and `id` as its key. What a crashed attempt left
        in its place is replaced: no manifest row names it."""
        location = location or table_location(table_key)
        handle = create_or_replace(self._datasets, location, quick(keyed(schema)).empty_table())
        return base_of(TablePin(table_key, location, int(handle.version)), None)

    def is_taken(self, location: str) -> bool:
        """Whether a folder holds a table: of any branch, or what a crash left."""
        try:
            return self._datasets.head(location, None) > 0
        except NotFound:
            return False

    def remove(self, location: str) -> None:
        """Remove the folder of a table that no manifest row names."""
        self._datasets.forget(location)
        self._datasets.objects.delete_prefix(location)

    def commit_staged(
        self, staged: StagedWrite, operation: OperationId, *, seen_at: float | None = None
    ) -> WriteBase:
        """Advance one table head by exactly one version, marked as this operation's. `seen_at` is
        the moment at which the base was seen to be the head, or to be what is published."""
        transaction = staged.transaction
        transaction.transaction_properties = {OPERATION_PROPERTY: operation}
        handle = self._datasets.commit(staged.handle, transaction, seen_at=seen_at)
        folder = self._datasets.folder(staged.base)
        self._datasets.flusher.owe(version_files(folder, transaction, int(handle.version)))
        if handle.version != staged.base.version + 1:
            raise CommitRaced(
                f"{staged.table_key} went from {staged.base.version} to {handle.version} "
                "under this writer's lock"
            )
        return self.pinned(staged.base, handle)

    def named(self, staged: Iterable[StagedWrite]) -> list[str]:
        """The files of staged writes, which must be on disk before heads move. The versions they
        build on are owed too."""
        paths: list[str] = []
        for each in staged:
            owe_base(self._datasets, each.base)
            folder = self._datasets.folder(each.base)
            paths += staged_files(self._datasets, folder, each.handle, each.transaction)
        return paths

    def refused(self, staged: Iterable[StagedWrite]) -> list[str]:
        """The files of staged writes that will never be committed."""
        return [
            path
            for each in staged
            for path in refused_files(
                self._datasets, self._datasets.folder(each.base), each.handle, each.transaction
            )
        ]

    def named_since(self, pin: TablePin, now: TablePin) -> list[str]:
        """The files of the versions after a pin, which Lance committed by itself."""
        return (
            [] if self.is_remote else files_since(self._datasets, pin, self._datasets.handle(now))
        )

    def published(self, staged: StagedWrite, pin: TablePin) -> None:
        """Bring the id index up to date after a write that was published, and maybe folded."""
        if staged.ids is not None:
            handle = self._datasets.handle(pin)
            self.id_index.published(
                staged.base, pin, handle, staged.ids, ordered=staged.ordered, matches=staged.matches
            )

    def pinned(self, base: Pin, handle: Handle) -> Pin:
        """The pin of a handle that follows `base` on the same branch."""
        pin = replace(base, version=int(handle.version), row_count=int(handle.count_rows()))
        self._datasets.keep(pin, handle)
        return pin

    @property
    def is_remote(self) -> bool:
        """Whether every look at a table is a call to an object store."""
        return self._datasets.is_remote

    def is_strict(self, staged: StagedWrite, seen_at: float) -> bool:
        """Whether the commit of a staged write fails by itself when the head is not its base."""
        return self._datasets.strict.serves(staged.transaction, seen_at)

    def head(self, pin: TablePin) -> int:
        """The table head on the branch a pin belongs to."""
        return self._datasets.latest_version(pin.location, pin.branch, pin.version)


def keyed(schema: pa.Schema) -> pa.Schema:
    """The schema with `id` declared as Lance's unenforced primary key."""
    index = schema.get_field_index(KEY)
    if index < 0:
        raise BadRequest("a table needs an `id` column")
    field = schema.field(index).with_nullable(False)
    metadata = {**(field.metadata or {}), b"lance-schema:unenforced-primary-key": b"true"}
    return schema.set(index, field.with_metadata(metadata))


def quick(schema: pa.Schema) -> pa.Schema:
    """The schema with texts in a compression that needs no training: that of Lance's own choice
    takes longer than all else in a write of a few thousand rows, and saves a twentieth more."""
    for index, field in enumerate(schema):
        if pa.types.is_string(field.type):
            metadata = {b"lance-encoding:compression": b"lz4", **(field.metadata or {})}
            schema = schema.set(index, field.with_metadata(metadata))
    return schema
