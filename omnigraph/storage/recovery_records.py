"""Codec of the recovery audit: one row for each settled sidecar.

Invariant: no other module knows the shape of these rows.
"""

import orjson
import pyarrow as pa

from omnigraph.light_dataclass import dataclass
from omnigraph.storage.records import PRIMARY_KEY, CommitId, OperationId
from omnigraph.types import TableKey

ROLLED_FORWARD, ROLLED_BACK = "RolledForward", "RolledBack"
ORPHANED_BRANCH_DISCARDED = "OrphanedBranchDiscarded"

RECOVERY_SCHEMA = pa.schema(
    [
        pa.field("operation_id", pa.string(), nullable=False, metadata=PRIMARY_KEY),
        pa.field("graph_commit_id", pa.string()),
        pa.field("recovery_kind", pa.string(), nullable=False),
        pa.field("recovery_for_actor", pa.string()),
        pa.field("sidecar_writer_kind", pa.string(), nullable=False),
        pa.field("graph_branch", pa.string()),
        pa.field("per_table_outcomes", pa.string(), nullable=False),
        pa.field("created_at", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What recovery did to one table: the version it found and the one it left, logically."""

    table_key: TableKey
    from_version: int
    to_version: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """One settled sidecar."""

    operation_id: OperationId
    graph_commit_id: CommitId | None
    recovery_kind: str
    recovery_for_actor: str | None
    sidecar_writer_kind: str
    graph_branch: str | None
    per_table_outcomes: tuple[TableOutcome, ...]
    created_at: int


def recovery_batch(recovery: Recovery) -> pa.Table:
    """One audit row."""
    row = {name: getattr(recovery, name) for name in RECOVERY_SCHEMA.names}
    row["per_table_outcomes"] = orjson.dumps(recovery.per_table_outcomes).decode()
    return pa.Table.from_pylist([row], schema=RECOVERY_SCHEMA)


def decode_recoveries(table: pa.Table) -> tuple[Recovery, ...]:
    """Audit rows as values."""
    return tuple(
        Recovery(**{**row, "per_table_outcomes": _outcomes(row["per_table_outcomes"])})
        for row in table.to_pylist()
    )


def _outcomes(text: str) -> tuple[TableOutcome, ...]:
    return tuple(TableOutcome(**outcome) for outcome in orjson.loads(text))
