"""Recovery sweep: settles what an apply that was cut off had begun with its graphs.

    intent      graph as it is                  what the ledger says after the sweep
    create      there, with the schema          applied: rolled forward
                not there                       nothing: the plan creates it
    migrate     at the new schema               applied: rolled forward
                at the old schema               nothing: the plan migrates it
                at neither                      what is there; nobody knows who did it
    delete      marked, or not there            gone: the deletion is finished
                whole                           nothing: the plan decides again

Invariant: the sweep changes the ledger in memory only. An intent is deleted by its caller after the
ledger was published; one whose graph cannot be looked at stays.
"""

from dataclasses import dataclass, field

from omnigraph.cluster.approvals import Approval, consumed, read_approvals
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import Diagnostics
from omnigraph.cluster.graph_intents import GraphIntent, GraphStep
from omnigraph.cluster.ledger import Ledger, LedgerEntry
from omnigraph.cluster.live_graphs import (
    GraphSight,
    delete_graph,
    has_files,
    is_half_deleted,
    look_at_graph,
)
from omnigraph.cluster.resources import graph_address, query_address, schema_address
from omnigraph.cluster.state_lock import moment
from omnigraph.errors import OmnigraphError
from omnigraph.storage.cluster_objects import ClusterObjects, step


@dataclass(slots=True)
class RecoverySweep:
    """Settles intents one by one."""

    root: ClusterObjects
    desired: Desired
    ledger: Ledger
    findings: Diagnostics
    settled: list[GraphIntent] = field(default_factory=list)
    stuck: set[str] = field(default_factory=set)  # graphs that nothing may be done with
    used: list[Approval] = field(default_factory=list)

    def run(self, intents: list[GraphIntent]) -> None:
        """Settle every intent that can be settled."""
        for intent in intents:
            try:
                self._settle(intent)
            except OmnigraphError as cause:
                self._keep(intent, str(cause))
            else:
                if intent.graph not in self.stuck:
                    self.settled.append(intent)
        step("cluster.swept")

    def _settle(self, intent: GraphIntent) -> None:
        if intent.operation is GraphStep.DELETE and is_half_deleted(self.root, intent.graph):
            self._finish_deletion(intent)
            return
        sight = look_at_graph(self.root, intent.graph, None)
        if sight.error is not None:
            self._keep(intent, sight.error)
            return
        match intent.operation:
            case GraphStep.CREATE:
                self._settle_creation(intent, sight)
            case GraphStep.MIGRATE:
                self._settle_migration(intent, sight)
            case GraphStep.DELETE:
                if not sight.exists:
                    self._finish_deletion(intent)

    def _settle_creation(self, intent: GraphIntent, sight: GraphSight) -> None:
        if sight.exists:
            self._adopt(intent, sight)
        elif has_files(self.root, intent.graph):
            text = "its creation was cut off and left files: the next apply creates it"
            self.findings.warn("graph_create_incomplete", graph_address(intent.graph), text)

    def _settle_migration(self, intent: GraphIntent, sight: GraphSight) -> None:
        if sight.exists and sight.schema_digest != intent.before:
            self._adopt(intent, sight)

    def _adopt(self, intent: GraphIntent, sight: GraphSight) -> None:
        """Let the ledger say what a graph is."""
        address, schema = graph_address(intent.graph), schema_address(intent.graph)
        assert sight.schema_digest is not None
        known = self.ledger.resources.get(schema)
        if known is not None and known.digest == sight.schema_digest:
            return  # it was published, and only the note was left
        self.ledger.resources[schema] = LedgerEntry(sight.schema_digest)
        entry = self.ledger.resources.get(address)
        metadata = {} if entry is None else entry.metadata
        self.ledger.resources[address] = self.ledger.graph_entry(intent.graph, metadata)
        self.ledger.observations[address] = sight.to_json()
        if sight.schema_digest == intent.after:
            self._rolled_forward(intent)
            return
        text = (
            f"{intent.operation} of {intent.created_at} was cut off, and the graph has a schema "
            "that is neither the one before nor the one after: it counts as drifted"
        )
        self.findings.warn("cluster_recovery_unattributed", address, text)
        self.ledger.set_status(schema, "drifted", text)

    def _finish_deletion(self, intent: GraphIntent) -> None:
        address = graph_address(intent.graph)
        if has_files(self.root, intent.graph):
            text = "its deletion was cut off: what is left of it is deleted now"
            self.findings.warn("graph_delete_incomplete", address, text)
            delete_graph(self.root, intent.graph)
        if address in self.ledger.resources:
            forget_graph(self.ledger, intent.graph)
            self._rolled_forward(intent)
        for approval in read_approvals(self.root, self.findings):
            is_own = approval.id == intent.approval
            if is_own and approval.consumed_at is None:
                self.used.append(consumed(approval))
                self.ledger.approvals[approval.id] = self.used[-1].to_json()

    def _rolled_forward(self, intent: GraphIntent) -> None:
        text = f"{intent.operation} of {intent.created_at} was cut off after its work and counts"
        self.findings.warn("cluster_recovery_rolled_forward", graph_address(intent.graph), text)
        self.ledger.recoveries[intent.id] = {
            **intent.to_json(),
            "outcome": "rolled_forward",
            "recovered_at": moment(),
        }

    def _keep(self, intent: GraphIntent, cause: str) -> None:
        text = f"{intent.operation} of {intent.created_at} cannot be settled yet: {cause}"
        self.findings.add("cluster_recovery_pending", graph_address(intent.graph), text)
        self.stuck.add(intent.graph)


def forget_graph(ledger: Ledger, graph: str) -> None:
    """Drop a graph that is gone, with its schema and its queries."""
    for query in ledger.queries(graph):
        ledger.forget(query)
    for address in [a for a in ledger.statuses if a.startswith(query_address(graph, ""))]:
        ledger.forget(address)
    ledger.forget(schema_address(graph))
    ledger.forget(graph_address(graph))
