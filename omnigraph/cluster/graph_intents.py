"""Intents of steps that move a graph: durable notes, written first and deleted last.

    <storage>/__cluster/recoveries/<ulid>.json

Invariant: a graph is created, migrated or deleted by an apply only while an intent says so, and the
intent is deleted only after the ledger says what became of it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson
from ulid import ULID

from omnigraph.cluster.diagnostics import ClusterRefusal
from omnigraph.cluster.ledger import FOLDER
from omnigraph.cluster.state_lock import moment
from omnigraph.errors import StorageFailed
from omnigraph.storage.cluster_objects import ClusterObjects, step

INTENTS = f"{FOLDER}/recoveries"
_VERSION = 1


class GraphStep(StrEnum):
    """What an intent is about to do with a graph."""

    CREATE = "graph_create"
    MIGRATE = "schema_update"
    DELETE = "graph_delete"


@dataclass(frozen=True, slots=True)
class GraphIntent:
    """One step. Digests are those of the schema before and after it."""

    id: str
    operation: GraphStep
    graph: str
    before: str | None
    after: str | None
    actor: str | None
    created_at: str
    approval: str | None = None

    @property
    def path(self) -> str:
        return f"{INTENTS}/{self.id}.json"

    def to_json(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "intent_id": self.id,
            "operation": str(self.operation),
            "graph": self.graph,
            "schema_digest_before": self.before,
            "schema_digest_after": self.after,
            "actor": self.actor,
            "created_at": self.created_at,
            "approval_id": self.approval,
        }


def write_intent(
    objects: ClusterObjects,
    operation: GraphStep,
    graph: str,
    *,
    before: str | None,
    after: str | None,
    actor: str | None,
    approval: str | None = None,
) -> GraphIntent:
    """Note a step before it is made."""
    intent = GraphIntent(str(ULID()), operation, graph, before, after, actor, moment(), approval)
    objects.create(intent.path, _written(intent))
    step("cluster.intent_written")
    return intent


def keep_intents(objects: ClusterObjects, intents: Iterable[GraphIntent]) -> None:
    """Write again what another apply took for settled: without a lock it may sweep while a step of
    this one is under way."""
    for intent in intents:
        objects.create(intent.path, _written(intent))


def _written(intent: GraphIntent) -> bytes:
    return orjson.dumps(intent.to_json(), option=orjson.OPT_INDENT_2)


def read_intents(objects: ClusterObjects) -> list[GraphIntent]:
    """Every step that was begun and not yet recorded, oldest first; `ClusterRefusal` for a note
    that cannot be read, because a graph may hang on it."""
    return list(_intents(objects))


def _intents(objects: ClusterObjects) -> Iterator[GraphIntent]:
    for path in objects.list(INTENTS):
        try:
            data = objects.read(path)
        except StorageFailed as cause:
            raise ClusterRefusal(
                "invalid_recovery_sidecar", objects.join(path), str(cause)
            ) from None
        if data is not None:
            yield _decoded(data, path, objects.join(path))


def _decoded(data: bytes, path: str, address: str) -> GraphIntent:
    try:
        document = orjson.loads(data)
        version = document["version"]
        if version != _VERSION:
            text = f"version {version} is of another program; this one reads {_VERSION}"
            raise ClusterRefusal("unsupported_recovery_sidecar_version", address, text)
        intent = GraphIntent(
            str(document["intent_id"]),
            GraphStep(document["operation"]),
            str(document["graph"]),
            document["schema_digest_before"],
            document["schema_digest_after"],
            document["actor"],
            str(document["created_at"]),
            document["approval_id"],
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        text = "it cannot be read: look at it, and remove it once its graph is known to be in order"
        raise ClusterRefusal("invalid_recovery_sidecar", address, text) from None
    if intent.path != path:
        text = "its name is not the one it was written under"
        raise ClusterRefusal("invalid_recovery_sidecar", address, text)
    return intent


def delete_intent(objects: ClusterObjects, intent: GraphIntent) -> None:
    """Forget a step that the ledger knows of."""
    objects.delete(intent.path)
    step("cluster.intent_deleted")
