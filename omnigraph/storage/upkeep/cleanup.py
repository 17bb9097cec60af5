"""Cleanup (garbage collection): versions, forks and files that no kept commit, branch or writer
needs.

Invariant: a version is removed only when it is older than what its line published `RECLAIM_AGE_S`
ago, no kept commit and no live branch pins it, no Lance branch starts at it and no sidecar names
it. Files that no version names go once they are older than the longest write (`SAFE_AGE_S`).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field

from omnigraph.errors import NotFound, OmnigraphError, Reclaimed, StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.storage import failpoints
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.lance.named_files import missing_files
from omnigraph.storage.lance.old_versions import reclaim_versions, versions_of
from omnigraph.storage.locks.locks import Locks, hold
from omnigraph.storage.manifest import manifest
from omnigraph.storage.manifest.branches import BRANCHES_LOCK
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.queries import Queries
from omnigraph.storage.manifest.state import LOCATION as MANIFEST
from omnigraph.storage.manifest.state import State
from omnigraph.storage.manifest.timeline import TableHistory
from omnigraph.storage.names import MAIN, decode, encode, lock_name, owner_of
from omnigraph.storage.objects import Objects
from omnigraph.storage.protocol.audit import LOCATION as AUDIT
from omnigraph.storage.protocol.sidecars import Sidecars
from omnigraph.storage.records import TablePin
from omnigraph.storage.stats import Stats
from omnigraph.types import TableKey

SAFE_AGE_S = 7 * 24 * 3600
"""What Lance takes for the longest time between writing a file and naming it in a version."""

Line = tuple[str, str | None]
"""A dataset, or one of its Lance branches: its folder, and the branch."""


@dataclass(frozen=True, slots=True)
class TableCleanup:
    """What went from one table, or would go. A failure is told, and stops no other table."""

    table: str
    versions: int = 0
    bytes: int = 0
    forks: tuple[str, ...] = ()
    files: int = 0
    error: str | None = None

    @property
    def nothing(self) -> "TableCleanup":
        """The same table, from which nothing went."""
        return TableCleanup(self.table)


@dataclass(slots=True)
class _Needs:
    """The versions that stay, by line, and the newest published version of each line."""

    versions: dict[Line, set[int]] = field(default_factory=dict)
    published: dict[Line, int] = field(default_factory=dict)
    forks: set[tuple[str, str, str]] = field(default_factory=set)  # folder, branch, identity
    tables: dict[str, TableKey] = field(default_factory=dict)  # by folder, also those dropped
    unreadable: dict[str, str] = field(default_factory=dict)  # by folder, why
    forked: set[TablePin] = field(default_factory=set)  # heads in folders of branches

    def keep(self, line: Line, version: int) -> None:
        self.versions.setdefault(line, set()).add(version)

    def pin(self, pin: TablePin) -> None:
        self.keep((pin.location, pin.branch), pin.version)
        if pin.branch is not None:
            self.forks.add((pin.location, pin.branch, pin.fork))

    def branch(
        self, state: State, history: TableHistory, versions: tuple[int, ...], floor: int
    ) -> None:
        """What these manifest versions of a branch show, and everything newer than its floor."""
        owner = owner_of(state.branch)
        then, kept = history.pins_at([floor]), history.pins_at(versions)
        self.published[(MANIFEST, owner)] = floor
        for version in versions:
            self.keep((MANIFEST, owner), version)
        for pin in (*kept, *then, *state.pins.values()):
            self.pin(pin)
        self.forked.update(pin for pin in state.pins.values() if pin.branch is not None)
        # What is newer than the floor stays: somebody may be counting versions up from there.
        self.published |= {(p.location, owner): p.version for p in then if p.branch == owner}
        shown = {pin.location for pin in (*then, *state.pins.values())}
        for pin in history.all:
            self.tables[pin.location] = pin.table_key
            if pin.branch == owner and pin.location not in shown:
                line = (pin.location, owner)  # a table that was dropped
                self.published[line] = max(self.published.get(line, 0), pin.version)


@dataclass(frozen=True, slots=True)
class LineTask:
    """Versions of one line that go, or that are only counted. Any process can do it."""

    table: str
    line: Line
    versions: tuple[int, ...]
    confirm: bool


RunLines = Callable[[Sequence[LineTask]], Sequence[TableCleanup]]


class Reclaimer:
    """Finds and removes what nobody needs."""

    def __init__(
        self,
        datasets: Datasets,
        manifest: Manifest,
        queries: Queries,
        sidecars: Sidecars,
        objects: Objects,
        locks: Locks,
        stats: Stats,
    ) -> None:
        self._datasets = datasets
        self._manifest = manifest
        self._queries = queries
        self._sidecars = sidecars
        self._objects = objects
        self._locks = locks
        self._stats = stats

    @property
    def age_s(self) -> float:
        """No version that was published or replaced more recently is removed."""
        return manifest.RECLAIM_AGE_S

    def reclaim(
        self,
        kept: Mapping[str, Iterable[int]],
        floors: Mapping[str, int],
        *,
        confirm: bool,
        run: RunLines | None = None,
    ) -> tuple[TableCleanup, ...]:
        """Remove what the kept commits do not need, or say what would go.

        `kept` has, by branch, the manifest versions of the commits to keep. What a branch's
        manifest showed at its floor, and everything newer, stays in any case.
        """
        needs = self._needs(kept, floors)
        tables: dict[str, TableCleanup] = {}
        tasks: list[LineTask] = []
        for folder in (*sorted(needs.tables), *self._unnamed(needs)):
            cleaned, lines = self._table(needs, folder, confirm)
            # A name may have lived twice, in two folders.
            tables[cleaned.table] = _plus(tables.get(cleaned.table, cleaned.nothing), cleaned)
            tasks += lines
        for done in run(tasks) if run is not None else map(self.run, tasks):
            tables[done.table] = _plus(tables[done.table], done)
        # The manifest comes last: until its versions go, a table's are only kept for too long.
        return (
            *tables.values(),
            self._audit(confirm),
            self._manifest_lines(needs, floors, confirm),
        )

    def run(self, task: LineTask) -> TableCleanup:
        """Do one task. A failure is what it gives back."""
        try:
            failpoints.hit("cleanup.table")
            counts = reclaim_versions(
                self._datasets, *task.line, list(task.versions), confirm=task.confirm
            )
        except (OmnigraphError, OSError) as cause:
            self._stats.event("cleanup.failed", table=task.table, cause=cause)
            return TableCleanup(task.table, error=str(cause))
        versions, size, files = counts
        return TableCleanup(task.table, versions, size, (), files)

    # What is needed

    def _needs(self, kept: Mapping[str, Iterable[int]], floors: Mapping[str, int]) -> _Needs:
        needs = _Needs()
        for branch, versions in kept.items():
            try:
                state = self._manifest.state(branch)
                history = self._queries.table_history(state)
                needs.branch(state, history, tuple(versions), floors[branch])
            except NotFound:
                if branch in self._live():
                    raise
                # It was deleted since, so nobody reads there; its line is left alone.
        for folder in (MANIFEST, *needs.tables):
            self._keep_fork_points(needs, folder)
        self._keep_sidecars(needs)
        return needs

    def _keep_fork_points(self, needs: _Needs, folder: str) -> None:
        try:
            refs = self._datasets.refs(folder)
        except NotFound:
            return  # a table that was dropped, and whose files are gone
        except OmnigraphError as cause:
            needs.unreadable[folder] = str(cause)
            return
        for segment, ref in refs.items():
            parent = None if ref.parent_branch is None else decode(ref.parent_branch)
            needs.keep((folder, parent), ref.parent_version)
            needs.keep((folder, decode(segment)), ref.parent_version)  # where a diff comes by

    def _keep_sidecars(self, needs: _Needs) -> None:
        for operation in self._sidecars.pending():
            sidecar = self._sidecars.read(operation)
            for table in () if sidecar is None else sidecar.tables:
                needs.keep((table.table_path, table.table_branch), table.expected_version)

    # One table

    def _table(
        self, needs: _Needs, folder: str, confirm: bool
    ) -> tuple[TableCleanup, list[LineTask]]:
        """Drop a table's orphaned forks, and say which versions of its lines go."""
        key = str(needs.tables.get(folder, folder))
        cleaned = TableCleanup(key)
        if folder in needs.unreadable:
            return TableCleanup(key, error=needs.unreadable[folder]), []
        try:
            if not any(line[0] == folder for line in needs.versions):
                return self._folder(cleaned, folder, confirm), []
            self._require_no_misplaced(needs, folder)
            orphans = self._orphans(needs, folder)
            for branch in orphans:
                self._drop_fork(TableKey(key), folder, branch, confirm)
            cleaned = TableCleanup(key, forks=orphans)
            lines_left = {None, *map(decode, self._datasets.refs(folder))} - set(orphans)
            lines = [n for n in needs.versions if n[0] == folder and n[1] in lines_left]
            return cleaned, self._tasks(key, needs, sorted(lines, key=str), confirm)
        except OmnigraphError as cause:
            self._stats.event("cleanup.failed", table=key, cause=cause)
            return _plus(cleaned, TableCleanup(key, error=str(cause))), []

    def _require_no_misplaced(self, needs: _Needs, folder: str) -> None:
        """Raise `StorageFailed` where a file is in the folder of another branch: no version names
        it there, so it would be removed as garbage in the end."""
        for pin in sorted((p for p in needs.forked if p.location == folder), key=str):
            with suppress(NotFound, Reclaimed):  # `check` says what is missing
                found = [each.found for each in missing_files(self._datasets, pin) if each.found]
                if found:
                    raise StorageFailed(
                        f"cleaned up {pin.table_key}",
                        f"misplaced deletion file {found[0]}; run `omnigraph repair` first",
                    )

    def _tasks(
        self, key: str, needs: _Needs, lines: Sequence[Line], confirm: bool
    ) -> list[LineTask]:
        """What is to be done on the lines of one table. Lance asks every branch what it names
        before it removes anything, so a branch that has nothing to remove is not asked for."""
        tasks = [self._line(key, needs, line, confirm) for line in lines]
        idle = [each.line for each in tasks if not each.versions and each.line[1] is not None]
        aged = self._aged(idle[0][0]) if idle else set()
        return [each for each in tasks if each.line not in idle or each.line[1] in aged]

    def _aged(self, folder: str) -> set[str]:
        """The Lance branches of a table with files older than the longest write."""
        tree = f"{folder}/tree/"
        oldest: dict[str, float] = {}
        for file in self._objects.listed(tree.rstrip("/")):
            segment = file.path.removeprefix(tree).partition("/")[0]
            oldest[segment] = min(oldest.get(segment, file.modified), file.modified)
        now = time.time()
        return {decode(each) for each, since in oldest.items() if now - since >= SAFE_AGE_S}

    def _line(self, key: str, needs: _Needs, line: Line, confirm: bool) -> LineTask:
        published = needs.published.get(line, 0)
        versions = versions_of(self._datasets, *line) if published else []
        gone = (v for v in versions if v < published and v not in needs.versions[line])
        return LineTask(key, line, tuple(gone), confirm)

    def _orphans(self, needs: _Needs, folder: str) -> tuple[str, ...]:
        """Lance branches of a table that no row of a live branch names, and leftovers of such."""
        refs = self._datasets.refs(folder)
        live = self._live()
        orphans = set()
        for segment, ref in refs.items():
            name = decode(segment)
            if (folder, name, ref.identity) in needs.forks:
                continue
            # On a live branch it may be a first write under way, which has no sidecar yet.
            if name not in live or time.time() - ref.created_at > SAFE_AGE_S:
                orphans.add(name)
        for entry in self._objects.folders(f"{folder}/tree"):
            if entry not in refs and decode(entry) not in live:
                orphans.add(decode(entry))
        parents = {decode(r.parent_branch) for r in refs.values() if r.parent_branch is not None}
        return tuple(sorted(orphans - parents))

    def _drop_fork(self, key: TableKey, folder: str, branch: str, confirm: bool) -> None:
        if not confirm:
            return
        with hold(self._locks, [lock_name(key, branch)]):
            self._datasets.delete_branch(folder, branch)
        self._stats.event("cleanup.fork", table=key, branch=branch)

    def _live(self) -> set[str]:
        return {MAIN, *map(decode, self._datasets.refs(MANIFEST))}

    # Folders, files, the audit, the manifest

    def _unnamed(self, needs: _Needs) -> list[str]:
        """Folders below `nodes/` and `edges/` that no manifest names."""
        folders = {
            f"{kind}/{name}" for kind in ("nodes", "edges") for name in self._objects.folders(kind)
        }
        return sorted(folders - set(needs.tables))

    def _folder(self, cleaned: TableCleanup, folder: str, confirm: bool) -> TableCleanup:
        """A table no kept commit has: the end of one that was dropped, or never published."""
        files = self._objects.listed(folder)
        newest = max((file.modified for file in files), default=0.0)
        if not files or time.time() - newest < SAFE_AGE_S:
            return cleaned
        if confirm:
            self._objects.delete_prefix(folder)
        size = sum(file.size for file in files)
        return TableCleanup(cleaned.table, bytes=size, files=len(files))

    def _audit(self, confirm: bool) -> TableCleanup:
        try:
            gone = tuple(versions_of(self._datasets, AUDIT, None)[:-1])
        except OmnigraphError as cause:
            return TableCleanup(AUDIT, error=str(cause))
        return self.run(LineTask(AUDIT, (AUDIT, None), gone, confirm))

    def _manifest_lines(
        self, needs: _Needs, floors: Mapping[str, int], confirm: bool
    ) -> TableCleanup:
        cleaned = TableCleanup(MANIFEST)
        try:
            failpoints.hit("cleanup.manifest")
            lines: list[Line] = [(MANIFEST, owner_of(branch)) for branch in floors]
            for line in lines:
                needs.versions.setdefault(line, set())
            for task in self._tasks(MANIFEST, needs, lines, confirm):
                cleaned = _plus(cleaned, self.run(task))
            left = self._leftover_branches(confirm)
        except (OmnigraphError, OSError) as cause:
            return _plus(cleaned, TableCleanup(MANIFEST, error=str(cause)))
        return _plus(cleaned, TableCleanup(MANIFEST, forks=left))

    def _leftover_branches(self, confirm: bool) -> tuple[str, ...]:
        """Folders of branches that were never finished, or not wholly deleted."""
        with hold(self._locks, [BRANCHES_LOCK] if confirm else []):
            live = self._live()
            left = [decode(e) for e in self._objects.folders(f"{MANIFEST}/tree")]
            left = [branch for branch in left if branch not in live]
            for branch in left if confirm else ():
                self._objects.delete_prefix(f"{MANIFEST}/tree/{encode(branch)}")
        return tuple(left)


def _plus(cleaned: TableCleanup, more: TableCleanup) -> TableCleanup:
    return TableCleanup(
        cleaned.table,
        cleaned.versions + more.versions,
        cleaned.bytes + more.bytes,
        (*cleaned.forks, *more.forks),
        cleaned.files + more.files,
        more.error or cleaned.error,
    )
