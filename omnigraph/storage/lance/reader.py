"""Table reader: scans, point reads and blob payloads of one table version, as Arrow.

Invariant: every read is of the one version the reader was made for, and a Lance handle never leaves
it. What `arriving` raises when it is called with the bytes of a batch ends the read.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import FragmentMetadata
from lance.query import MatchQuery

from omnigraph.costs import COSTS
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.derived.node_file import NO_ROW
from omnigraph.storage.lance import index_segments
from omnigraph.storage.lance.columns import (
    ADDRESS,
    BLOB_BYTES,
    KEY,
    ROW_ID,
    among_row_ids,
    blob_cells,
    is_blob,
    updated_after,
)
from omnigraph.storage.lance.datasets import Datasets, Handle, files_of
from omnigraph.storage.lance.direct_read import DirectReader, RowIds
from omnigraph.storage.lance.id_index import IdIndex
from omnigraph.storage.lance.index_segments import IndexFacts, IndexLag
from omnigraph.storage.lance.ordered_ids import OrderedIds
from omnigraph.storage.lance.recent_rows import RecentRows
from omnigraph.storage.lance.row_cache import RowCache
from omnigraph.storage.lance.rowids import rows_by_id
from omnigraph.storage.records import TablePin

Arriving = Callable[[int], None]
"""Called with the bytes of each batch that is read and kept, or 0 if it may be dropped again."""


def uncounted(bytes_read: int) -> None:
    """The default: reads are not counted."""


class RowFinder(Protocol):
    """Row ids by key, from derived files; None when there is no file that tells."""

    def row_ids(self, pin: TablePin, ids: pa.Array) -> np.ndarray | None:
        """The row id of each of these node ids, `NO_ROW` where a version has none."""
        ...

    def edge_row_ids(self, pin: TablePin, end: str, ids: pa.Array) -> np.ndarray | None:
        """The row ids of the edges that have one of these nodes at an end."""
        ...


@dataclass(frozen=True)
class TableReader:
    """One table as one snapshot sees it. Arrow in and out, never the handle."""

    pin: TablePin
    _handle: Handle
    _datasets: Datasets
    _id_index: IdIndex
    _row_cache: RowCache
    recent_rows: RecentRows
    _ordered_ids: OrderedIds
    _direct: DirectReader
    _arriving: Arriving = uncounted
    finder: RowFinder | None = None

    def lacks(self, ids: pa.Array) -> bool:
        """Whether a derived file or the id index proves that none of these ids is here; False when
        neither can."""
        row_ids = None if self.finder is None else self.finder.row_ids(self.pin, ids)
        if row_ids is not None:
            return bool((row_ids == NO_ROW).all())
        return self._id_index.lacks(self.pin, self._handle, ids)

    def ordered_row(self, entity: str) -> int | None:
        """The row id of an id in a large table, where ids ascend; None says nothing."""
        if self.pin.row_count < COSTS.id_search_rows_min:
            return None
        with self._datasets.lance_call("ordered_row", self.pin.table_key):
            return self._ordered_ids.find(self._handle, entity)

    @cached_property
    def schema(self) -> pa.Schema:
        return self._handle.schema

    @property
    def blob_columns(self) -> frozenset[str]:
        """Columns whose bytes lie apart from the rows."""
        return frozenset(field.name for field in self.schema if is_blob(field))

    def indexes(self) -> tuple[IndexFacts, ...]:
        """Every index this version has."""
        return index_segments.facts(self._handle)

    def fragment_count(self) -> int:
        """How many fragments this version has: every read pays for each."""
        return len(self._handle.get_fragments())

    def count(self, filter: str | None = None) -> int:
        """How many rows match."""
        with self._datasets.lance_call("count", self.pin.table_key):
            return int(self._handle.count_rows(filter))

    # Scans

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        filter: str | None = None,
        limit: int | None = None,
        fragments: Sequence[int] | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Stream the matching rows, of some fragments alone if they are named; `options` are the
        scanner's own (nearest, full text, …)."""
        names = None if columns is None else list(columns)
        with self._datasets.lance_call("scan", self.pin.table_key):
            if fragments is not None:
                options["fragments"] = [self._handle.get_fragment(each) for each in fragments]
            scanner = self._handle.scanner(columns=names, filter=filter, limit=limit, **options)
            for batch in scanner.to_batches():
                self._arriving(0)  # the consumer may drop it before the next one
                yield batch

    def rows(
        self,
        columns: Sequence[str] | None = None,
        *,
        filter: str | None = None,
        limit: int | None = None,
        fragments: Sequence[int] | None = None,
        **options: Any,
    ) -> pa.Table:
        """The matching rows at once."""
        names = None if columns is None else list(columns)
        with self._datasets.lance_call("scan", self.pin.table_key):
            if fragments is not None:
                options["fragments"] = [self._handle.get_fragment(each) for each in fragments]
            scanner = self._handle.scanner(columns=names, filter=filter, limit=limit, **options)
            batches = []
            stream = scanner.to_reader()
            for batch in stream:
                self._arriving(batch.nbytes)
                batches.append(batch)
            return pa.Table.from_batches(batches, stream.schema)

    def ids_with_any_word(self, column: str, words: Sequence[str]) -> pa.Array:
        """Return the ids of the rows whose text has a term of these words, by the text index.

        Rows that the index does not cover are compared one by one. A word is letters and digits:
        Lance would read quotes in a plain text query as a phrase, which needs another index.
        """
        query = MatchQuery(" ".join(words), column)
        return self.rows([KEY, "_score"], full_text_query=query)[KEY].combine_chunks()

    def written_since(self, version: int, columns: Sequence[str]) -> pa.Table:
        """The rows written after a version of this table's branch, with their row ids."""
        return self.rows(columns, filter=updated_after(version), with_row_id=True)

    def row_ids(self, filter: str | None = None) -> pa.ChunkedArray:
        """The row ids of the matching rows, in the order of the table."""
        return self.rows([], filter=filter, with_row_id=True)[ROW_ID]

    def has_value(self, column: str) -> pa.Array:
        """Whether each row has a value in a column, in the order of the table. No value is read,
        so it is cheap for blobs too."""
        present = self.row_ids(f"`{column}` IS NOT NULL").combine_chunks()
        return pc.is_in(self.row_ids().combine_chunks(), value_set=present)

    def fragments(self) -> dict[int, int]:
        """The fragments of this version, each with the number of its rows."""
        with self._datasets.lance_call("fragments", self.pin.table_key):
            return {each.fragment_id: each.count_rows() for each in self._handle.get_fragments()}

    def consists_of(self, fragments: Sequence[FragmentMetadata]) -> bool:
        """Whether this version has the rows of these fragments in their order and no others."""
        with self._datasets.lance_call("fragments", self.pin.table_key):
            own = self._handle.get_fragments()
            if any(each.deletion_file() is not None for each in own):
                return False
            written = [tuple(file._path for file in each.files) for each in fragments]
            return [files_of(each) for each in own] == written

    def addresses(self, fragments: Sequence[int]) -> pa.Table:
        """The ids of some fragments' rows, each with its row id and its address."""
        if not fragments:
            kinds = [(KEY, pa.string()), (ROW_ID, pa.uint64()), (ADDRESS, pa.uint64())]
            return pa.schema(kinds).empty_table()
        return self.rows([KEY], fragments=fragments, with_row_id=True, with_row_address=True)

    # Point reads

    def by_row_id(self, row_ids: pa.Array, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of these row ids in their order; a blob is what describes it, not its bytes."""
        names = self.schema.names if columns is None else columns
        cached = self._row_cache.find(self.pin, row_ids, names)
        if cached is not None:
            return cached
        with self._datasets.lance_call("rows_by_id", self.pin.table_key):
            return rows_by_id(self._handle, row_ids, names)

    def among_row_ids(self, row_ids: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Those of the rows of these row ids that this version has, in any order, with their row
        ids."""
        filter = among_row_ids(row_ids.to_pylist())
        return self.rows(columns, filter=filter, with_row_id=True)

    def payloads(self, row_ids: pa.Array, column: str) -> pa.Array:
        """The bytes of a blob column for these rows, in their order."""
        with self._datasets.lance_call("payloads", self.pin.table_key):
            rows = rows_by_id(self._handle, row_ids, [column], blob_handling=BLOB_BYTES)
        return rows[column].combine_chunks()

    def stageable(self, row_ids: pa.Array) -> pa.Table:
        """The rows of these row ids as a write takes them: blobs with their bytes, or their URI."""
        rows = self.by_row_id(row_ids)
        columns = [
            self._blob_cells(row_ids, field, values) if is_blob(field) else values
            for field, values in zip(self.schema, rows.columns, strict=True)
        ]
        fields = [
            declared if is_blob(declared) else read
            for declared, read in zip(self.schema, rows.schema, strict=True)
        ]
        return pa.table(columns, schema=pa.schema(fields)).cast(self.schema)

    def _blob_cells(
        self, row_ids: pa.Array, field: pa.Field, described: pa.ChunkedArray
    ) -> pa.Array:
        def payloads(mask: pa.Array) -> pa.Array:
            return self.payloads(row_ids.filter(mask), field.name)

        return blob_cells(field, described.combine_chunks(), payloads)


def index_lag(reader: TableReader, name: str) -> IndexLag:
    """How far an index of a version is behind its rows."""
    with reader._datasets.lance_call("index_lag", reader.pin.table_key):
        return index_segments.lag(reader._handle, name)


def present_rows(reader: TableReader, row_ids: pa.Array, columns: Sequence[str]) -> pa.Table:
    """The rows of row ids that the caller knows to be in a version, in any order."""
    with reader._datasets.lance_call("rows_by_id", reader.pin.table_key):
        return reader._direct.present(reader._handle, row_ids, columns)


def columns_in_files(
    reader: TableReader, columns: Sequence[str]
) -> Iterator[tuple[RowIds, pa.RecordBatchReader]] | None:
    """Columns of all rows as the data files have them, those of deleted rows too, file by file with
    the row ids; None when that cannot be done. `UnreadableFile` while they are read says the
    same."""
    return reader._direct.whole(reader._handle, columns)
