"""Session of a cluster command: its configuration, storage, ledger, lock and diagnostics.

Invariant: the ledger is read under the lock, unless the configuration does without one, and what
ends a command is a diagnostic of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.cluster.desired import Desired, read_desired
from omnigraph.cluster.diagnostics import ClusterRefusal, Diagnostics
from omnigraph.cluster.graph_intents import read_intents
from omnigraph.cluster.ledger import STATE, Ledger, LedgerSnapshot, read_ledger
from omnigraph.cluster.resources import graph_address
from omnigraph.cluster.state_lock import LOCK, StateLock, locked, read_lock
from omnigraph.errors import OmnigraphError
from omnigraph.storage.cluster_objects import ClusterObjects

Document = dict[str, Any]


@dataclass(slots=True)
class LedgerSession:
    """What a command knows of its cluster."""

    folder: Path
    options: dict[str, str] | None = None
    findings: Diagnostics = field(default_factory=Diagnostics)
    root: ClusterObjects | None = None
    seen: LedgerSnapshot = field(default_factory=lambda: LedgerSnapshot(None, Ledger()))
    own: StateLock | None = None
    other: StateLock | None = None

    def _desired(self) -> Desired:
        config, desired = read_desired(self.folder, self.findings)
        if config is not None:
            self.root = ClusterObjects(config.storage, self.options)
            if not config.takes_lock:
                text = "state.lock is false: nothing keeps two commands apart but the last write"
                self.findings.add("state_lock_disabled", "state.lock", text)
        return desired

    def _open(self, storage: str) -> None:
        """Read the ledger and the lock of a storage root."""
        self.root = self.root or ClusterObjects(storage, self.options)
        self.other = read_lock(self.root)
        self.seen = read_ledger(self.root)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Make a diagnostic of what ends a command."""
        try:
            yield
        except ClusterRefusal as refusal:
            self.findings.add(refusal.code, refusal.path, refusal.message)
        except OmnigraphError as cause:
            path = str(self.folder) if self.root is None else self.root.uri
            self.findings.add("state_read_error", path, str(cause))

    @contextmanager
    def _turn(self, operation: str) -> Iterator[None]:
        """Alone with the ledger, which is read afresh; without a lock if none is asked for."""
        if self.root is None:
            yield
            return
        if any(each.code == "state_lock_disabled" for each in self.findings):
            self.seen = read_ledger(self.root)
            yield
            return
        try:
            with locked(self.root, operation) as lock:
                self.own = lock
                self.seen = read_ledger(self.root)
                yield
        except ClusterRefusal as refusal:
            if refusal.code == "state_lock_held":
                self._open("")
            raise

    def _require_ledger(self) -> bool:
        if self.seen.data is not None:
            return True
        assert self.root is not None
        text = "there is no ledger yet: run omnigraph cluster import first"
        self.findings.add("state_missing", self.root.join(STATE), text)
        return False

    def _tell_missing(self) -> None:
        if self.root is not None and self.seen.data is None:
            text = "there is no ledger yet: omnigraph cluster import makes one"
            self.findings.warn("state_missing", self.root.join(STATE), text)

    def _tell_intents(self) -> None:
        if self.root is None:
            return
        for intent in read_intents(self.root):
            text = f"{intent.operation} of {intent.created_at} was cut off: apply settles it"
            self.findings.warn("cluster_recovery_pending", graph_address(intent.graph), text)

    def _state(self) -> Document:
        """What is known of the ledger and its lock."""
        seen, objects = self.seen, self.root
        root = str(self.folder) if objects is None else objects.uri
        document: Document = {
            "state_path": f"{root}/{STATE}",
            "lock_path": f"{root}/{LOCK}",
            "state_found": seen.data is not None,
        }
        if seen.ledger.config_digest is not None:
            document["applied_config_digest"] = seen.ledger.config_digest
        document["state_revision"] = seen.ledger.revision
        if seen.cas is not None:
            document["state_cas"] = seen.cas
        document["resource_count"] = len(seen.ledger.resources)
        document["locked"] = self.other is not None
        if self.other is not None:
            document["lock_id"] = self.other.id
        document["lock_acquired"] = self.own is not None
        if self.own is not None:
            document["acquired_lock_id"] = self.own.id
        lock = self.other
        if lock is not None:
            document["lock_operation"] = lock.operation
            document["lock_created_at"] = lock.created_at
            document["lock_pid"] = lock.pid
            document["lock_age_seconds"] = lock.age_seconds
        return document
