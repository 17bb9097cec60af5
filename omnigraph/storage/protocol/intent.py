"""Write intent: what one write is about to make visible, in one record for its whole life.

    Write ─▶ Prepared = intent + staged writes ─▶ Sidecar = intent + table notes ─▶ ManifestChange

Invariant: `change_of` is the only way from an intent to a publish, for the writer that lives and
for the recovery of one that died, so both publish the same facts. A new fact of a commit is a field
of `CommitFacts`; a new fact of the protocol is a field of `Intent`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from omnigraph.errors import BadRequest
from omnigraph.storage.manifest.publish import ManifestChange
from omnigraph.storage.names import require_actor, require_text
from omnigraph.storage.records import (
    RECOVERY_ACTOR,
    Commit,
    CommitFacts,
    CommitId,
    OperationId,
    SchemaId,
    TablePin,
    Tombstone,
    facts_of,
)
from omnigraph.types import TableKey


class WriterKind(StrEnum):
    """Which writer made a write; stored in sidecars and in the recovery audit."""

    MUTATION = "mutation"
    LOAD = "load"
    SCHEMA_APPLY = "schema_apply"
    BRANCH_MERGE = "branch_merge"
    REVERT = "revert"
    RESTORE = "restore"
    ENSURE_INDICES = "ensure_indices"
    OPTIMIZE = "optimize"
    REPAIR = "repair"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent(CommitFacts):
    """The facts of one write that its commit, its sidecar and its recovery share.

    A write that changes the schema names the new one and the tables that get another name.
    """

    operation_id: OperationId
    commit_id: CommitId
    rollback_id: CommitId  # named beforehand, so that undoing twice publishes once
    kind: WriterKind
    branch: str
    branch_identity: str | None = None  # None for main
    new_tables: tuple[TablePin, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    schema: SchemaId | None = None  # the one this write brings, if it brings one
    renames: Mapping[TableKey, TableKey] = field(default_factory=dict, hash=False)
    reclaim: tuple[str, ...] = ()  # folders whose past goes once the write is published

    @property
    def takes_away(self) -> bool:
        """Whether a schema change ends a table, a name or earlier data."""
        return self.schema is not None and bool(self.tombstones or self.renames or self.reclaim)


class AlreadyMarked(Exception):
    """The branch has a commit of this mark. Nothing of this write is durable."""

    def __init__(self, commit: Commit) -> None:
        super().__init__(f"commit {commit.id} carries the mark {commit.mark!r}")
        self.commit = commit


def stated_facts(
    actor: str | None, message: str | None, metadata: Mapping[str, str] | None
) -> CommitFacts:
    """What a caller states about a commit, or `BadRequest` for values that cannot be stored."""
    require_actor(actor)
    if message is not None:
        require_text("a commit message", message)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise BadRequest(f"commit metadata is a map of texts, not {type(metadata).__name__}")
    for key, value in (metadata or {}).items():
        require_text("a key of commit metadata", key)
        require_text(f"the commit metadata '{key}'", value)
    return CommitFacts(actor=actor, message=message, metadata=dict(metadata or {}))


def change_of(intent: Intent, pins: Iterable[TablePin]) -> ManifestChange:
    """The publish of a write whose tables reached `pins`."""
    reached = under_new_names(pins, intent.renames)
    new_names = set(intent.renames.values())
    return ManifestChange(
        commit_id=intent.commit_id,
        pins=(*reached, *intent.new_tables),
        new_tables=(*intent.new_tables, *(pin for pin in reached if pin.table_key in new_names)),
        tombstones=intent.tombstones,
        operation_id=intent.operation_id,
        schema=intent.schema,
        **facts_of(intent),
    )


def recovered_change(intent: Intent, pins: Iterable[TablePin]) -> ManifestChange:
    """The same publish, made by recovery for a writer that died."""
    return replace(change_of(intent, pins), actor=RECOVERY_ACTOR)


def undoing_change(intent: Intent, restored: Iterable[TablePin]) -> ManifestChange:
    """The publish that undoes a write: its moved tables at their restored versions."""
    return ManifestChange(
        commit_id=intent.rollback_id,
        pins=tuple(restored),
        actor=RECOVERY_ACTOR,
        operation_id=intent.operation_id,
    )


def under_new_names(
    pins: Iterable[TablePin], renames: Mapping[TableKey, TableKey]
) -> tuple[TablePin, ...]:
    """Pins of tables as they are called after a write that renames some."""
    return tuple(replace(pin, table_key=renames.get(pin.table_key, pin.table_key)) for pin in pins)
