"""Query results over HTTP: an Arrow stream as a `QueryResult`.

Invariant: columns, rows and their JSON values are those of the same query in the library: the types
of values are read off the Arrow columns, which the server sends as they are; a struct is an object.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pyarrow as pa

from omnigraph.catalog.arrow import scalar_of
from omnigraph.errors import NotServed, StorageFailed
from omnigraph.exec.profile import Profile
from omnigraph.exec.read.object_fold import unfolded
from omnigraph.exec.read.result import QueryResult
from omnigraph.plan.ir import ObjectColumn
from omnigraph.types import Scalar, ValueType

ARROW = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, repr=False, eq=False)
class ServedResult(QueryResult):
    """The rows of one query that a server ran."""

    _name: str = ""
    _url: str = ""

    @property
    def query_name(self) -> str:
        """Which query of the text ran."""
        return self._name

    def explain(self) -> str:
        """The figures of a run stay on the server."""
        raise NotServed(
            "explain() of a result", self._url, "ask `omnigraph explain` for the plan of the query"
        )


def result_of(response: httpx.Response, url: str) -> ServedResult:
    """The rows of an answer."""
    try:
        table = pa.ipc.open_stream(response.content).read_all()
    except pa.ArrowException as cause:
        raise StorageFailed("read rows", f"the answer of {url} is no Arrow stream") from cause
    columns, objects = _plain(table)
    return ServedResult(
        columns=list(table.column_names),
        commit_id=response.headers.get("omnigraph-snapshot-id", ""),
        _types=tuple(_value_type(column.type) for column in columns),
        _values=tuple(columns),
        _length=table.num_rows,
        _plan=None,  # type: ignore[arg-type]  # it stays on the server
        _profile=Profile(),
        _object_columns=tuple(objects),
        _name=response.headers.get("omnigraph-query-name", ""),
        _url=url,
    )


def _plain(table: pa.Table) -> tuple[list[pa.Array], list[ObjectColumn]]:
    """The columns, those of objects one by one."""
    columns, objects = list[pa.Array](), list[ObjectColumn]()
    for name, served in zip(table.column_names, table.columns, strict=True):
        column = _one_array(served)
        if pa.types.is_struct(column.type):
            shape, fields = unfolded(name, len(columns), column)
            objects.append(shape)
            columns += fields
        else:
            columns.append(column)
    return columns, objects


def arrow_batches(chunks: Iterator[bytes]) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow stream while it arrives; an empty one has none."""
    stream = _Arriving(chunks)
    if stream.is_empty:
        return
    try:
        yield from pa.ipc.open_stream(pa.PythonFile(stream, mode="r"))
    except pa.ArrowException as cause:
        raise StorageFailed("read rows", "the answer is no Arrow stream") from cause


class _Arriving(io.RawIOBase):
    """The bytes of an answer as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = next(chunks, b"")

    @property
    def is_empty(self) -> bool:
        return not self._rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; fewer only at the end."""
        parts, missing = [], size
        while missing and self._rest:
            part = self._rest if size < 0 else self._rest[:missing]
            parts.append(part)
            missing -= len(part)
            self._rest = self._rest[len(part) :] or next(self._chunks, b"")
        return b"".join(parts)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)


def _value_type(stored: pa.DataType) -> ValueType:
    if pa.types.is_fixed_size_list(stored):
        return ValueType(Scalar.VECTOR, nullable=True, dimension=stored.list_size)
    is_list = pa.types.is_list(stored)
    scalar = scalar_of(stored.value_type if is_list else stored)
    return ValueType(scalar or Scalar.STRING, nullable=True, is_list=is_list)
