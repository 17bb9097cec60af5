"""Copy of a whole graph to another root: the locks, the plan and the copy put together.

Invariant: while a copy is made no cleanup removes a file of the source, and one copy at a time is
made to a target. The source is only read; of a read-only source not even a lock is taken.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omnigraph.errors import BadRequest, StorageFailed
from omnigraph.storage.locks.locks import hold, make_locks
from omnigraph.storage.manifest.branches import BACKUP_LOCK
from omnigraph.storage.objects import Objects, Root, StorageOptions, root_of
from omnigraph.storage.store import Store
from omnigraph.storage.upkeep.backup_copy import BackupCopy, CopyEach, CopyNeeds
from omnigraph.storage.upkeep.backup_plan import BackupPlanner, CopyPlan, Vanished

_ATTEMPTS = 5


class GraphCopy:
    """One copy of a graph, ready to be made."""

    def __init__(self, target: Root, plan: CopyPlan, copy: BackupCopy) -> None:
        self.uri = target.uri
        self.plan = plan
        self.needs: CopyNeeds = copy.needs()
        self._copy = copy

    @property
    def heads(self) -> dict[str, str]:
        """The commits of the branches at the moment of the copy."""
        return {branch: str(commit) for branch, (commit, _) in self.plan.heads.items()}

    def run(self, each: CopyEach) -> None:
        """Copy what is needed; the target is whole when this returns."""
        self._copy.run(self.needs, each)


def copy_graph(
    store: Store, target: str, options: StorageOptions | None, *, each: CopyEach | None
) -> GraphCopy:
    """Copy a graph, or without `each` only say what would be copied.

    A branch that is deleted meanwhile takes its files along; then another moment is chosen, and
    what was copied already is used.
    """
    root = root_of(target, options)
    _require_apart(store.where, root)
    root.require_branchable()
    for attempt in range(_ATTEMPTS):
        try:
            return _copied(store, root, each)
        except Vanished as gone:
            if attempt == _ATTEMPTS - 1:
                raise StorageFailed(
                    f"copied {store.where.uri}", f"{gone} is not there; run `omnigraph check`"
                ) from gone
    raise AssertionError


def _copied(store: Store, root: Root, each: CopyEach | None) -> GraphCopy:
    with _locked(store, root, dry_run=each is None):
        planner = BackupPlanner(store.datasets, store.manifest, store.queries, store.objects)
        plan = planner.plan()
        copy = BackupCopy(store.objects, Objects(root, store.stats), root, plan)
        copy.require_own()
        ready = GraphCopy(root, plan, copy)
        if each is not None:
            ready.run(each)
            store.stats.event("backup.made", target=root.uri, files=ready.needs.files)
        return ready


@contextmanager
def _locked(store: Store, root: Root, *, dry_run: bool) -> Iterator[None]:
    if dry_run:
        yield
        return
    if root.path is not None:
        _make_folder(root.path)
    locks = make_locks(root, Objects(root, store.stats), store.stats, term_s=store.lease_term_s)
    with (
        hold(store.locks, [] if store.read_only else [BACKUP_LOCK]),
        hold(locks, [BACKUP_LOCK]),
    ):
        yield


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise StorageFailed(f"made the folder {path}", str(cause)) from cause


def _require_apart(source: Root, target: Root) -> None:
    """Refuse a target that is the source, inside it or around it."""
    ours, theirs = (
        f"{root.uri if root.path is None else root.path.resolve()}/" for root in (source, target)
    )
    if ours.startswith(theirs) or theirs.startswith(ours):
        raise BadRequest(
            f"the target '{target.uri}' and the graph '{source.uri}' are not apart",
            "back up elsewhere",
        )
