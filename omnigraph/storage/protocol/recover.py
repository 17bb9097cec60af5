"""Settle what writers that died left behind.

Invariant: a sidecar is touched only under the locks its writer holds while it lives, so a live
writer's sidecar is left alone, and a restore can orphan nobody's append. After settling, every
table head the sidecar names equals its published version; the operation is in the history wholly or
not at all; there is one audit row; and the sidecar is deleted last, so each step can be repeated.

    all moved as promised ─▶ publish those heads                    RolledForward
    already published     ─▶ nothing left to publish                RolledForward
    anything else         ─▶ restore moved tables, publish those    RolledBack
    branch is gone        ─▶ nothing to settle                      OrphanedBranchDiscarded
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.errors import NotFound, StorageFailed
from omnigraph.storage import failpoints
from omnigraph.storage.lance.datasets import Datasets, Handle
from omnigraph.storage.lance.inline_commits import InlineResidual
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.lance.transactions import operation_of
from omnigraph.storage.locks.locks import Guard, Locks, hold_if_idle
from omnigraph.storage.manifest.history import History
from omnigraph.storage.manifest.manifest import LOCATION, Change, Manifest, State
from omnigraph.storage.names import owner_of
from omnigraph.storage.protocol.audit import Audit
from omnigraph.storage.protocol.commit import sidecar_lock_names
from omnigraph.storage.protocol.promote import Promotions
from omnigraph.storage.protocol.reclaim import Reclaims
from omnigraph.storage.protocol.sidecars import Sidecars
from omnigraph.storage.records import (
    ORPHANED_BRANCH_DISCARDED,
    RECOVERY_ACTOR,
    ROLLED_BACK,
    ROLLED_FORWARD,
    CommitId,
    OperationId,
    Recovery,
    Sidecar,
    SidecarTable,
    TableOutcome,
    TablePin,
    under_new_names,
)
from omnigraph.storage.stats import Stats
from omnigraph.types import TableKey


class Finding(StrEnum):
    """How a table's head compares with its pin and with what the sidecar promised."""

    NO_MOVEMENT = "NoMovement"
    ROLLED_PAST_EXPECTED = "RolledPastExpected"
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    INCOMPLETE_PHASE_B = "IncompletePhaseB"
    INVARIANT_VIOLATION = "InvariantViolation"


def classify(table: SidecarTable, *, pin: int, head: int, ours: bool, multi_step: bool) -> Finding:
    """The class of one table. `ours`: every version after the pin is this operation's own."""
    if head < pin:
        return Finding.INVARIANT_VIOLATION
    if head == pin:
        return Finding.NO_MOVEMENT
    if multi_step and table.confirmed_version is None:
        return Finding.INCOMPLETE_PHASE_B
    promised = table.confirmed_version if multi_step else table.post_commit_pin
    if head == promised and ours and pin == table.expected_version:
        return Finding.ROLLED_PAST_EXPECTED
    return Finding.UNEXPECTED_AT_P1 if head == pin + 1 else Finding.UNEXPECTED_MULTISTEP


@dataclass(frozen=True, slots=True)
class _Found:
    """One table as recovery met it. `pin` belongs to the sidecar's branch."""

    table: SidecarTable
    pin: TablePin
    head: Handle
    finding: Finding

    @property
    def moved(self) -> bool:
        return self.finding is not Finding.NO_MOVEMENT


class Recoverer:
    """Settles sidecars, at open and before a write."""

    def __init__(
        self,
        datasets: Datasets,
        tables: Tables,
        manifest: Manifest,
        history: History,
        sidecars: Sidecars,
        promotions: Promotions,
        reclaims: Reclaims,
        audit: Audit,
        locks: Locks,
        stats: Stats,
    ) -> None:
        self._datasets = datasets
        self._tables = tables
        self._manifest = manifest
        self._history = history
        self._sidecars = sidecars
        self._promotions = promotions
        self._reclaims = reclaims
        self._audit = audit
        self._locks = locks
        self._stats = stats
        self._residual = InlineResidual(datasets)

    def heal(self, *, patient: bool) -> tuple[OperationId, ...]:
        """Settle every sidecar whose writer is dead; the operations whose writer may live.

        A patient healer waits until it knows. Before a write there is no time for that: a lease
        that looks held is left for a later look, which may find that it never moved.
        """
        pending = self._sidecars.pending()
        return tuple(op for op in pending if not self._settle_if_idle(op, patient=patient))

    def _settle_if_idle(self, operation: OperationId, *, patient: bool) -> bool:
        sidecar = self._sidecars.read(operation)
        if sidecar is None:
            return True
        names = sidecar_lock_names(sidecar)
        with hold_if_idle(self._locks, names, patient=patient) as guard:
            if guard is None:
                self._stats.event("recover.writer_alive", operation=operation)
                return False
            failpoints.hit("recover.locked")
            sidecar = self._sidecars.read(operation)  # its writer may have finished meanwhile
            if sidecar is not None:
                self.settle(sidecar, guard)
        return True

    def settle(self, sidecar: Sidecar, guard: Guard) -> None:
        """Finish or undo what a sidecar promised, under the locks of its tables."""
        recovery = self._recovered(sidecar, guard)
        failpoints.hit("recover.publish_after")
        if recovery.recovery_kind == ROLLED_FORWARD:
            self._promotions.promote(sidecar.files)
            self._reclaims.reclaim(sidecar.branch, sidecar.reclaim)
        else:
            self._promotions.discard(sidecar.files)
        self._audit.record(recovery)
        failpoints.hit("recover.audit_after")
        failpoints.hit("recover.delete_before")
        self._sidecars.delete(sidecar.operation_id)
        self._stats.event(
            f"recover.{recovery.recovery_kind}",
            level=logging.WARNING,
            operation=sidecar.operation_id,
            kind=sidecar.kind,
            branch=sidecar.branch,
        )

    def _recovered(self, sidecar: Sidecar, guard: Guard) -> Recovery:
        """Bring tables and manifest to agree, and say how."""
        state = self._state(sidecar)
        if state is None:
            return _recovery(sidecar, ORPHANED_BRANCH_DISCARDED, None, ())
        settled = {
            commit.id
            for commit in self._history.find(
                sidecar.branch, [sidecar.commit_id, sidecar.rollback_id]
            )
        }
        if sidecar.commit_id in settled:
            return _recovery(sidecar, ROLLED_FORWARD, sidecar.commit_id, _promised(sidecar))
        if sidecar.rollback_id in settled:
            return _recovery(sidecar, ROLLED_BACK, sidecar.rollback_id, _undone(sidecar, state))
        return self._decide(sidecar, state, guard)

    def _state(self, sidecar: Sidecar) -> State | None:
        """The branch the sidecar was written for; one that was deleted and created again is not."""
        try:
            state = self._manifest.state(sidecar.branch)
        except NotFound:
            return None
        return state if state.identity == sidecar.branch_identity else None

    def _decide(self, sidecar: Sidecar, state: State, guard: Guard) -> Recovery:
        # A table that was dropped meanwhile is nobody's: restoring it would bring it back.
        tables = [table for table in sidecar.tables if table.table_key in state.pins]
        found = [self._look(sidecar, table, state) for table in tables]
        for each in found:
            self._stats.event(
                "recover.classified",
                operation=sidecar.operation_id,
                table=each.table.table_key,
                finding=each.finding,
            )
        _refuse_violations(sidecar, found)
        guard.require_alive()
        moved = all(f.finding is Finding.ROLLED_PAST_EXPECTED for f in found)
        whole = len(found) == len(sidecar.tables) and self._promotions.whole(sidecar.files)
        if found and moved and whole and self._still(sidecar, state):
            return self._roll_forward(sidecar, found)
        return self._roll_back(sidecar, found)

    def _still(self, sidecar: Sidecar, state: State) -> bool:
        """Whether a schema change still finds what it was checked against: every table as it was,
        and no branch that would be left with the old schema."""
        if sidecar.schema is not None and self._datasets.refs(LOCATION):
            return False
        return all(
            key in state.pins and state.pins[key].version == version
            for key, version in sidecar.relied_on.items()
        )

    def _look(self, sidecar: Sidecar, table: SidecarTable, state: State) -> _Found:
        published = state.pins[table.table_key]
        pin = TablePin(
            table.table_key,
            table.table_path,
            published.version,
            table.table_branch,
            table.fork,
            published.row_count,
        )
        head = self._head(table, published)
        finding = classify(
            table,
            pin=pin.version,
            head=int(head.version),
            ours=self._ours(sidecar, head, pin.version),
            multi_step=sidecar.multi_step,
        )
        return _Found(table, pin, head, finding)

    def _head(self, table: SidecarTable, published: TablePin) -> Handle:
        """The table's head. A fork that was cleaned away took nothing published with it."""
        try:
            return self._datasets.open(table.table_path, table.table_branch)
        except NotFound:
            if published.branch == table.table_branch:
                raise
            return self._datasets.handle(published)

    def _ours(self, sidecar: Sidecar, head: Handle, pin: int) -> bool:
        """Whether this operation wrote the versions after the pin. The versions a fold adds carry
        no mark; the confirmation vouches for them, and the first version must carry it anyway."""
        last = pin + 1 if sidecar.multi_step else int(head.version)
        return all(
            operation_of(self._datasets, head, version) == sidecar.operation_id
            for version in range(pin + 1, min(last, int(head.version)) + 1)
        )

    def _roll_forward(self, sidecar: Sidecar, found: Sequence[_Found]) -> Recovery:
        pins = tuple(self._tables.pinned(f.pin, f.head) for f in found)
        self._publish(sidecar, sidecar.commit_id, pins, found)
        outcomes = tuple(
            TableOutcome(p.table_key, f.pin.version, p.version)
            for f, p in zip(found, pins, strict=True)
        )
        return _recovery(sidecar, ROLLED_FORWARD, sidecar.commit_id, outcomes)

    def _roll_back(self, sidecar: Sidecar, found: Sequence[_Found]) -> Recovery:
        pins = tuple(self._restore(sidecar, f) for f in found if f.moved)
        self._publish(sidecar, sidecar.rollback_id, pins, found)
        outcomes = tuple(
            TableOutcome(f.table.table_key, int(f.head.version), f.pin.version) for f in found
        )
        return _recovery(sidecar, ROLLED_BACK, sidecar.rollback_id, outcomes)

    def _restore(self, sidecar: Sidecar, found: _Found) -> TablePin:
        failpoints.hit("recover.restore_before")
        handle = self._residual.restore(found.head, found.pin.version, sidecar.operation_id)
        failpoints.hit("recover.restore_after")
        return self._tables.pinned(found.pin, handle)

    def _publish(
        self,
        sidecar: Sidecar,
        commit_id: CommitId,
        pins: tuple[TablePin, ...],
        found: Sequence[_Found],
    ) -> None:
        failpoints.hit("recover.publish_before")
        forward = commit_id == sidecar.commit_id
        if forward:
            pins = (*under_new_names(pins, sidecar.renames), *sidecar.new_tables)
        new = {*sidecar.renames.values(), *(pin.table_key for pin in sidecar.new_tables)}
        change = Change(
            commit_id=commit_id,
            pins=pins,
            new_tables=tuple(p for p in pins if p.table_key in new) if forward else (),
            tombstones=sidecar.tombstones if forward else (),
            actor=RECOVERY_ACTOR,
            merged_parent=sidecar.merged_parent if forward else None,
            merged_from=sidecar.merged_from if forward else None,
            operation_id=sidecar.operation_id,
            mark=sidecar.mark if forward else None,
            schema=sidecar.schema if forward else None,
        )
        expected: dict[TableKey, int] = {f.pin.table_key: f.pin.version for f in found}
        self._manifest.publish(
            sidecar.branch,
            change,
            expected_table_versions=expected,
            locked=not sidecar.tables,  # then the lock held for the sidecar is the publisher's
        )


def _refuse_violations(sidecar: Sidecar, found: Sequence[_Found]) -> None:
    for each in found:
        if each.finding is Finding.INVARIANT_VIOLATION:
            raise StorageFailed(
                f"recovered operation {sidecar.operation_id}",
                f"{each.table.table_key} is at version {each.head.version}, behind its published "
                f"version {each.pin.version}: its files were changed from outside; the sidecar is "
                "kept for the operator",
            )


def _promised(sidecar: Sidecar) -> tuple[TableOutcome, ...]:
    return tuple(
        TableOutcome(t.table_key, t.expected_version, t.confirmed_version or t.post_commit_pin)
        for t in sidecar.tables
    )


def _undone(sidecar: Sidecar, state: State) -> tuple[TableOutcome, ...]:
    """What a rollback did that published but did not record: a restore is one version further."""
    outcomes = []
    for table in sidecar.tables:
        pin = state.pins.get(table.table_key)
        restored = pin is not None and pin.version > table.expected_version
        found = pin.version - 1 if pin is not None and restored else table.expected_version
        outcomes.append(TableOutcome(table.table_key, found, table.expected_version))
    return tuple(outcomes)


def _recovery(
    sidecar: Sidecar,
    kind: str,
    commit_id: CommitId | None,
    outcomes: tuple[TableOutcome, ...],
) -> Recovery:
    return Recovery(
        operation_id=sidecar.operation_id,
        graph_commit_id=commit_id,
        recovery_kind=kind,
        recovery_for_actor=sidecar.actor,
        sidecar_writer_kind=sidecar.kind,
        graph_branch=owner_of(sidecar.branch),
        per_table_outcomes=outcomes,
        created_at=time.time_ns() // 1000,
    )
