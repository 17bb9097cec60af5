"""Repair of drift on every branch: recover dead writers, then publish or restore moved table heads.

Invariant: nothing is repaired beside a sidecar that cannot be recovered: the sidecar has the facts.
"""

from omnigraph.storage.records import NO_NOTE, CommitNote
from omnigraph.storage.store import Store
from omnigraph.storage.upkeep.repair import RepairReport, RunLooks


def repair(
    store: Store,
    *,
    confirm: bool = False,
    force: bool = False,
    note: CommitNote = NO_NOTE,
    run: RunLooks | None = None,
) -> RepairReport:
    """Report drift, and repair it with `confirm`."""
    branches = store.history.branches()
    if not confirm:
        return store.repairer.repair(branches, confirm=False, force=force, note=note, run=run)
    with store.upkeep():
        store.heal()
        return store.repairer.repair(branches, confirm=True, force=force, note=note, run=run)
