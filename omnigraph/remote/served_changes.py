"""Diffs, baselines and blobs over HTTP: read when they are asked for, as in the library.

Invariant: a listing is read a page at a time, each page from the commits of the first. A baseline
is copied whole to a temporary file: its cursor is worth something only with all of its data.
"""

import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import orjson

from omnigraph.errors import BadRequest, OmnigraphError, StorageFailed
from omnigraph.exec.changes.baseline import Baseline
from omnigraph.exec.changes.blobs import BlobCell
from omnigraph.exec.changes.diff import Change, Changes, Page, Position
from omnigraph.exec.changes.export import ExportResult, form_of
from omnigraph.exec.changes.page_sizes import PAGE_CHANGES
from omnigraph.exec.schemas import Accepted
from omnigraph.output_file import whole_file
from omnigraph.remote.from_wire import Document, changes_of, schema_steps_of
from omnigraph.remote.http_connection import HttpConnection, Params, given
from omnigraph.remote.iso_lines import iso_lines
from omnigraph.remote.line_counts import LineCounts
from omnigraph.storage.records import CommitId
from omnigraph.types import DatesForm, SchemaStep


class ServedChanges(Changes):
    """The changes between two commits, a page at a time."""

    def __init__(
        self,
        http: HttpConnection,
        path: str,
        params: Params,
        between: Callable[[Document], tuple[str, str]],
    ) -> None:
        self._http = http
        self._path = path
        self._params = list(params)
        self._ends = between
        self._first = self._fetched(PAGE_CHANGES, None)

    @property
    def between(self) -> tuple[str, str]:
        """The two commits."""
        return self._ends(self._first)

    @property
    def schema_steps(self) -> tuple[SchemaStep, ...]:
        """Differences of the two schemas."""
        return schema_steps_of(self._first.get("cause", self._first))

    def page(self, limit: int = PAGE_CHANGES, token: str | None = None) -> Page:
        """At most `limit` changes; a page also ends when it has grown large."""
        is_first = limit == PAGE_CHANGES and token is None
        document = self._first if is_first else self._fetched(limit, token)
        return Page(changes_of(document), document.get("next_page_token"))

    def beyond(self, start: Position | None, first_rows: int | None = None) -> Iterator[Change]:
        """The changes after a position, in order; the server knows positions by its tokens, so
        only the beginning can be asked for. How many rows are read at once is its own matter."""
        if start is not None:
            raise BadRequest("a served listing goes on by page tokens", "use page()")
        page = self.page()
        yield from page.changes
        while page.next_page_token is not None:
            page = self.page(token=page.next_page_token)
            yield from page.changes

    def _fetched(self, limit: int, token: str | None) -> Any:
        own = given(limit=limit, page_token=token)
        return self._http.document(self._path, [*self._params, *own])


@dataclass(frozen=True, slots=True, eq=False)
class ServedBaseline(Baseline):
    """The whole of one commit, copied to a file of its own, and the cursor that goes on."""

    _copy: "_TemporaryCopy" = field(kw_only=True, repr=False)
    _schema_at: Callable[[str], Accepted] = field(kw_only=True, repr=False)

    def to_file(self, path: str | os.PathLike[str], dates: DatesForm = "numbers") -> ExportResult:
        """Write the records without the handshake to a file that appears when it is durable."""
        form_of(dates)
        counts = LineCounts()
        chunks = self._chunks()
        if dates == "iso":
            chunks = iso_lines(chunks, self._schema_at(self.commit_id).catalog)
        with whole_file(path, "the export") as stream:
            for chunk in chunks:
                counts.see(chunk)
                stream.write(chunk)
        return counts.result(self.commit_id)

    def _chunks(self) -> Iterator[bytes]:
        file = self._copy.file
        file.seek(0)
        yield from iter(lambda: file.read(1 << 20), b"")


class _TemporaryCopy:
    """A temporary file that is closed when nobody refers to it any more."""

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed below
        weakref.finalize(self, self.file.close)


def baseline_of(
    http: HttpConnection, body: Document, schema_at: Callable[[str], Accepted]
) -> ServedBaseline:
    """The baseline that a server sends, once all of it is here."""
    copy = _TemporaryCopy()
    last = b""
    with http.stream("/changes/baseline", body) as response:
        for chunk in response.iter_bytes():
            lines = last + chunk
            end = lines.rfind(b"\n", 0, len(lines) - 1) + 1  # the last line may be the handshake
            copy.file.write(lines[:end])
            last = lines[end:]
    try:
        handshake = orjson.loads(last)["baseline"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as cause:
        raise StorageFailed("read a baseline", "the answer ended before its last line") from cause
    commit, cursor = handshake["snapshot_commit_id"], handshake["resume_cursor"]
    return ServedBaseline(
        CommitId(commit),
        cursor,
        None,  # type: ignore[arg-type]  # the copy is what is read
        _copy=copy,
        _schema_at=schema_at,
    )


@dataclass(frozen=True, slots=True, eq=False)
class ServedBlob(BlobCell):
    """A blob whose bytes a server has."""

    _read: Callable[[dict[str, str]], bytes] = field(kw_only=True, repr=False)

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes from an offset on, at most `length` of them, up to the end of the blob."""
        self.require_range(offset, length)
        size = self.size or 0
        end = size if length is None else min(offset + length, size)
        if offset >= end:
            return b""
        return self._read({"Range": f"bytes={offset}-{end - 1}", "If-Match": self.etag or "*"})


def blob_of(http: HttpConnection, params: Params) -> ServedBlob:
    """The blob that query parameters name; its bytes are not read yet."""
    try:
        head = http.head("/blob", params)
    except OmnigraphError:
        http.get("/blob", params, Range="bytes=0-0")  # whose refusal has a body
        raise
    uri = head.headers.get("location")
    commit = head.headers.get("omnigraph-snapshot-id", "")
    # The same commit from now on, whatever becomes of the branch.
    names = [pair for pair in params if pair[0] not in ("branch", "snapshot")]
    pinned = [*names, ("snapshot", commit)] if commit else list(params)
    return ServedBlob(
        size=None if uri else int(head.headers.get("content-length", 0)),
        etag=None if uri else head.headers.get("etag"),
        uri=uri,
        commit_id=commit,
        _reading=None,  # type: ignore[arg-type]
        _reader=None,  # type: ignore[arg-type]
        _row_id=0,
        _column="",
        _read=lambda headers: http.get("/blob", pinned, **headers).content,
    )
