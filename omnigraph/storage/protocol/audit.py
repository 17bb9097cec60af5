"""The recovery audit: one row for each settled sidecar, in `_graph_commit_recoveries.lance`.

Invariant: an operation has at most one row. Its recoverer holds the operation's locks, so looking
before appending is enough.
"""

import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.storage import failpoints
from omnigraph.storage.lance.datasets import CommitRaced, Datasets, create_or_replace
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.staging import StagedWrite
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.lance.written_files import version_files
from omnigraph.storage.records import OperationId, TablePin, WriteBase, base_of
from omnigraph.storage.recovery_records import (
    RECOVERY_SCHEMA,
    Recovery,
    decode_recoveries,
    recovery_batch,
)
from omnigraph.storage.retry import AUDIT, retried
from omnigraph.types import TableKey

LOCATION = "_graph_commit_recoveries.lance"


class Audit:
    """The audit of one graph."""

    def __init__(self, datasets: Datasets, tables: Tables) -> None:
        self._datasets = datasets
        self._tables = tables

    def create(self) -> None:
        """An empty audit."""
        create_or_replace(self._datasets, LOCATION, RECOVERY_SCHEMA.empty_table())

    def has(self, operation: OperationId) -> bool:
        """Whether the operation was settled and recorded."""
        return self._reader().count(f"operation_id = '{operation}'") > 0

    def record(self, recovery: Recovery) -> None:
        """Append the row of an operation, once."""
        failpoints.hit("recover.audit")
        if self.has(recovery.operation_id):
            return

        def attempt(losses: int) -> None:
            staged = self._staged(self._pin(), recovery_batch(recovery))
            flusher = self._datasets.flusher
            flusher.barrier(staged=self._tables.named([staged]))
            handle = self._datasets.commit(staged.handle, staged.transaction)
            flusher.owe(version_files(LOCATION, staged.transaction, int(handle.version)))

        retried(AUDIT, attempt, lost=(CommitRaced,))

    def _staged(self, pin: WriteBase, row: pa.Table) -> StagedWrite:
        """One more row. Rows of other operations may come first: an append over them is fine. Now
        and then all rows are written as one fragment, which holds only if none came first."""
        reader = self._tables.reader(pin)
        if reader.fragment_count() < COSTS.audit_fragments_min:
            return self._tables.stage_append(pin, row)
        rows = pa.concat_tables([reader.rows(), row])
        fragments = self._tables.write_fragments(pin, rows, replacing=True)
        return self._tables.stage_fragments(pin, fragments, replacing=True)

    def list(self) -> tuple[Recovery, ...]:
        """Every recovery, newest first."""
        rows = decode_recoveries(self._reader().rows())
        return tuple(sorted(rows, key=lambda r: (r.created_at, r.operation_id), reverse=True))

    def _reader(self) -> TableReader:
        return self._tables.reader(self._pin())

    def _pin(self) -> WriteBase:
        head = self._datasets.head(LOCATION, None)
        return base_of(TablePin(TableKey("audit"), LOCATION, head), None)
