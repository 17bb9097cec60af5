"""Export: one snapshot as NDJSON that loads again, or as Parquet files by type.

Invariant: one snapshot throughout. Edges come before nodes, types in name order, rows in id order,
and every property of every row is there, so that loading the export gives the same graph.
"""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.catalog.arrow import arrow_type, property_columns
from omnigraph.catalog.model import Catalog, EdgeType, Property, Type
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.costs import COSTS
from omnigraph.errors import AlreadyExists, BadRequest
from omnigraph.exec.changes.csv_export import write_csv
from omnigraph.exec.load.type_files import type_file, type_folder
from omnigraph.exec.progress import Meter, Progress
from omnigraph.exec.values.json_text import ndjson_line
from omnigraph.exec.values.scalars import JsonForm
from omnigraph.exec.values.to_json import json_column
from omnigraph.output_file import ending, folder_path, local_path, whole_file, writing
from omnigraph.storage.lance.columns import BLOB_BYTES, BLOB_DESCRIPTIONS
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store
from omnigraph.types import ID_TYPE, Kind, TableKey, counts_of_kind

FORMATS = ("jsonl", "parquet", "csv")
_ENDINGS = {"parquet": "parquet", "csv": "csv"}
Dates = Literal["numbers", "iso"]
"""How NDJSON writes dates and moments: as numbers since the epoch, or as ISO text."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """Rows written by type, in name order, and the commit they were read from.

    >>> graph.export("people.jsonl", types=["Knows"]).total_entities
    1
    """

    nodes: dict[str, int]
    edges: dict[str, int]
    commit_id: str | None

    @property
    def total_entities(self) -> int:
        """Nodes and edges together."""
        return sum(self.nodes.values()) + sum(self.edges.values())


@dataclass(frozen=True, slots=True)
class Exporting:
    """The export of one snapshot."""

    batches_of: "BatchesOf"
    commit_id: str
    owners: tuple[Type, ...]
    meter: Meter
    form: JsonForm = JsonForm.RECORD

    def chunks(self) -> Iterator[bytes]:
        """Everything as NDJSON, a batch of lines at a time."""
        for owner in self.owners:
            for batch in self._batches(owner):
                yield b"".join(lines_of(batch, owner, form=self.form))

    def to_stream(self, stream: IO[bytes]) -> ExportResult:
        """Everything as NDJSON, one type after the other."""
        return self._each(lambda owner: write_lines(stream, self._batches(owner), owner, self.form))

    def to_file(self, path: str | os.PathLike[str]) -> ExportResult:
        """Everything as one NDJSON file, which appears when it is whole."""
        with whole_file(path, "the export") as stream:
            return self.to_stream(stream)

    def to_folder(self, folder: Path, format: str) -> ExportResult:
        """A file of NDJSON or CSV a type, or a folder of Parquet files a type."""
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise AlreadyExists("export", str(folder), "give an empty folder")
        if format == "parquet":
            return self._each(lambda owner: self._parquet(folder, owner))
        return self._each(lambda owner: self._text(folder, owner, format))

    def _text(self, folder: Path, owner: Type, format: str) -> int:
        with (folder / type_file(owner, format)).open("wb") as stream:
            if format == "csv":
                return write_csv(stream, self._batches(owner), owner)
            return write_lines(stream, self._batches(owner), owner, self.form)

    def to_csv(self, stream: IO[bytes]) -> ExportResult:
        """The rows of the one type that is exported, as CSV."""
        return self._each(lambda owner: write_csv(stream, self._batches(owner), owner))

    def _parquet(self, folder: Path, owner: Type) -> int:
        inside = folder / type_folder(owner)
        inside.mkdir(parents=True)
        return _write_parquet(inside, self._batches(owner))

    def _each(self, write: Callable[[Type], int]) -> ExportResult:
        counts = {owner.table: write(owner) for owner in self.owners}
        self.meter.add(0, "done")
        return ExportResult(
            nodes=counts_of_kind(counts, Kind.NODE),
            edges=counts_of_kind(counts, Kind.EDGE),
            commit_id=self.commit_id,
        )

    def _batches(self, owner: Type) -> Iterator[pa.RecordBatch]:
        for batch in self.batches_of(owner):
            yield batch
            self.meter.add(batch.num_rows)


BatchesOf = Callable[[Type], Iterator[pa.RecordBatch]]
"""The rows of a type in id order, with the columns that the type has now, a batch at a time."""


def stored_batches(store: Store, snapshot: Snapshot) -> BatchesOf:
    """The rows that a snapshot has of each type."""

    def batches_of(owner: Type) -> Iterator[pa.RecordBatch]:
        if owner.table not in snapshot.tables:
            return
        reader = store.reader(snapshot, owner.table)
        yield from rows_as_now(reader, owner, order_by=["id"], batch_size=COSTS.export_batch_rows)

    return batches_of


def rows_as_now(
    reader: TableReader,
    owner: Type,
    columns: Sequence[str] | None = None,
    *,
    described: bool = False,
    **options: Any,
) -> Iterator[pa.RecordBatch]:
    """Rows of any version with the columns that the type has now, or some of them; a column that
    the version lacks is null. `options` are those of `TableReader.batches`; blobs are
    bytes, or `described`."""
    names = property_columns(reader.schema)
    ends = ["src", "dst"] if isinstance(owner, EdgeType) else []
    shown = ["id", *ends, *(p.name for p in owner.properties)]
    shown = shown if columns is None else [name for name in columns if name in shown]
    stored = {name: name for name in ("id", *ends)}
    stored |= {p.name: names[p.id] for p in owner.properties if p.id in names}
    kinds = {prop.name: column_type(prop) for prop in owner.properties}
    columns_read = [stored[name] for name in shown if name in stored]
    blobs = BLOB_DESCRIPTIONS if described else BLOB_BYTES
    for batch in reader.batches(columns_read, blob_handling=blobs, **options):
        arrays = [
            batch.column(stored[name]) if name in stored else pa.nulls(batch.num_rows, kinds[name])
            for name in shown
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=shown)


def column_type(prop: Property) -> pa.DataType:
    """The type of a property's column as it leaves the graph."""
    return pa.large_binary() if prop.type.is_blob else arrow_type(prop.type)


def choose_owners(catalog: Catalog, types: Iterable[str] | None) -> tuple[Type, ...]:
    """Edge types, then node types, in name order; only those that are named, if any are."""
    edges = sorted(catalog.edges.values(), key=lambda owner: owner.name)
    nodes = sorted(catalog.nodes.values(), key=lambda owner: owner.name)
    every: tuple[Type, ...] = (*edges, *nodes)
    requested = None if types is None else set(types)
    if not requested:
        return every
    chosen = set[TableKey]()
    for name in sorted(requested):
        owners = catalog.called(name)
        if not owners:
            known = (*(owner.name for owner in every), *catalog.families)
            raise BadRequest(f"unknown export type '{name}'", did_you_mean(name, known))
        chosen |= {owner.table for owner in owners}
    return tuple(owner for owner in every if owner.table in chosen)


# Writing


def write_lines(
    stream: IO[bytes],
    batches: Iterator[pa.RecordBatch],
    owner: Type,
    form: JsonForm = JsonForm.RECORD,
) -> int:
    count = 0
    for batch in batches:
        stream.write(b"".join(lines_of(batch, owner, form=form)))
        count += batch.num_rows
    return count


def lines_of(
    batch: pa.RecordBatch,
    owner: Type,
    names: Sequence[str] | None = None,
    form: JsonForm = JsonForm.RECORD,
) -> Iterator[bytes]:
    """Rows as graph NDJSON, with their ids and properties or only those that are named."""
    known = {"id": ID_TYPE, **{prop.name: prop.type for prop in owner.properties}}
    names = list(known) if names is None else names
    types = [known[name] for name in names]
    columns = [
        json_column(batch.column(name), value_type, form)
        for name, value_type in zip(names, types, strict=True)
    ]
    if isinstance(owner, EdgeType):
        ends = (batch.column("src").to_pylist(), batch.column("dst").to_pylist())
        for source, target, *values in zip(*ends, *columns, strict=True):
            record = {"edge": owner.name, "from": source, "to": target}
            yield ndjson_line(record | {"data": dict(zip(names, values, strict=True))})
        return
    for row in zip(*columns, strict=True):
        record = {"type": owner.name, "data": dict(zip(names, row, strict=True))}
        yield ndjson_line(record)


def _write_parquet(folder: Path, batches: Iterator[pa.RecordBatch]) -> int:
    count, number = 0, 0
    writer: pq.ParquetWriter | None = None
    try:
        for batch in batches:
            if writer is None:
                path = folder / f"part-{number:05}.parquet"
                writer = pq.ParquetWriter(path, batch.schema)
                number += 1
            writer.write_batch(batch)
            count += batch.num_rows
            if count >= number * COSTS.export_file_rows:
                writer.close()
                writer = None
    finally:
        if writer is not None:
            writer.close()
    return count


def export(
    store: Store,
    catalog: Catalog,
    target: str | os.PathLike[str] | IO[bytes],
    snapshot: Snapshot,
    *,
    format: str,
    types: Iterable[str] | None,
    progress: Callable[[Progress], None] | None = None,
    dates: str = "numbers",
) -> ExportResult:
    """Write a snapshot to a file, a folder (its name ends in a slash, or it exists) or a stream."""
    require_export(format, dates)
    owners = choose_owners(catalog, types)
    rows = stored_batches(store, snapshot)
    exporting = Exporting(rows, snapshot.commit_id, owners, Meter(progress), form_of(dates))
    return exported_to(exporting, target, format)


def exported_to(
    exporting: Exporting, target: str | os.PathLike[str] | IO[bytes], format: str
) -> ExportResult:
    """Write to a file, a folder (its name ends in a slash, or it exists) or a stream."""
    owners = exporting.owners
    if not isinstance(target, str | os.PathLike):
        if format == "parquet":
            raise BadRequest("Parquet goes to a folder", "give a path")
        if isinstance(target, io.TextIOBase):
            raise BadRequest("an export is bytes, not text", "open the file with mode 'wb'")
        if format == "csv":
            require_one(owners)
            return exporting.to_csv(target)
        return exporting.to_stream(target)
    path = local_path(target, "the export")
    if format == "parquet" or os.fspath(target).endswith("/") or os.path.isdir(path):
        return exporting.to_folder(folder_path(path, "the export"), format)
    if format == "csv":
        require_one(owners)
        with whole_file(path, "the export") as stream:
            return exporting.to_csv(stream)
    return exporting.to_file(path)


def chosen_format(target: str | os.PathLike[str] | IO[bytes], format: str | None) -> str:
    """The format that is given, else the one that the target's ending names, else NDJSON."""
    return format or _ENDINGS.get(ending(target), "jsonl")


def require_export(format: str, dates: str) -> None:
    """Pass only for a format, and a form of dates, that there is."""
    if format not in FORMATS:
        raise BadRequest(f"unknown export format '{format}'", f"use {' or '.join(FORMATS)}")
    form_of(dates)


def form_of(dates: str) -> JsonForm:
    """How NDJSON writes dates and moments."""
    if dates not in get_args(Dates):
        raise BadRequest(f"unknown form of dates '{dates}'", "use numbers or iso")
    return JsonForm.ISO if dates == "iso" else JsonForm.RECORD


def require_one(owners: Sequence[Type]) -> None:
    """Pass only for the one type that a file of columns has."""
    if len(owners) != 1:
        raise BadRequest(
            "a CSV file has the rows of one type",
            "name it with types=, at a terminal --type, or export to a folder: its name ends in /",
        )
