"""Observation of a cluster: its graphs and payloads compared with what the ledger says of them.

Invariant: nothing but the ledger in memory changes. What is gone or no longer what was applied is
dropped from the ledger, so that the next apply makes it again; what cannot be read stays, with the
status error.
"""

from dataclasses import dataclass

from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import ClusterRefusal, Diagnostics
from omnigraph.cluster.ledger import Ledger, LedgerEntry
from omnigraph.cluster.live_graphs import GraphSight, look_at_graph
from omnigraph.cluster.payloads import CONDITIONS, UNREADABLE, has_payload, read_payload
from omnigraph.cluster.resources import graph_address, graph_of, kind_of, schema_address
from omnigraph.storage.cluster_objects import ClusterObjects


@dataclass(slots=True)
class Observing:
    """Looks at graphs and payloads, and lets a ledger say what is there."""

    root: ClusterObjects
    desired: Desired
    ledger: Ledger
    findings: Diagnostics

    def look(self, graph: str) -> GraphSight:
        """A graph as it is now, beside its declared schema."""
        schema = self.desired.resources.get(schema_address(graph))
        declared = None if schema is None else (schema.digest, schema.content.decode())
        return look_at_graph(self.root, graph, declared)

    def all(self) -> None:
        """Look at every graph that is applied or declared, and at every payload."""
        known = {graph_of(a) for a in self.ledger.resources if kind_of(a) == "graph"}
        for graph in sorted(known | self.desired.config.graphs.keys(), key=str):
            assert graph is not None
            self._graph(graph)
        for address, entry in sorted(self.ledger.resources.items()):
            if has_payload(address):
                self._payload(address, entry)
        self.derive_graphs()

    def derive_graphs(self) -> None:
        """Let the digest of each graph follow from its applied parts."""
        for address, entry in list(self.ledger.resources.items()):
            graph = graph_of(address)
            if graph is not None and kind_of(address) == "graph":
                self.ledger.resources[address] = self.ledger.graph_entry(graph, entry.metadata)

    def note_live(self, graph: str) -> GraphSight:
        """Look at an applied graph before an apply: one that vanished or drifted is planned
        again."""
        sight = self.look(graph)
        address, schema = graph_address(graph), schema_address(graph)
        if sight.error is not None:
            self.findings.add("graph_observation_error", address, sight.error)
        elif not sight.exists:
            text = f"{sight.uri} is gone: an empty graph is created"
            self.findings.warn("graph_missing", address, text)
            self.ledger.resources.pop(address, None)
            self.ledger.resources.pop(schema, None)
        elif self._has_drifted(schema, sight):
            text = "its live schema is not the applied one: it is migrated back"
            self.findings.warn("schema_mismatch", schema, text)
            assert sight.schema_digest is not None
            self.ledger.resources[schema] = LedgerEntry(sight.schema_digest)
        return sight

    def _has_drifted(self, schema: str, sight: GraphSight) -> bool:
        applied = self.ledger.resources.get(schema)
        is_same = applied is not None and applied.digest == sight.schema_digest
        return not is_same and sight.matches is False

    def _graph(self, graph: str) -> None:
        sight = self.look(graph)
        address, schema = graph_address(graph), schema_address(graph)
        self.ledger.observations[address] = sight.to_json()
        if sight.error is not None:
            self.findings.add("graph_observation_error", address, sight.error)
            self.ledger.set_status(address, "error", sight.error, "graph_observation_error")
        elif not sight.exists:
            self._missing(graph, sight)
        else:
            self._present(address, schema, graph, sight)

    def _missing(self, graph: str, sight: GraphSight) -> None:
        address, schema = graph_address(graph), schema_address(graph)
        text = f"there is no graph at {sight.uri}: apply creates an empty one"
        self.findings.warn("graph_missing", address, text)
        was_applied = self.ledger.resources.pop(address, None) is not None
        self.ledger.resources.pop(schema, None)
        for each in (address, schema):
            status = "drifted" if was_applied else "pending"
            self.ledger.set_status(each, status, text, *(["graph_missing"] if was_applied else []))

    def _present(self, address: str, schema: str, graph: str, sight: GraphSight) -> None:
        assert sight.schema_digest is not None
        drifted = schema in self.ledger.resources and self._has_drifted(schema, sight)
        applied = self.ledger.resources.get(schema)
        if sight.matches and sight.desired_digest is not None:
            digest = sight.desired_digest
        elif applied is not None and sight.matches is None:
            digest = applied.digest
        else:
            digest = sight.schema_digest
        self.ledger.resources[schema] = LedgerEntry(digest)
        entry = self.ledger.resources.get(address)
        metadata = {} if entry is None else entry.metadata
        self.ledger.resources[address] = self.ledger.graph_entry(graph, metadata)
        self.ledger.set_status(address, "applied", "observed")
        if drifted:
            text = "its live schema is not the applied one: apply migrates it back"
            self.findings.warn("schema_mismatch", schema, text)
            self.ledger.set_status(schema, "drifted", text, "schema_mismatch")
        elif sight.matches is False:
            text = "its live schema is not the declared one: apply migrates it"
            if applied is None:
                self.findings.warn("schema_mismatch", schema, text)
            self.ledger.set_status(schema, "pending", text)
        else:
            self.ledger.set_status(schema, "applied", "observed")

    def _payload(self, address: str, entry: LedgerEntry) -> None:
        try:
            read_payload(self.root, address, entry.digest)
        except ClusterRefusal as refusal:
            condition = CONDITIONS[refusal.code]
            if condition == UNREADABLE:
                self.findings.add(refusal.code, refusal.path, refusal.message)
                self.ledger.set_status(address, "error", refusal.message, condition)
                return
            self.findings.warn(refusal.code, refusal.path, refusal.message)
            del self.ledger.resources[address]
            self.ledger.set_status(address, "drifted", refusal.message, condition)
        else:
            self.ledger.set_status(address, "applied", "observed")
