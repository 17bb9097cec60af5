"""Plan of a cluster: the changes from what was applied to what is declared, and how each fares.

Invariant: pure. Changes are sorted by address, and a change whose dependency or approval is missing
is blocked with the reason.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from omnigraph.cluster.desired import Desired
from omnigraph.cluster.ledger import Ledger, LedgerEntry
from omnigraph.cluster.resources import (
    dependents,
    graph_address,
    graph_of,
    kind_of,
    schema_address,
)


class Disposition(StrEnum):
    """How a change fares: made, following from others, impossible, or waiting."""

    APPLIED = "applied"
    DERIVED = "derived"
    DEFERRED = "deferred"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """One resource that is not as declared."""

    resource: str
    operation: str  # create, update or delete
    before: str | None
    after: str | None
    disposition: Disposition = Disposition.APPLIED
    reason: str | None = None
    binding_change: bool = False
    metadata_change: str | None = None
    migration: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"resource": self.resource, "operation": self.operation}
        if self.before is not None:
            document["before_digest"] = self.before
        if self.after is not None:
            document["after_digest"] = self.after
        document["disposition"] = str(self.disposition)
        if self.reason is not None:
            document["reason"] = self.reason
        if self.binding_change:
            document["binding_change"] = True
        if self.metadata_change is not None:
            document["metadata_change"] = self.metadata_change
        if self.migration is not None:
            document["migration"] = dict(self.migration)
        return document

    def blocked(self, reason: str) -> "ClusterChange":
        """The same change, waiting."""
        return replace(self, disposition=Disposition.BLOCKED, reason=reason)

    @property
    def is_done(self) -> bool:
        """Whether nothing of it is left after an apply."""
        return self.disposition in (Disposition.APPLIED, Disposition.DERIVED)


Changes = dict[str, ClusterChange]


def planned(desired: Desired, ledger: Ledger, approved: Collection[str]) -> Changes:
    """Every change by address. `approved` are the graphs that may be deleted."""
    changes: Changes = {}
    for address in sorted(desired.resources.keys() | ledger.resources.keys()):
        change = _change(address, desired, ledger)
        if change is not None:
            changes[address] = change
    return _disposed(changes, desired, ledger, approved)


def _change(address: str, desired: Desired, ledger: Ledger) -> ClusterChange | None:
    declared, applied = desired.resources.get(address), ledger.resources.get(address)
    if declared is None:
        assert applied is not None
        return ClusterChange(address, "delete", applied.digest, None)
    if applied is None:
        return ClusterChange(address, "create", None, declared.digest)
    is_equal = applied.digest == declared.digest
    if is_equal and applied.metadata == declared.metadata:
        return None
    kind = kind_of(address)
    rebinds = kind == "policy" and applied.metadata != declared.metadata
    metadata_change = {"policy": "policy_bindings", "embedding_provider": "embedding_profile"}
    return ClusterChange(
        address,
        "update",
        applied.digest,
        declared.digest,
        binding_change=rebinds,
        metadata_change=metadata_change.get(kind) if is_equal else None,
    )


def _disposed(
    changes: Changes, desired: Desired, ledger: Ledger, approved: Collection[str]
) -> Changes:
    disposed: Changes = {}
    for address, change in changes.items():
        graph = graph_of(address)
        if change.operation == "delete":
            disposed[address] = _deletion(change, graph, changes, ledger, approved)
        elif kind_of(address) == "graph" and change.operation == "update":
            disposed[address] = replace(change, disposition=Disposition.DERIVED)
        else:
            disposed[address] = change
    return _block_used(disposed, desired, ledger)


def _deletion(
    change: ClusterChange,
    graph: str | None,
    changes: Changes,
    ledger: Ledger,
    approved: Collection[str],
) -> ClusterChange:
    """A resource that is no longer declared. A graph needs an approval, and takes its schema and
    queries with it."""
    if graph is None:
        return change
    address = graph_address(graph)
    removes_graph = address in changes and changes[address].operation == "delete"
    if removes_graph:
        if graph in approved:
            return change
        if change.resource == address:
            return change.blocked("approval_required")
        return change.blocked(f"waits for {address}")
    if change.resource == schema_address(graph):
        return replace(
            change, disposition=Disposition.DEFERRED, reason="a schema goes with its graph only"
        )
    return change


def _block_used(changes: Changes, desired: Desired, ledger: Ledger) -> Changes:
    """Keep the provider and the policy of a graph that waits for its deletion: until then it is
    served, and must not lose who may do what."""
    waiting = waiting_graphs(changes)
    kept = dict(changes)
    for address, change in changes.items():
        if change.operation != "delete":
            continue
        for graph in waiting:
            uses = ledger.resources[graph].metadata.get("embedding_provider") == address
            bound = graph in ledger.resources[address].metadata.get("applies_to", ())
            if uses or bound:
                kept[address] = change.blocked(f"{graph} still uses it")
    return kept


def waiting_graphs(changes: Changes) -> list[str]:
    """Addresses of the graphs that are to be deleted and must not be yet."""
    return [
        address
        for address, change in changes.items()
        if kind_of(address) == "graph"
        and change.operation == "delete"
        and change.disposition is Disposition.BLOCKED
    ]


def block_dependents(changes: Changes, failed: str, desired: Desired) -> list[str]:
    """Block what depends on a change that failed; the addresses that were."""
    blocked = []
    for address in dependents(failed, desired.dependencies):
        change = changes.get(address)
        if change is not None and change.disposition is not Disposition.BLOCKED:
            changes[address] = change.blocked(f"waits for {failed}")
            blocked.append(address)
    return blocked


def blast_radius(changes: Changes, desired: Desired) -> list[dict[str, Any]]:
    """For each change the resources that depend on it, where there are any."""
    radius = [(each, dependents(each, desired.dependencies)) for each in changes]
    return [{"resource": each, "affected": affected} for each, affected in radius if affected]


def approvals_required(changes: Changes) -> list[dict[str, Any]]:
    """The changes that need an actor's word."""
    return [
        {
            "resource": address,
            "reason": "deleting a graph deletes its data",
            "satisfied": change.disposition is Disposition.APPLIED,
        }
        for address, change in changes.items()
        if kind_of(address) == "graph" and change.operation == "delete"
    ]


def entry_of(desired: Desired, address: str, ledger: Ledger, changes: Changes) -> LedgerEntry:
    """What the ledger shall say of a declared resource. A policy stays bound to a graph that waits
    for its deletion."""
    resource = desired.resources[address]
    metadata = dict(resource.metadata)
    applied = ledger.resources.get(address)
    if "applies_to" in metadata and applied is not None:
        bound = set(applied.metadata.get("applies_to", ())) & set(waiting_graphs(changes))
        metadata["applies_to"] = sorted({*metadata["applies_to"], *bound})
    return LedgerEntry(resource.digest, metadata)
