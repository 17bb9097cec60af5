"""Write intent: what one write is about to make visible, in one record for its whole life.

    Write ─▶ Prepared = intent + staged writes ─▶ Sidecar = intent + table notes ─▶ ManifestChange

Invariant: `change_of` is the only way from an intent to a publish, for the writer that lives and
for the recovery of one that died, so both publish the same facts. A new fact of a commit is a field
of `CommitFacts`; a new fact of the protocol is a field of `Intent`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest, LimitExceeded
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.names import require_actor, require_text
from omnigraph.storage.records import (
    RECOVERY_ACTOR,
    Commit,
    CommitFacts,
    CommitId,
    CommitNote,
    OperationId,
    SchemaId,
    TablePin,
    Tombstone,
    facts_of,
)
from omnigraph.types import TableKey

if TYPE_CHECKING:
    from omnigraph.storage.manifest.publish import ManifestChange
else:
    ManifestChange = deferred("omnigraph.storage.manifest.publish", "ManifestChange")


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
    narrows: bool = False  # whether the schema it brings does more than add or widen


class AlreadyMarked(Exception):
    """The branch has a commit of this mark. Nothing of this write is durable."""

    def __init__(self, commit: Commit) -> None:
        super().__init__(f"commit {commit.id} carries the mark {commit.mark!r}")
        self.commit = commit


MESSAGE_BYTES_MAX = 16_384
METADATA_BYTES_MAX = 16_384
"""Limits of what a caller may say about a commit: every listing of the history reads it."""


def noted(
    actor: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> CommitNote:
    """What a caller says about a write, checked: `BadRequest` for what is no text, `LimitExceeded`
    for too much of it. A message without a visible character is none."""
    require_actor(actor)
    if message is not None:
        _require_plain_text("a commit message", message)
        _require_size("commit_message_bytes", len(message.encode()), MESSAGE_BYTES_MAX)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise BadRequest(f"commit metadata is a map of texts, not {type(metadata).__name__}")
    for key, value in (metadata or {}).items():
        _require_plain_text("a key of commit metadata", key)
        _require_plain_text(f"the commit metadata '{key}'", value)
        if not key.strip():
            raise BadRequest("a key of commit metadata is empty", "name what the text is")
    size = sum(len(f"{key}{value}".encode()) for key, value in (metadata or {}).items())
    _require_size("commit_metadata_bytes", size, METADATA_BYTES_MAX)
    said = message if message is not None and message.strip() else None
    return CommitNote(actor, said, dict(metadata or {}))


def _require_plain_text(what: str, value: object) -> None:
    require_text(what, value)
    if "\0" in str(value):
        raise BadRequest(f"{what} contains a NUL character", "leave it out")


def _require_size(resource: str, actual: int, limit: int) -> None:
    if actual > limit:
        raise LimitExceeded(resource, actual, limit, "keep it short, and the rest elsewhere")


def stated_facts(
    actor: str | None, message: str | None, metadata: Mapping[str, str] | None
) -> CommitFacts:
    """What a caller states about a commit, checked."""
    return CommitFacts(**noted(actor, message, metadata).stated)


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
    """The publish that undoes a write: its moved tables at their restored versions. What was said
    about the write is gone with it, unless to undo was what the writer asked for."""
    said = intent.kind is WriterKind.REPAIR
    return ManifestChange(
        commit_id=intent.rollback_id,
        pins=tuple(restored),
        actor=RECOVERY_ACTOR,
        message=intent.message if said else None,
        metadata=intent.metadata if said else {},
        operation_id=intent.operation_id,
    )


def under_new_names(
    pins: Iterable[TablePin], renames: Mapping[TableKey, TableKey]
) -> tuple[TablePin, ...]:
    """Pins of tables as they are called after a write that renames some."""
    return tuple(replace(pin, table_key=renames.get(pin.table_key, pin.table_key)) for pin in pins)
