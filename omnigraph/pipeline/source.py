"""Spark data source: `spark.read.format("omnigraph")`, the stream of changes, and ways to write.

Invariant: a DataFrame reads one snapshot, chosen when it is made: Spark pickles the source then,
and every later use of the DataFrame begins from that copy. (With a schema of the caller's own Spark
asks the source nothing before the first action, and that one chooses.) A write is a load: nothing
of it is visible before the one commit that the driver makes of all tasks' results.
"""

import json
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.catalog.model import Type
from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest, NotFound, OmnigraphError, Reclaimed
from omnigraph.exec.changes.export import rows_as_now
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.load.upsert import grouped
from omnigraph.exec.points import Points
from omnigraph.exec.values.sql_bounds import require_bounded_sql
from omnigraph.pipeline.source_changes import ChangesReader, typed_by
from omnigraph.pipeline.source_options import (
    SourceOptions,
    are_of_changes,
    change_options,
    is_of_table,
    read_options,
    table_options,
)
from omnigraph.pipeline.source_write import BatchWriter, StreamWriter
from omnigraph.pipeline.spark_columns import shown
from omnigraph.pipeline.streamed_rows import change_schema
from omnigraph.storage.opening import open_store
from omnigraph.storage.records import Snapshot, TablePin

NAME = "omnigraph"
_TABLE_OPTIONS = "omnigraph"
"""Metadata of the columns of a catalog's table: Spark keeps its options, and gives the source none
of them when the table is read, but the columns as they were when it was made."""


class OmnigraphSource(DataSource):
    """The nodes or the edges of one type."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(table_options(options) if is_of_table(options) else dict(options))
        self._is_table = is_of_table(options)
        self._read: _PinnedRead | None = None
        self._owner: Type | None = None

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return NAME

    def schema(self) -> StructType:
        """The columns of the type, with types that Spark has; or those of changes, which only a
        stream can read."""
        if are_of_changes(self.options):
            return from_arrow_schema(change_schema(self._owner_of_changes()))
        schema = from_arrow_schema(self._pinned().schema)
        if self._is_table:
            for field in schema.fields:
                field.metadata = {_TABLE_OPTIONS: json.dumps(self.options)}
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the snapshot that was pinned when the DataFrame was made."""
        if not self.options and schema.fields:
            self.options = json.loads(schema.fields[0].metadata.get(_TABLE_OPTIONS, "{}"))
        return SnapshotReader(self._pinned(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A load of one DataFrame."""
        return BatchWriter(read_options(self.options), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A load of each micro-batch."""
        return StreamWriter(read_options(self.options), overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The changes of a branch."""
        return ChangesReader(change_options(self.options), self._owner_of_changes())

    def _owner_of_changes(self) -> Type | None:
        """The type of typed changes, as it was when the DataFrame was made."""
        if self._owner is None:
            self._owner = typed_by(change_options(self.options))
        return self._owner

    def _pinned(self) -> "_PinnedRead":
        if self._read is None:
            self._read = pin(read_options(self.options))
        return self._read


@dataclass(frozen=True, slots=True)
class _PinnedRead:
    """A read with everything decided."""

    options: SourceOptions
    owner: Owner
    snapshot: Snapshot
    schema: pa.Schema

    @property
    def pin(self) -> TablePin:
        """The version of the type's table."""
        return self.snapshot.tables[self.owner.table]


def pin(options: SourceOptions) -> _PinnedRead:
    """The snapshot, the type and the columns that the options name."""
    store, schemas = options.open(read_only=True)
    points = Points(store)
    snapshot = points.pinned(options.branch if options.snapshot is None else None, options.snapshot)
    owner = options.owner(schemas.of(snapshot).catalog)
    if owner.table not in snapshot.tables:
        raise NotFound("type", owner.name, "that snapshot does not have it yet")
    schema = shown(owner)
    if options.columns is not None:
        unknown = [name for name in options.columns if name not in schema.names]
        if unknown:
            raise BadRequest(
                f"{owner.name} has no column '{unknown[0]}'", f"use {', '.join(schema.names)}"
            )
        schema = pa.schema([schema.field(name) for name in options.columns])
    if options.where is not None:
        with store.history.lost.reading(snapshot):
            _require_condition(store.reader(snapshot, owner.table), options.where)
    return _PinnedRead(options, owner, snapshot, schema)


def _require_condition(reader: Any, where: str) -> None:
    require_bounded_sql(where, "option where")
    try:
        reader.rows(["id"], filter=where, limit=1)
    except Reclaimed:
        raise
    except OmnigraphError as cause:
        raise BadRequest(
            f"the option where is no condition: {cause}",
            "write SQL over the columns, with names in backticks",
        ) from cause


@dataclass
class FragmentsPartition(InputPartition):
    """Some fragments of the table version."""

    fragments: tuple[int, ...]


class SnapshotReader(DataSourceReader):
    """Reads one table version, a task for some fragments."""

    def __init__(self, read: _PinnedRead, schema: StructType) -> None:
        self._read = read
        # A schema of the caller's own chooses columns; their types stay ours.
        self._names = schema.fieldNames()
        unknown = [name for name in self._names if name not in shown(read.owner).names]
        if unknown:
            raise BadRequest(f"{read.owner.name} has no column '{unknown[0]}'")
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> Sequence[InputPartition]:
        """Partitions follow fragments."""
        store, _ = self._read.options.open(read_only=True)
        with store.history.lost.reading(self._read.snapshot):
            parts = grouped(
                store.tables.reader(self._read.pin).fragments(), COSTS.spark_partition_rows
            )
        return [FragmentsPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition as Arrow batches."""
        assert isinstance(partition, FragmentsPartition)
        options = self._read.options
        store = open_store(options.path, read_only=True, storage_options=options.storage_options)
        with store.history.lost.reading(self._read.snapshot):
            reader = store.tables.reader(self._read.pin)
            for batch in rows_as_now(
                reader,
                self._read.owner,
                self._names,
                filter=options.where,
                fragments=partition.fragments,
            ):
                table = pa.Table.from_batches([batch]).cast(self._schema)
                yield from table.to_batches()
