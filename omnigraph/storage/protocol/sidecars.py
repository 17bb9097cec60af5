"""Sidecars: the durable notes of writes under way, one JSON file each below `__recovery/`.

Invariant: a note is there before the first table head of its write moves and until its write is
published or undone. At rest the folder is empty. The codec here alone knows the stored shape; a
note that cannot be understood is refused loudly and kept.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, fields, replace
from typing import Any

import orjson

from omnigraph.errors import StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.storage import failpoints
from omnigraph.storage.objects import Objects
from omnigraph.storage.protocol.intent import Intent, WriterKind
from omnigraph.storage.records import (
    OPTIONAL_FACTS,
    OperationId,
    TablePin,
    Tombstone,
    decode_facts,
    optional_facts,
)
from omnigraph.storage.stats import Stats
from omnigraph.types import TableKey

FOLDER = "__recovery"
SIDECAR_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SidecarTable:
    """What a writer is about to do to one table. `post_commit_pin` is the version it makes; of a
    write of several versions the first of them, until the confirmation names the last."""

    table_key: TableKey
    table_path: str
    table_branch: str | None
    fork: str
    expected_version: int
    post_commit_pin: int
    confirmed_version: int | None = None


@dataclass(frozen=True, slots=True)
class SidecarFile:
    """A file that takes its place when the write is published, and where it waits until then."""

    path: str
    staged: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The durable note of one write. `multi_step` writes count only once confirmed; `relied_on`
    are the versions of all tables that a change of the schema was checked against."""

    intent: Intent
    tables: tuple[SidecarTable, ...]
    multi_step: bool = False
    files: tuple[SidecarFile, ...] = ()
    relied_on: Mapping[TableKey, int] = field(default_factory=dict)

    @property
    def operation_id(self) -> OperationId:
        """The name of the note."""
        return self.intent.operation_id

    @property
    def branch(self) -> str:
        """The branch that is written to."""
        return self.intent.branch

    def confirmed(self, versions: Mapping[TableKey, int]) -> "Sidecar":
        """The same note, saying which version each table reached."""
        reached = ((table, versions[table.table_key]) for table in self.tables)
        tables = tuple(replace(t, confirmed_version=v, post_commit_pin=v) for t, v in reached)
        return replace(self, tables=tables)


class Sidecars:
    """The notes of one graph."""

    def __init__(self, objects: Objects, stats: Stats) -> None:
        self._objects = objects
        self._stats = stats

    def write(self, sidecar: Sidecar, staged: Iterable[str] = ()) -> None:
        """Put the note, and return when it and the staged files of the write are on disk. When this
        fails no head has moved, and there is nothing to recover."""
        _fault("sidecar.put", "wrote a sidecar")
        path = _path(sidecar.operation_id)
        self._objects.put_unflushed(path, encode_sidecar(sidecar))
        self._objects.flusher.barrier([path], staged=staged)
        self._stats.event(
            "phase_a.sidecar_written",
            operation=sidecar.operation_id,
            kind=sidecar.intent.kind,
            branch=sidecar.branch,
            tables=len(sidecar.tables),
        )

    def confirm(self, sidecar: Sidecar, named: Iterable[str]) -> None:
        """Rewrite the note with the versions its tables reached, once the files that these name are
        on disk: a confirmed note vouches for them."""
        _fault("sidecar.confirm", "confirmed a sidecar")
        replace_note = self._objects.put_aside(_path(sidecar.operation_id), encode_sidecar(sidecar))
        self._objects.flusher.barrier(staged=named)
        replace_note()
        self._stats.event("phase_b.sidecar_confirmed", operation=sidecar.operation_id)

    def delete(self, operation: OperationId) -> None:
        """Remove the note."""
        _fault("sidecar.delete", "deleted a sidecar")
        self._objects.delete(_path(operation))

    def delete_published(self, operation: OperationId) -> None:
        """Remove the note of a published write. A failure must not fail a write that is durable:
        the next write or open settles the note."""
        try:
            self.delete(operation)
        except StorageFailed as cause:
            self._stats.event(
                "phase_d.delete_failed",
                level=logging.WARNING,
                operation=operation,
                cause=str(cause),
            )
        else:
            self._stats.event("phase_d.sidecar_deleted", operation=operation)

    def pending(self) -> tuple[OperationId, ...]:
        """The operations with a note, oldest first. A failure to look fails the caller."""
        _fault("sidecar.list", "listed the sidecars")
        names = (path.rpartition("/")[2] for path in self._objects.list(FOLDER))
        return tuple(OperationId(n.removesuffix(".json")) for n in names if n.endswith(".json"))

    def may_be_among(self, folders: Collection[str]) -> bool:
        """Whether the folders of a root leave room for pending operations. A failure to look fails
        the caller."""
        _fault("sidecar.list", "listed the sidecars")
        return FOLDER in folders

    def read(self, operation: OperationId) -> Sidecar | None:
        """The note, or None when its writer finished meanwhile."""
        path = _path(operation)
        stored = self._objects.get(path)
        return None if stored is None else decode_sidecar(stored.data, path=path)


def encode_sidecar(sidecar: Sidecar) -> bytes:
    """The bytes of a sidecar: one flat JSON object."""
    intent = sidecar.intent
    stored = {name: getattr(intent, name) for name in _INTENT_KEYS if name not in OPTIONAL_FACTS}
    stored |= {name: getattr(sidecar, name) for name in _SIDECAR_KEYS}
    return orjson.dumps(
        {"format": SIDECAR_FORMAT, **stored, **optional_facts(intent)},
        option=orjson.OPT_INDENT_2,
    )


def decode_sidecar(data: bytes, *, path: str) -> Sidecar:
    """The sidecar in these bytes, or a loud failure that names the file."""
    try:
        return _decoded(orjson.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise StorageFailed(
            f"read the sidecar {path}",
            f"it is corrupt ({cause}); the file is kept: look at it and move it away to go on",
        ) from cause


def _decoded(facts: dict[str, Any]) -> Sidecar:
    if facts["format"] != SIDECAR_FORMAT:
        raise ValueError("it has an unknown format")
    unknown = facts.keys() - _KEYS
    if unknown:
        raise ValueError(f"it has unknown members: {', '.join(sorted(unknown))}")
    intent = Intent(
        operation_id=facts["operation_id"],
        commit_id=facts["commit_id"],
        rollback_id=facts["rollback_id"],
        kind=WriterKind(facts["kind"]),
        branch=facts["branch"],
        branch_identity=facts["branch_identity"],
        new_tables=tuple(TablePin(**pin) for pin in facts["new_tables"]),
        tombstones=tuple(Tombstone(**stone) for stone in facts["tombstones"]),
        schema=facts.get("schema"),
        renames=facts.get("renames", {}),
        reclaim=tuple(facts.get("reclaim", ())),
        narrows=facts.get("narrows", facts.get("schema") is not None),
        **decode_facts({"merged_parent": None, **facts}),
    )
    return Sidecar(
        intent,
        tables=tuple(SidecarTable(**table) for table in facts["tables"]),
        multi_step=facts.get("multi_step", False),
        files=tuple(SidecarFile(**file) for file in facts["files"]),
        relied_on=facts.get("relied_on", {}),
    )


# Stored names are the names of the fields.
_INTENT_KEYS = tuple(each.name for each in fields(Intent))
_SIDECAR_KEYS = tuple(each.name for each in fields(Sidecar) if each.name != "intent")
_KEYS = frozenset({"format", *_INTENT_KEYS, *_SIDECAR_KEYS})


def _path(operation: OperationId) -> str:
    return f"{FOLDER}/{operation}.json"


def _fault(name: str, doing: str) -> None:
    """A failpoint that fails the way the object store would."""
    try:
        failpoints.hit(name)
    except OSError as cause:
        raise StorageFailed(doing, str(cause)) from cause
