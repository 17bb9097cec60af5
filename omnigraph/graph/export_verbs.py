"""`Graph.export` and `Graph.export_lines`: one snapshot as files, or as chunks of NDJSON.

Invariant: these methods find the snapshot that is named and ask the export, nothing else.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from omnigraph.arguments import checked
from omnigraph.deferred import deferred
from omnigraph.exec.points import Points
from omnigraph.exec.progress import Meter, Progress
from omnigraph.exec.schemas import Schemas
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.policy.actions import Action
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store
from omnigraph.types import DatesForm, ExportFormat, LocalEngineName

if TYPE_CHECKING:
    import pyarrow as pa

    from omnigraph.catalog.model import Type
    from omnigraph.exec.changes.csv_export import csv_chunks
    from omnigraph.exec.changes.export import (
        Exporting,
        ExportResult,
        choose_owners,
        chosen_format,
        require_one,
        stored_batches,
    )
    from omnigraph.pipeline.export import ExportOrder, export
else:
    Exporting = deferred("omnigraph.exec.changes.export", "Exporting")
    ExportResult = deferred("omnigraph.exec.changes.export", "ExportResult")
    choose_owners = deferred("omnigraph.exec.changes.export", "choose_owners")
    chosen_format = deferred("omnigraph.exec.changes.export", "chosen_format")
    csv_chunks = deferred("omnigraph.exec.changes.csv_export", "csv_chunks")
    require_one = deferred("omnigraph.exec.changes.export", "require_one")
    stored_batches = deferred("omnigraph.exec.changes.export", "stored_batches")
    ExportOrder = deferred("omnigraph.pipeline.export", "ExportOrder")
    export = deferred("omnigraph.pipeline.export", "export")


class ExportVerbs:
    """The verbs of a graph that export."""

    _store: Store
    _schemas: Schemas
    _points: Points
    _guard: PolicyGuard

    @checked
    def export(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        format: ExportFormat | None = None,
        *,
        types: Iterable[str] | None = None,
        branch: str = MAIN,
        snapshot: str | None = None,
        engine: LocalEngineName = "local",
        spark: Any = None,
        progress: Callable[[Progress], None] | None = None,
        dates: DatesForm = "numbers",
    ) -> ExportResult:
        """Write one snapshot as NDJSON that loads again, as Parquet or as CSV; how many rows of
        what. Without a format the ending of the target (`.csv`, `.parquet`) chooses it, and else it
        is NDJSON. `dates="iso"` writes dates and moments of NDJSON as text instead of numbers.

        On Spark, and to `s3://`, a type becomes many files, each in id order.

        >>> graph.export("dump/", "csv", types=["Knows"]).edges
        {'Knows': 1}
        """
        if self._guard.policy is not None:
            snapshot = self._pinned_export(branch, snapshot).commit_id
        chosen = chosen_format(target, format)
        order = ExportOrder(target, chosen, types, branch, snapshot, engine, spark, progress, dates)
        return export(self._store, self._schemas, order)

    @checked
    def export_lines(
        self,
        *,
        types: Iterable[str] | None = None,
        branch: str = MAIN,
        snapshot: str | None = None,
    ) -> Iterator[bytes]:
        """One snapshot as NDJSON that loads again, a chunk of lines at a time as it is read.

        >>> lines = b"".join(graph.export_lines(types=["Knows"]))
        >>> b'"since":-51134' in lines
        True
        """
        pinned = self._pinned_export(branch, snapshot)
        chosen = choose_owners(self._schemas.of(pinned).catalog, types)
        rows = stored_batches(self._store, pinned)
        return Exporting(rows, pinned.commit_id, chosen, Meter()).chunks()

    def _pinned_export(self, branch: str, snapshot: str | None) -> Snapshot:
        """What an export sees, once it is allowed."""
        return self._guard.pinned(branch if snapshot is None else None, snapshot, Action.EXPORT)

    def _exported_rows(
        self, types: Iterable[str] | None, pinned: Snapshot
    ) -> "tuple[Type, Iterator[pa.RecordBatch]]":
        owners = choose_owners(self._schemas.of(pinned).catalog, types)
        require_one(owners)
        return owners[0], stored_batches(self._store, pinned)(owners[0])


def pinned_export(graph: ExportVerbs, branch: str, snapshot: str | None) -> Snapshot:
    """What an export of a graph sees, once it is allowed."""
    return graph._pinned_export(branch, snapshot)


def exported_rows(
    graph: ExportVerbs, types: Iterable[str] | None, pinned: Snapshot
) -> "tuple[Type, Iterator[pa.RecordBatch]]":
    """The one type that is exported, and its rows as a file of columns has them."""
    return graph._exported_rows(types, pinned)


def exported_csv(
    graph: ExportVerbs, types: Iterable[str] | None, pinned: Snapshot
) -> Iterator[bytes]:
    """The rows of the one type that is exported, as CSV, a chunk of lines at a time."""
    owner, batches = graph._exported_rows(types, pinned)
    return (chunk for chunk, _rows in csv_chunks(batches, owner))
