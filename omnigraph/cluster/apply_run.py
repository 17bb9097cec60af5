"""Apply of a cluster: graphs are created, migrated and deleted, payloads written, all published.

    sweep ─▶ plan ─▶ create ─▶ migrate ─▶ payloads ─▶ delete ─▶ swap of the ledger ─▶ notes gone

Invariant: the ledger is swapped once, after everything it says was done, and names nothing that was
not. Whichever arrow a crash lands on, the next apply converges: a step that moves a graph is noted
before it is made, and a payload that no ledger names does no harm.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from omnigraph.cluster.approvals import (
    Approval,
    consumed,
    keep_consumed,
    standing_approval,
)
from omnigraph.cluster.changes_planned import (
    Changes,
    ClusterChange,
    Disposition,
    block_dependents,
    entry_of,
    planned,
)
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import ClusterRefusal, Diagnostics
from omnigraph.cluster.graph_intents import (
    GraphIntent,
    GraphStep,
    delete_intent,
    keep_intents,
    read_intents,
    write_intent,
)
from omnigraph.cluster.ledger import Ledger, LedgerSnapshot, write_ledger
from omnigraph.cluster.live_graphs import GraphSight, create_graph, delete_graph, migrate_graph
from omnigraph.cluster.observing import Observing
from omnigraph.cluster.payloads import has_payload, write_payload
from omnigraph.cluster.recovery_sweep import RecoverySweep, forget_graph
from omnigraph.cluster.resources import graph_address, graph_of, kind_of, schema_address
from omnigraph.errors import Conflict, OmnigraphError, Refused, SourceError, StorageFailed
from omnigraph.storage.cluster_objects import ClusterObjects, step


@dataclass(slots=True)
class ApplyRun:
    """One apply, under the lock."""

    root: ClusterObjects
    desired: Desired
    seen: LedgerSnapshot
    actor: str | None
    findings: Diagnostics
    changes: Changes = field(default_factory=dict)
    is_written: bool = False
    ledger: Ledger = field(init=False)
    _sweep: RecoverySweep = field(init=False)
    _observing: Observing = field(init=False)
    _sights: dict[str, GraphSight] = field(default_factory=dict)
    _intents: list[GraphIntent] = field(default_factory=list)
    _approvals: dict[str, Approval] = field(default_factory=dict)
    _used: list[Approval] = field(default_factory=list)
    _unsure: set[str] = field(default_factory=set)  # intents whose step failed and may have worked

    def __post_init__(self) -> None:
        self.ledger = copy.deepcopy(self.seen.ledger)
        self._sweep = RecoverySweep(self.root, self.desired, self.ledger, self.findings)
        self._observing = Observing(self.root, self.desired, self.ledger, self.findings)

    @property
    def converged(self) -> bool:
        """Whether everything is as declared."""
        is_done = all(change.is_done for change in self.changes.values())
        return is_done and not self._sweep.stuck

    def run(self) -> None:
        """Make every change that can be made, and publish them."""
        self._sweep.run(read_intents(self.root))
        self._look()
        self._plan()
        step("cluster.planned")
        self._each("graph", "create", self._create)
        self._each("schema", "update", self._migrate)
        self._catalog()
        self._each("graph", "delete", self._delete)
        self._observing.derive_graphs()
        self._derive()
        self._tell()
        self._publish()

    # ---- what there is to do

    def _look(self) -> None:
        for address in sorted(self.ledger.resources):
            graph = graph_of(address)
            if graph is not None and kind_of(address) == "graph" and graph not in self._sweep.stuck:
                self._sights[graph] = self._observing.note_live(graph)

    def _plan(self) -> None:
        digest = self.desired.config_digest
        for address in self.ledger.resources:
            graph = graph_of(address)
            if kind_of(address) == "graph" and address not in self.desired.resources:
                assert graph is not None
                approval = standing_approval(self.root, self.ledger, graph, digest, self.findings)
                if approval is not None:
                    self._approvals[graph] = approval
        self.changes = planned(self.desired, self.ledger, self._approvals)
        for address, change in self.changes.items():
            graph = graph_of(address)
            if graph in self._sweep.stuck:
                self.changes[address] = change.blocked("an interrupted step is not settled")
            elif address == schema_address(graph or "") and change.operation == "update":
                sight = self._sights.get(graph or "")
                migration = None if sight is None else sight.migration
                self.changes[address] = replace(change, migration=migration)

    # ---- graphs

    def _each(self, kind: str, operation: str, make: Callable[[str, ClusterChange], None]) -> None:
        for address, change in list(self.changes.items()):
            is_meant = kind_of(address) == kind and change.operation == operation
            if is_meant and self.changes[address].disposition is Disposition.APPLIED:
                graph = graph_of(address)
                assert graph is not None
                make(graph, change)

    def _create(self, graph: str, change: ClusterChange) -> None:
        schema = schema_address(graph)
        digest = self.desired.resources[schema].digest

        def make() -> None:
            text = self.desired.current_content(schema).decode()
            self._note(GraphStep.CREATE, graph, before=None, after=digest)
            create_graph(self.root, graph, text)

        if self._moved(graph_address(graph), "graph_create_failed", make):
            self.ledger.resources[schema] = entry_of(
                self.desired, schema, self.ledger, self.changes
            )
            self.ledger.resources[change.resource] = self.ledger.graph_entry(
                graph, self.desired.resources[change.resource].metadata
            )
            sight = self._observing.look(graph)
            self.ledger.observations[change.resource] = sight.to_json()

    def _migrate(self, graph: str, change: ClusterChange) -> None:
        schema = change.resource
        sight = self._sights.get(graph)
        before = None if sight is None else sight.schema_digest

        def make() -> None:
            text = self.desired.current_content(schema).decode()
            self._note(GraphStep.MIGRATE, graph, before=before, after=change.after)
            migrate_graph(self.root, graph, text, self.actor)

        if self._moved(schema, "schema_apply_failed", make):
            self.ledger.resources[schema] = entry_of(
                self.desired, schema, self.ledger, self.changes
            )
            sight = self._observing.look(graph)
            self.ledger.observations[graph_address(graph)] = sight.to_json()

    def _delete(self, graph: str, change: ClusterChange) -> None:
        approval = self._approvals[graph]
        schema = self.ledger.resources.get(schema_address(graph))

        def make() -> None:
            before = None if schema is None else schema.digest
            self._note(GraphStep.DELETE, graph, before=before, after=None, approval=approval.id)
            delete_graph(self.root, graph)

        if self._moved(change.resource, "graph_delete_failed", make):
            forget_graph(self.ledger, graph)
            self._used.append(consumed(approval))
            self.ledger.approvals[approval.id] = self._used[-1].to_json()
            return
        for address, other in self.changes.items():
            if graph_of(address) == graph and address != change.resource:
                self.changes[address] = other.blocked(f"waits for {change.resource}")

    def _note(
        self,
        operation: GraphStep,
        graph: str,
        *,
        before: str | None,
        after: str | None,
        approval: str | None = None,
    ) -> None:
        self._intents.append(
            write_intent(
                self.root,
                operation,
                graph,
                before=before,
                after=after,
                actor=self.actor,
                approval=approval,
            )
        )

    def _moved(self, address: str, code: str, make: Callable[[], None]) -> bool:
        """Make one step; whether it succeeded. A failure blocks what depends on it."""
        try:
            make()
        except ClusterRefusal as refusal:
            self._fail(address, refusal.code, refusal.message)
            return False
        except OmnigraphError as cause:
            if self._intents and not isinstance(cause, Refused | Conflict | SourceError):
                self._unsure.add(self._intents[-1].id)
            self._fail(address, code, str(cause))
            return False
        step("cluster.graph_moved")
        return True

    def _fail(self, address: str, code: str, message: str) -> None:
        self.findings.add(code, address, message)
        self.changes[address] = self.changes[address].blocked(code)
        self.ledger.set_status(address, "error", message, code)
        for blocked in block_dependents(self.changes, address, self.desired):
            self.findings.add("apply_dependency_blocked", blocked, f"it waits for {address}")

    # ---- queries, policies and providers

    def _catalog(self) -> None:
        for address, change in list(self.changes.items()):
            is_catalog = kind_of(address) in ("query", "policy", "embedding_provider")
            if not is_catalog or self.changes[address].disposition is not Disposition.APPLIED:
                continue
            if change.operation == "delete":
                if not self._goes_with_graph(address):
                    self.ledger.forget(address)
                continue
            try:
                if has_payload(address):
                    content = self.desired.current_content(address)
                    assert change.after is not None
                    write_payload(self.root, address, change.after, content)
            except ClusterRefusal as refusal:
                self._fail(address, refusal.code, refusal.message)
                continue
            self.ledger.resources[address] = entry_of(
                self.desired, address, self.ledger, self.changes
            )

    def _goes_with_graph(self, address: str) -> bool:
        """Whether a query is deleted together with its graph."""
        graph = graph_of(address)
        change = None if graph is None else self.changes.get(graph_address(graph))
        return change is not None and change.operation == "delete"

    # ---- what follows, what is told, and the one publish

    def _derive(self) -> None:
        """Let each graph take what is declared of it, unless a part of it waits."""
        for address, change in list(self.changes.items()):
            graph = graph_of(address)
            if change.disposition is not Disposition.DERIVED or graph is None:
                continue
            waiting = [
                each
                for each, other in self.changes.items()
                if each != address and graph_of(each) == graph and not other.is_done
            ]
            provider = self.desired.resources[address].metadata.get("embedding_provider")
            if provider in self.changes and not self.changes[provider].is_done:
                waiting.append(provider)
            if waiting:
                self.changes[address] = change.blocked(f"waits for {', '.join(waiting)}")
                continue
            metadata = self.desired.resources[address].metadata
            self.ledger.resources[address] = self.ledger.graph_entry(graph, metadata)

    def _tell(self) -> None:
        """Say how every resource stands, and why what waits does."""
        for address in self.desired.resources:
            change = self.changes.get(address)
            if change is None or change.is_done:
                self.ledger.set_status(address, "applied", "as declared")
        for address, change in self.changes.items():
            if change.is_done:
                continue
            reason = change.reason or ""
            failed = self.ledger.statuses.get(address, {}).get("status") == "error"
            if not (failed and reason in self.ledger.statuses[address]["conditions"]):
                self.ledger.set_status(address, "blocked", reason)
            self._explain(address, change, reason)
        if self.converged:
            self.ledger.config_digest = self.desired.config_digest

    def _explain(self, address: str, change: ClusterChange, reason: str) -> None:
        is_explained = any(
            each.path == address and each.code != "approval_stale" for each in self.findings
        )
        if reason == "approval_required":
            text = f"deleting it deletes its data: omnigraph cluster approve {address}"
            self.findings.warn("approval_required", address, text)
        elif is_explained:
            return
        elif change.disposition is Disposition.DEFERRED:
            self.findings.add("apply_unsupported_change", address, reason)
        else:
            self.findings.add("apply_dependency_blocked", address, reason)

    def _publish(self) -> None:
        settled = [*self._sweep.settled, *self._intents]
        used = [*self._sweep.used, *self._used]
        before = self.seen.ledger.to_json()
        if self.ledger.to_json() != before or self.seen.data is None:
            step("cluster.state_before")
            try:
                self.seen = write_ledger(self.root, self.seen, self.ledger)
            except ClusterRefusal as refusal:
                self.findings.add(refusal.code, refusal.path, refusal.message)
                keep_intents(self.root, self._intents)
                self._tell_pending(bool(settled))
                return
            self.is_written = True
            step("cluster.state_written")
        try:
            for approval in used:
                keep_consumed(self.root, approval)
            for intent in settled:
                if intent.id not in self._unsure:
                    delete_intent(self.root, intent)
        except StorageFailed as cause:
            # The ledger says what became of them: the next sweep finds them settled.
            self.findings.warn("cluster_recovery_pending", self.root.uri, str(cause))

    def _tell_pending(self, has_moved: bool) -> None:
        if has_moved:
            text = "graphs were changed and the ledger does not say so yet: apply again"
            self.findings.add("actual_applied_state_pending", self.root.uri, text)
