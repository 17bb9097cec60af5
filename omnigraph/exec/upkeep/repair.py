"""Repair, on every branch: settle what dead writers left, then end the drift that remains.

Invariant: with a sidecar that cannot be settled nothing is repaired: the sidecar knows better.
"""

from omnigraph.storage.store import Store
from omnigraph.storage.upkeep.repair import RepairReport, RunLooks


def repair(
    store: Store,
    *,
    confirm: bool = False,
    force: bool = False,
    actor: str | None = None,
    run: RunLooks | None = None,
) -> RepairReport:
    """Say what drifted, and end it when asked to."""
    branches = store.history.branches()
    if not confirm:
        return store.repairer.repair(branches, confirm=False, force=force, actor=actor, run=run)
    with store.upkeep():
        store.heal()
        return store.repairer.repair(branches, confirm=True, force=force, actor=actor, run=run)
