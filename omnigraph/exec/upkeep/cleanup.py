"""Cleanup (garbage collection): what the kept commits do not need is removed, or counted.

Which commits are kept, and why, is decided by `retention`.

Invariant: a commit is kept whole, with the manifest and every table version it pins, or not at all.
The head of a live branch is always kept. That the claim of a feed consumer ended is recorded before
anything it needs is removed. Without `confirm` nothing changes.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from omnigraph import environment
from omnigraph.errors import BadRequest, NotFound
from omnigraph.exec.changes.consumers import FeedConsumer, end_claim
from omnigraph.exec.durations import GRACE, Duration, seconds
from omnigraph.exec.schemas import ARCHIVE
from omnigraph.exec.threads import in_order
from omnigraph.exec.upkeep.retention import KeptCommit, Retained, RetentionPolicy, retain
from omnigraph.exec.upkeep.schemas_in_use import schemas_in_use
from omnigraph.storage.derived.derived_folder import FOLDER
from omnigraph.storage.store import Store
from omnigraph.storage.upkeep.cleanup import LineTask, RunLines, TableCleanup

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What was removed, or, without `confirmed`, what would be.

    `kept` are the commits that stay, newest first, each with its reasons. `consumers_lapsed` are
    the feed consumers past their largest lag that lose commits they have not acknowledged.

    >>> graph.cleanup(keep=10).confirmed
    False
    """

    tables: tuple[TableCleanup, ...]
    keep: int | None
    older_than_s: int | None
    kept: tuple[KeptCommit, ...]
    commits_reclaimed: int
    consumers_lapsed: tuple[FeedConsumer, ...]
    confirmed: bool

    @property
    def commits_kept(self) -> int:
        """How many commits stay readable."""
        return len(self.kept)

    @property
    def errors(self) -> tuple[TableCleanup, ...]:
        """The tables that failed. The others are done."""
        return tuple(table for table in self.tables if table.error is not None)


def cleanup(
    store: Store,
    *,
    keep: int | None = None,
    older_than: Duration | None = None,
    confirm: bool = False,
    grace: Duration = GRACE,
    run: RunLines | None = None,
) -> CleanupReport:
    """Remove what the policy does not keep; without `confirm` only report it."""
    if keep is None and older_than is None:
        raise BadRequest("cleanup needs a policy", "pass keep, older_than, or both")
    if keep is not None and (isinstance(keep, bool) or keep < 1):
        raise BadRequest(f"keep is {keep}", "keep at least 1 commit")
    age = None if older_than is None else seconds(older_than)
    if not confirm:
        return _cleanup(store, keep, age, seconds(grace), confirm=False, run=run)
    store.owned_branches.remove_ownerless()
    with store.upkeep(reclaims=True):
        store.heal(if_room=True)  # what a pending sidecar needs is kept
        report = _cleanup(store, keep, age, seconds(grace), confirm=True, run=run)
        store.heal(if_room=True)  # there may be room now
        report = replace(report, tables=(*report.tables, *_derived(store)))
        store.forget()  # its caches may name removed versions
        return report


def _cleanup(
    store: Store,
    keep: int | None,
    age: int | None,
    grace: int,
    *,
    confirm: bool,
    run: RunLines | None,
) -> CleanupReport:
    policy = RetentionPolicy(keep, age, grace, store.reclaimer.age_s)
    retained = _retained(store, policy)
    if confirm:
        for losing in retained.losing:
            end_claim(store, losing.claim, retained.ids)
    tables = store.reclaimer.reclaim(
        retained.versions, retained.floors, confirm=confirm, run=run or partial(_here, store)
    )
    in_use = partial(schemas_in_use, store, retained, reclaimed=confirm)
    return CleanupReport(
        (*tables, *store.leftovers.remove(ARCHIVE, in_use, confirm=confirm)),
        keep,
        age,
        retained.kept,
        retained.commits_gone,
        tuple(losing.described() for losing in retained.losing),
        confirm,
    )


def _retained(store: Store, policy: RetentionPolicy) -> Retained:
    """What stays, decided again when a branch goes meanwhile: nothing was removed by then."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(NotFound):
            return retain(store, policy)
    return retain(store, policy)


def _derived(store: Store) -> tuple[TableCleanup, ...]:
    """The derived files of versions that are gone by now."""
    files, size = store.derived.remove_unreadable()
    return (TableCleanup(FOLDER, bytes=size, files=files),) if files else ()


def _here(store: Store, tasks: Sequence[LineTask]) -> list[TableCleanup]:
    """Run tasks in threads of this process, which mostly wait for the store."""
    threads = environment.MAINTENANCE_CONCURRENCY.read()
    return list(in_order(store.reclaimer.run, tasks, threads=threads)) if tasks else []
