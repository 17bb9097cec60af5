"""Cluster commands: validate, plan, apply, approve, status, refresh, import and force-unlock.

Invariant: a command returns the JSON document that is printed, whatever happens; `ok` is false
exactly when a diagnostic is an error. Only apply, refresh and import write the ledger.
"""

import copy
from dataclasses import replace

from omnigraph.cluster.apply_run import ApplyRun
from omnigraph.cluster.approvals import keep_consumed, standing_approval, write_approval
from omnigraph.cluster.changes_planned import (
    Changes,
    Disposition,
    approvals_required,
    blast_radius,
    block_dependents,
    planned,
)
from omnigraph.cluster.declared import CONFIG_FILE, read_config
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import ClusterRefusal
from omnigraph.cluster.graph_intents import delete_intent, read_intents
from omnigraph.cluster.ledger import STATE, write_ledger
from omnigraph.cluster.ledger_session import Document, LedgerSession
from omnigraph.cluster.live_graphs import look_at_graph
from omnigraph.cluster.observing import Observing
from omnigraph.cluster.recovery_sweep import RecoverySweep
from omnigraph.cluster.resources import graph_of, is_address, kind_of
from omnigraph.cluster.state_lock import force_unlock
from omnigraph.storage.cluster_objects import ClusterObjects


class ClusterCommand(LedgerSession):
    """One command on the cluster of a folder."""

    # ---- reading

    def validate(self) -> Document:
        """Check the declarations and the files they name."""
        desired = self._desired()
        return {
            "ok": self.findings.ok,
            "config_dir": str(self.folder),
            "config_file": str(self.folder / CONFIG_FILE),
            "resource_digests": desired.digests,
            "resources": [each.to_json() for each in desired.resources.values()],
            "dependencies": [each.to_json() for each in desired.dependencies],
            "diagnostics": self.findings.to_json(),
        }

    def plan(self) -> Document:
        """What an apply would do."""
        desired = self._desired()
        revision = self._revision(desired)
        changes: Changes = {}
        with self._noted(), self._turn("plan"):
            self._tell_missing()
            self._tell_intents()
            if self.findings.ok:
                changes = self._planned(desired)
        return {
            "ok": self.findings.ok,
            "config_dir": str(self.folder),
            "desired_revision": revision,
            "resource_digests": desired.digests,
            "dependencies": [each.to_json() for each in desired.dependencies],
            "state_observations": self._state(),
            "changes": [each.to_json() for each in changes.values()],
            "blast_radius": blast_radius(changes, desired),
            "approvals_required": approvals_required(changes),
            "diagnostics": self.findings.to_json(),
        }

    def status(self) -> Document:
        """What the ledger says."""
        with self._noted():
            config = read_config(self.folder, self.findings)
            if config is not None:
                # Only the storage root matters here; declarations may be at fault.
                self.findings.entries.clear()
                self._open(config.storage)
                self._tell_missing()
                self._tell_intents()
        return self._standing()

    def unlock(self, lock_id: str) -> Document:
        """Remove a lock by its exact id."""
        is_removed = False
        with self._noted():
            config = read_config(self.folder, self.findings)
            if config is not None:
                self.findings.entries.clear()
                self.root = ClusterObjects(config.storage, self.options)
                force_unlock(self.root, lock_id)
                is_removed = True
                self._open(config.storage)
        return {
            "ok": self.findings.ok,
            "config_dir": str(self.folder),
            "state_observations": self._state(),
            "lock_removed": is_removed,
            "diagnostics": self.findings.to_json(),
        }

    # ---- writing

    def apply(self, actor: str | None) -> Document:
        """Make the cluster what is declared."""
        desired = self._desired()
        revision = self._revision(desired)
        run: ApplyRun | None = None
        with self._noted(), self._turn("apply"):
            if self.findings.ok and self._require_ledger():
                assert self.root is not None
                run = ApplyRun(self.root, desired, self.seen, actor, self.findings)
                run.run()
                self.seen = run.seen
        changes = {} if run is None else run.changes
        done = [c for c in changes.values() if c.disposition is Disposition.APPLIED]
        waiting = [c for c in changes.values() if not c.is_done]
        document: Document = {"ok": self.findings.ok, "config_dir": str(self.folder)}
        if actor is not None:
            document["actor"] = actor
        return {
            **document,
            "desired_revision": revision,
            "state_observations": self._state(),
            "changes": [each.to_json() for each in changes.values()],
            "applied_count": len(done),
            "deferred_count": len(waiting),
            "converged": run is not None and run.converged,
            "state_written": run is not None and run.is_written,
            "resource_statuses": self.seen.ledger.statuses,
            "diagnostics": self.findings.to_json(),
        }

    def approve(self, resource: str, actor: str | None) -> Document:
        """Give an actor's word for the deletion of a graph."""
        facts: Document = {}
        desired = self._desired()
        if actor is None:
            text = "an approval is somebody's: pass --as ACTOR, or set operator.actor"
            self.findings.add("actor_required", resource, text)
        with self._noted(), self._turn("approve"):
            if self.findings.ok and self._require_ledger():
                assert self.root is not None
                assert actor is not None
                graph = self._require_deletion(resource, desired)
                approval = write_approval(
                    self.root,
                    self.seen.ledger,
                    graph,
                    actor=actor,
                    config_digest=desired.config_digest,
                )
                facts = {
                    "approval_id": approval.id,
                    "resource": resource,
                    "operation": "delete",
                    "approved_by": actor,
                }
        return {
            "ok": self.findings.ok,
            "config_dir": str(self.folder),
            **facts,
            "diagnostics": self.findings.to_json(),
        }

    def refresh(self) -> Document:
        """Look at graphs and payloads again."""
        return self._observed("refresh")

    def import_(self) -> Document:
        """Make a ledger of what exists."""
        return self._observed("import")

    def _observed(self, operation: str) -> Document:
        desired = self._desired()
        with self._noted(), self._turn(operation):
            if self.findings.ok and self._may_observe(operation):
                assert self.root is not None
                ledger = copy.deepcopy(self.seen.ledger)
                sweep = RecoverySweep(self.root, desired, ledger, self.findings)
                sweep.run(read_intents(self.root))
                Observing(self.root, desired, ledger, self.findings).all()
                self.seen = write_ledger(self.root, self.seen, ledger)
                for approval in sweep.used:
                    keep_consumed(self.root, approval)
                for intent in sweep.settled:
                    delete_intent(self.root, intent)
        return self._standing(operation)

    def _may_observe(self, operation: str) -> bool:
        if operation == "refresh":
            return self._require_ledger()
        if self.seen.data is not None:
            assert self.root is not None
            text = "there is a ledger already: refresh looks at the graphs again"
            self.findings.add("state_already_exists", self.root.join(STATE), text)
            return False
        return True

    # ---- parts

    def _planned(self, desired: Desired) -> Changes:
        """The changes, with a preview of each migration."""
        assert self.root is not None
        ledger = self.seen.ledger
        approved = [
            graph
            for address in ledger.resources
            if kind_of(address) == "graph"
            and address not in desired.resources
            and (graph := graph_of(address)) is not None
            and standing_approval(self.root, ledger, graph, desired.config_digest, self.findings)
        ]
        changes = planned(desired, ledger, approved)
        for address, change in list(changes.items()):
            if kind_of(address) == "schema" and change.operation == "update":
                self._preview(changes, address, desired)
        for entry in approvals_required(changes):
            if not entry["satisfied"]:
                text = f"{entry['reason']}: omnigraph cluster approve {entry['resource']}"
                self.findings.warn("approval_required", entry["resource"], text)
        return changes

    def _preview(self, changes: Changes, address: str, desired: Desired) -> None:
        assert self.root is not None
        graph, resource = graph_of(address), desired.resources[address]
        assert graph is not None
        sight = look_at_graph(self.root, graph, (resource.digest, resource.content.decode()))
        if sight.error is not None or not sight.exists:
            text = sight.error or f"there is no graph at {sight.uri}"
            self.findings.add("schema_preview_unavailable", address, text)
            return
        migration = sight.migration or {"supported": True, "steps": []}
        changes[address] = replace(changes[address], migration=migration)
        if not migration["supported"]:
            changes[address] = changes[address].blocked("the migration is not supported")
            block_dependents(changes, address, desired)

    def _require_deletion(self, resource: str, desired: Desired) -> str:
        """The graph whose deletion waits for an approval, or `ClusterRefusal`."""
        graph = graph_of(resource)
        is_graph = is_address(resource) and kind_of(resource) == "graph"
        waits = resource in self.seen.ledger.resources and resource not in desired.resources
        if graph is None or not is_graph or not waits:
            text = "no change of it needs an approval; the deletion of a graph does"
            raise ClusterRefusal("approval_not_required", resource, text)
        return graph

    def _revision(self, desired: Desired) -> Document:
        """What is declared, if it can be applied; asked before anything else is found wrong."""
        return {"config_digest": desired.config_digest} if self.findings.ok else {}

    def _standing(self, operation: str | None = None) -> Document:
        ledger = self.seen.ledger
        document: Document = {"ok": self.findings.ok, "config_dir": str(self.folder)}
        if operation is not None:
            document["operation"] = operation
        return {
            **document,
            "state_observations": self._state(),
            "resource_digests": ledger.digests,
            "resource_statuses": ledger.statuses,
            "observations": ledger.observations,
            "diagnostics": self.findings.to_json(),
        }
