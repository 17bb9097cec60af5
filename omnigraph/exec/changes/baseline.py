"""Baseline of the change feed: a full export of one commit, with the cursor to go on from.

Invariant: the records are those of exactly the commit that the cursor stands at, so the records and
every change after the cursor give each later commit. Memory holds a batch of rows at a time.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from omnigraph.errors import BadRequest
from omnigraph.exec.changes.diff import readable
from omnigraph.exec.changes.export import Exporting, ExportResult, form_of
from omnigraph.exec.values.json_text import ndjson_line
from omnigraph.output_file import whole_file
from omnigraph.storage.records import CommitId
from omnigraph.types import DatesForm


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """The whole of one commit, to begin with, and the cursor from which the feed goes on.

    Lazy: rows are read as they are iterated over, a batch at a time. Keep the data
    durably first, then the cursor.

    >>> whole = graph.changes.baseline(kinds=["edge"])
    >>> [record["data"]["id"] for record in whole]
    ['k1']
    """

    commit_id: CommitId
    cursor: str
    _exporting: Exporting = field(compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (self.commit_id, self.cursor, tuple(self._chunks()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Baseline):
            return NotImplemented
        return (self.commit_id, self.cursor) == (other.commit_id, other.cursor)

    def __hash__(self) -> int:
        return hash((self.commit_id, self.cursor))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every entity as a line of an export says it: edges, then nodes, by type and id."""
        for chunk in self._chunks():
            yield from map(orjson.loads, chunk.splitlines())

    def lines(self) -> Iterator[bytes]:
        """The records as NDJSON, a chunk of lines at a time. The last line is the handshake, and
        comes only when all others did."""
        yield from self._chunks()
        yield ndjson_line({"baseline": self.to_json()})

    def to_file(self, path: str | os.PathLike[str], dates: DatesForm = "numbers") -> ExportResult:
        """Write the records without the handshake to a file that appears when it is durable.
        `dates="iso"` writes dates and moments as text."""
        exporting = replace(self._exporting, form=form_of(dates))
        with readable(self.commit_id):
            return exporting.to_file(path)

    def to_json(self) -> dict[str, Any]:
        """The handshake."""
        return {"snapshot_commit_id": self.commit_id, "resume_cursor": self.cursor}

    def _chunks(self) -> Iterator[bytes]:
        with readable(self.commit_id):
            yield from self._exporting.chunks()


@dataclass(frozen=True, slots=True, eq=False)
class CopiedBaseline(Baseline):
    """A baseline that was read: a copy without its graph, as pickling makes it."""

    _lines: tuple[bytes, ...] = field(kw_only=True, repr=False)

    def to_file(self, path: str | os.PathLike[str], dates: DatesForm = "numbers") -> ExportResult:
        """Write the records without the handshake to a file that appears when it is durable."""
        if dates != "numbers":
            raise BadRequest("a copy of a baseline has dates as numbers", "export the commit")
        counts = Counter((("edge" in each), each.get("edge") or each["type"]) for each in self)
        with whole_file(path, "the export") as stream:
            stream.writelines(self._lines)
        nodes = {name: n for (is_edge, name), n in sorted(counts.items()) if not is_edge}
        edges = {name: n for (is_edge, name), n in sorted(counts.items()) if is_edge}
        return ExportResult(nodes, edges, self.commit_id)

    def _chunks(self) -> Iterator[bytes]:
        yield from self._lines


def _copied(commit_id: CommitId, cursor: str, lines: tuple[bytes, ...]) -> CopiedBaseline:
    nothing: Any = None  # the lines are what is read
    return CopiedBaseline(commit_id, cursor, nothing, _lines=lines)
