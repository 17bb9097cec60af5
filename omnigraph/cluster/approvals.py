"""Approvals: an actor's word for one deletion, bound to what was declared and applied then.

    <storage>/__cluster/approvals/<approval-id>.json

Invariant: an approval counts once, and only while the configuration and the ledger say of its graph
what they said when it was given. The ledger keeps it as a record when it is used.
"""

from dataclasses import dataclass
from typing import Any

import orjson
from ulid import ULID

from omnigraph.cluster.diagnostics import Diagnostics
from omnigraph.cluster.ledger import FOLDER, Ledger
from omnigraph.cluster.resources import graph_address, schema_address
from omnigraph.cluster.state_lock import moment
from omnigraph.errors import StorageFailed
from omnigraph.storage.cluster_objects import ClusterObjects, step

APPROVALS = f"{FOLDER}/approvals"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Approval:
    """An actor's word for the deletion of a graph."""

    id: str
    resource: str
    approved_by: str
    approved_at: str
    config_digest: str
    state_digests: dict[str, str | None]
    consumed_at: str | None = None

    @property
    def path(self) -> str:
        return f"{APPROVALS}/{self.id}.json"

    def to_json(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "approval_id": self.id,
            "resource": self.resource,
            "operation": "delete",
            "approved_by": self.approved_by,
            "approved_at": self.approved_at,
            "config_digest": self.config_digest,
            "state_digests": self.state_digests,
            "consumed_at": self.consumed_at,
        }


def bound_digests(ledger: Ledger, graph: str) -> dict[str, str | None]:
    """What an approval says of the ledger: the digests of the graph and its schema."""
    digests = ledger.digests
    return {each: digests.get(each) for each in (graph_address(graph), schema_address(graph))}


def write_approval(
    objects: ClusterObjects, ledger: Ledger, graph: str, *, actor: str, config_digest: str
) -> Approval:
    """Keep an actor's word."""
    approval = Approval(
        str(ULID()),
        graph_address(graph),
        actor,
        moment(),
        config_digest,
        bound_digests(ledger, graph),
    )
    objects.create(approval.path, _encoded(approval))
    return approval


def standing_approval(
    objects: ClusterObjects,
    ledger: Ledger,
    graph: str,
    config_digest: str,
    findings: Diagnostics,
) -> Approval | None:
    """The approval that lets a graph be deleted now. Those that no longer fit are told."""
    address = graph_address(graph)
    digests = bound_digests(ledger, graph)
    for approval in read_approvals(objects, findings):
        if approval.resource != address or _is_used(approval, ledger):
            continue
        if approval.config_digest == config_digest and approval.state_digests == digests:
            return approval
        text = f"approval {approval.id} was given for another state of the cluster: approve again"
        findings.add("approval_stale", address, text)
    return None


def _is_used(approval: Approval, ledger: Ledger) -> bool:
    return approval.consumed_at is not None or approval.id in ledger.approvals


def read_approvals(objects: ClusterObjects, findings: Diagnostics) -> list[Approval]:
    """Every approval; one that cannot be read approves nothing and is told."""
    approvals = []
    for path in objects.list(APPROVALS):
        try:
            document = orjson.loads(objects.read(path) or b"null")
            if document["version"] != _VERSION:
                raise ValueError("of another version")
            approval = Approval(
                document["approval_id"],
                document["resource"],
                document["approved_by"],
                document["approved_at"],
                document["config_digest"],
                document["state_digests"],
                document["consumed_at"],
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, StorageFailed):
            findings.warn("invalid_approval", objects.join(path), "it cannot be read: remove it")
        else:
            approvals.append(approval)
    return approvals


def consumed(approval: Approval) -> Approval:
    """The approval after its use."""
    return Approval(
        approval.id,
        approval.resource,
        approval.approved_by,
        approval.approved_at,
        approval.config_digest,
        approval.state_digests,
        moment(),
    )


def keep_consumed(objects: ClusterObjects, approval: Approval) -> None:
    """Write that an approval was used; the ledger says so already."""
    objects.keep(approval.path, _encoded(approval))
    step("cluster.approval_consumed")


def _encoded(approval: Approval) -> bytes:
    return orjson.dumps(approval.to_json(), option=orjson.OPT_INDENT_2)
