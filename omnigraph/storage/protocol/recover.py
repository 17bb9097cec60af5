"""Crash recovery: settle the sidecars that dead writers left.

Invariant: a sidecar is touched only under the locks its writer holds while it lives, so a live
writer's sidecar is left alone, and a restore can orphan nobody's append. A healer that keeps locks
of its own waits for the publish lock only in name order, so there is no deadlock. After settling,
every table head the sidecar names equals its published version; the operation is in the history
wholly or not at all; there is one audit row; and the sidecar is deleted last, so each step can be
repeated.

    all moved as promised ─▶ publish those heads                    RolledForward
    already published     ─▶ nothing left to publish                RolledForward
    anything else         ─▶ restore moved tables, publish those    RolledBack
    branch is gone        ─▶ nothing to settle                      OrphanedBranchDiscarded
"""

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from enum import StrEnum

from omnigraph.errors import NotFound, StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.storage import failpoints
from omnigraph.storage.lance.datasets import Datasets, Handle, dataset_folder
from omnigraph.storage.lance.inline_commits import InlineResidual
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.lance.transactions import is_restore, operation_of
from omnigraph.storage.lance.written_files import missing_since, version_path
from omnigraph.storage.locks.locks import (
    NONE_KEPT,
    Guard,
    Kept,
    Locks,
    LockTaken,
    hold,
    hold_if_idle,
)
from omnigraph.storage.manifest.history import History
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.publish import ManifestChange, Publisher
from omnigraph.storage.manifest.state import LOCATION, State, publish_lock
from omnigraph.storage.names import owner_of
from omnigraph.storage.protocol.audit import Audit
from omnigraph.storage.protocol.commit import sidecar_lock_names
from omnigraph.storage.protocol.intent import recovered_change, undoing_change
from omnigraph.storage.protocol.promote import Promotions
from omnigraph.storage.protocol.reclaim import Reclaims
from omnigraph.storage.protocol.sidecars import Sidecar, Sidecars, SidecarTable
from omnigraph.storage.records import CommitId, OperationId, TablePin
from omnigraph.storage.recovery_records import (
    ORPHANED_BRANCH_DISCARDED,
    ROLLED_BACK,
    ROLLED_FORWARD,
    Recovery,
    TableOutcome,
)
from omnigraph.storage.stats import Stats


class HeadClass(StrEnum):
    """How a table's head compares with its pin and with what the sidecar promised."""

    NO_MOVEMENT = "NoMovement"
    ROLLED_PAST_EXPECTED = "RolledPastExpected"
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    INCOMPLETE_PHASE_B = "IncompletePhaseB"
    INVARIANT_VIOLATION = "InvariantViolation"


def classify(
    table: SidecarTable, *, pin: int, head: int, ours: bool, multi_step: bool
) -> HeadClass:
    """The class of one table. `ours`: every version after the pin is this operation's own."""
    if head < pin:
        return HeadClass.INVARIANT_VIOLATION
    if head == pin:
        return HeadClass.NO_MOVEMENT
    if multi_step and table.confirmed_version is None:
        return HeadClass.INCOMPLETE_PHASE_B
    promised = table.confirmed_version if multi_step else table.post_commit_pin
    if head == promised and ours and pin == table.expected_version:
        return HeadClass.ROLLED_PAST_EXPECTED
    return HeadClass.UNEXPECTED_AT_P1 if head == pin + 1 else HeadClass.UNEXPECTED_MULTISTEP


@dataclass(frozen=True, slots=True)
class _SeenTable:
    """One table as recovery sees it. `pin` belongs to the sidecar's branch."""

    table: SidecarTable
    pin: TablePin
    head: Handle
    head_class: HeadClass

    @property
    def moved(self) -> bool:
        return self.head_class is not HeadClass.NO_MOVEMENT


class Recoverer:
    """Settles sidecars, at open and before a write."""

    def __init__(
        self,
        datasets: Datasets,
        tables: Tables,
        manifest: Manifest,
        publisher: Publisher,
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
        self._publisher = publisher
        self._history = history
        self._sidecars = sidecars
        self._promotions = promotions
        self._reclaims = reclaims
        self._audit = audit
        self._locks = locks
        self._stats = stats
        self._residual = InlineResidual(datasets)

    def heal(self, *, patient: bool, kept: Kept = NONE_KEPT) -> tuple[OperationId, ...]:
        """Settle every sidecar whose writer is dead; the operations whose writer may live.

        A patient healer waits until it knows. Before a write there is no time for that: a lease
        that looks held is left for a later look, which may find that it never moved. `kept` are
        locks that the caller holds already: their former holders are dead.
        """
        pending = self._sidecars.pending()
        if pending:
            self._watch(pending, kept)
        return tuple(op for op in pending if not self._settle_if_idle(op, patient, kept))

    def _watch(self, pending: Sequence[OperationId], kept: Kept) -> None:
        """Look at the locks of all pending writers first: dead leases run out side by side."""
        names: set[str] = set()
        for operation in pending:
            with suppress(StorageFailed):  # one that cannot be read is refused when its turn comes
                sidecar = self._sidecars.read(operation)
                names.update(() if sidecar is None else sidecar_lock_names(sidecar))
        self._locks.watch(sorted(names - kept.keys()))

    def _settle_if_idle(self, operation: OperationId, patient: bool, kept: Kept) -> bool:
        sidecar = self._sidecars.read(operation)
        if sidecar is None:
            return True
        names = sidecar_lock_names(sidecar)
        with hold_if_idle(self._locks, names, kept=kept, patient=patient) as guard:
            if guard is None:
                self._stats.event("recover.writer_alive", operation=operation)
                return False
            failpoints.hit("recover.locked")
            sidecar = self._sidecars.read(operation)  # its writer may have finished meanwhile
            return sidecar is None or self._settle_in_order(sidecar, guard, kept)

    def _settle_in_order(self, sidecar: Sidecar, guard: Guard, kept: Kept) -> bool:
        """Settle a sidecar under its publish lock too; False if that comes before locks which are
        held, and another writer has it."""
        with ExitStack() as stack:
            try:
                publish = hold(
                    self._locks, [publish_lock(sidecar.branch)], kept={**kept, **guard.locks}
                )
                guard.locks |= stack.enter_context(publish).locks
            except LockTaken:
                self._stats.event("recover.publisher_alive", operation=sidecar.operation_id)
                return False
            self.settle(sidecar, guard)
        return True

    def settle(self, sidecar: Sidecar, guard: Guard) -> None:
        """Finish or undo what a sidecar promised, under the locks of its tables."""
        recovery = self._recovered(sidecar, guard)
        failpoints.hit("recover.publish_after")
        if recovery.recovery_kind == ROLLED_FORWARD:
            self._promotions.promote(sidecar.files)
            self._datasets.flusher.barrier()
            self._reclaims.reclaim(sidecar.branch, sidecar.intent.reclaim)
        else:
            self._promotions.discard(sidecar.files)
        self._audit.record(recovery)
        failpoints.hit("recover.audit_after")
        self._datasets.flusher.barrier()
        failpoints.hit("recover.delete_before")
        self._sidecars.delete(sidecar.operation_id)
        self._stats.event(
            f"recover.{recovery.recovery_kind}",
            level=logging.WARNING,
            operation=sidecar.operation_id,
            kind=sidecar.intent.kind,
            branch=sidecar.branch,
        )

    def _recovered(self, sidecar: Sidecar, guard: Guard) -> Recovery:
        """Bring tables and manifest to agree, and say how."""
        state = self._state(sidecar)
        if state is None:
            return _recovery(sidecar, ORPHANED_BRANCH_DISCARDED, None, ())
        self._owe_head(sidecar, state)
        intent = sidecar.intent
        lineage = self._history.find(sidecar.branch, [intent.commit_id, intent.rollback_id])
        settled = {commit.id for commit in lineage}
        if intent.commit_id in settled:
            return _recovery(sidecar, ROLLED_FORWARD, intent.commit_id, _promised(sidecar))
        if intent.rollback_id in settled:
            return _recovery(sidecar, ROLLED_BACK, intent.rollback_id, _undone(sidecar, state))
        return self._decide(sidecar, state, guard)

    def _owe_head(self, sidecar: Sidecar, state: State) -> None:
        """Its writer may have died between its publish and the flush of it."""
        folder = dataset_folder(LOCATION, owner_of(sidecar.branch))
        self._datasets.flusher.owe([version_path(folder, state.version)])

    def _state(self, sidecar: Sidecar) -> State | None:
        """The branch the sidecar was written for; one that was deleted and created again is not."""
        try:
            state = self._manifest.state(sidecar.branch)
        except NotFound:
            return None
        return state if state.identity == sidecar.intent.branch_identity else None

    def _decide(self, sidecar: Sidecar, state: State, guard: Guard) -> Recovery:
        # A table that was dropped meanwhile is nobody's: restoring it would bring it back.
        tables = [table for table in sidecar.tables if table.table_key in state.pins]
        seen = [self._look(sidecar, table, state) for table in tables]
        for each in seen:
            self._stats.event(
                "recover.classified",
                operation=sidecar.operation_id,
                table=each.table.table_key,
                finding=each.head_class,
            )
        _refuse_violations(sidecar, seen)
        guard.require_alive()
        moved = all(each.head_class is HeadClass.ROLLED_PAST_EXPECTED for each in seen)
        whole = len(seen) == len(sidecar.tables) and self._promotions.whole(sidecar.files)
        if seen and moved and whole and self._still(sidecar, state) and self._has_files(seen):
            return self._roll_forward(sidecar, seen, guard)
        return self._roll_back(sidecar, seen, guard)

    def _still(self, sidecar: Sidecar, state: State) -> bool:
        """Whether a schema change still finds what it was checked against: every table as it was,
        and no branch beside one that does more than add or widen."""
        if sidecar.intent.narrows and self._datasets.refs(LOCATION):
            return False
        return all(
            key in state.pins and state.pins[key].version == version
            for key, version in sidecar.relied_on.items()
        )

    def _has_files(self, seen: Sequence[_SeenTable]) -> bool:
        """Whether every file exists that a head names and its published version does not."""
        return not any(missing_since(self._datasets, each.pin, each.head) for each in seen)

    def _look(self, sidecar: Sidecar, table: SidecarTable, state: State) -> _SeenTable:
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
        head_class = classify(
            table,
            pin=pin.version,
            head=int(head.version),
            ours=self._ours(sidecar, head, pin.version),
            multi_step=sidecar.multi_step,
        )
        return _SeenTable(table, pin, head, head_class)

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
        try:
            return all(
                operation_of(self._datasets, head, version) == sidecar.operation_id
                for version in range(pin + 1, min(last, int(head.version)) + 1)
            )
        except NotFound:
            return False  # a power cut took a version between, and kept a later one

    def _roll_forward(self, sidecar: Sidecar, seen: Sequence[_SeenTable], guard: Guard) -> Recovery:
        pins = tuple(self._tables.pinned(each.pin, each.head) for each in seen)
        for each, pin in zip(seen, pins, strict=True):
            self._datasets.flusher.owe(self._tables.named_since(each.pin, pin))
        self._publish(sidecar, recovered_change(sidecar.intent, pins), seen, guard)
        outcomes = tuple(
            TableOutcome(pin.table_key, each.pin.version, pin.version)
            for each, pin in zip(seen, pins, strict=True)
        )
        return _recovery(sidecar, ROLLED_FORWARD, sidecar.intent.commit_id, outcomes)

    def _roll_back(self, sidecar: Sidecar, seen: Sequence[_SeenTable], guard: Guard) -> Recovery:
        restored = {e.table.table_key for e in seen if e.moved and self._is_restored(sidecar, e)}
        pins = tuple(
            self._restore(sidecar, each, is_done=each.table.table_key in restored)
            for each in seen
            if each.moved
        )
        self._publish(sidecar, undoing_change(sidecar.intent, pins), seen, guard)
        outcomes = tuple(
            TableOutcome(
                each.table.table_key,
                int(each.head.version) - (each.table.table_key in restored),
                each.pin.version,
            )
            for each in seen
        )
        return _recovery(sidecar, ROLLED_BACK, sidecar.intent.rollback_id, outcomes)

    def _is_restored(self, sidecar: Sidecar, seen: _SeenTable) -> bool:
        """Whether an earlier recovery of this sidecar restored the table and died before it could
        publish."""
        return is_restore(
            self._datasets, seen.head, to=seen.pin.version, operation=sidecar.operation_id
        )

    def _restore(self, sidecar: Sidecar, seen: _SeenTable, *, is_done: bool) -> TablePin:
        failpoints.hit("recover.restore_before")
        handle = seen.head
        if not is_done:
            handle = self._residual.restore(seen.head, seen.pin.version, sidecar.operation_id)
        folder = self._datasets.folder(seen.pin)
        self._datasets.flusher.owe([version_path(folder, int(handle.version))])
        failpoints.hit("recover.restore_after")
        return self._tables.pinned(seen.pin, handle)

    def _publish(
        self,
        sidecar: Sidecar,
        change: ManifestChange,
        seen: Sequence[_SeenTable],
        guard: Guard,
    ) -> None:
        failpoints.hit("recover.publish_before")
        self._publisher.publish(
            sidecar.branch,
            change,
            expected_table_versions={each.pin.table_key: each.pin.version for each in seen},
            kept=guard.locks,
        )


def _refuse_violations(sidecar: Sidecar, seen: Sequence[_SeenTable]) -> None:
    for each in seen:
        if each.head_class is HeadClass.INVARIANT_VIOLATION:
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
        undone = pin.version - 1 if pin is not None and restored else table.expected_version
        outcomes.append(TableOutcome(table.table_key, undone, table.expected_version))
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
        recovery_for_actor=sidecar.intent.actor,
        sidecar_writer_kind=sidecar.intent.kind,
        graph_branch=owner_of(sidecar.branch),
        per_table_outcomes=outcomes,
        created_at=time.time_ns() // 1000,
    )
