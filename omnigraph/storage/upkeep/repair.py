"""Repair of misplaced files and of drift: a table head ahead of the manifest that no sidecar
explains.

    misplaced_file         a deletion file is in another branch's folder    ─▶ move the file
    missing_file           a published version names a file that is gone    ─▶ refuse
    verified_maintenance   compaction and indexes, and not one row differs  ─▶ publish the head
    suspicious             rows or columns were written                     ─▶ refuse, or undo
    unverifiable           what was written cannot be told                  ─▶ refuse, or undo
    behind                 published versions are gone                      ─▶ refuse
    pending                a sidecar explains it (a preview alone sees it)  ─▶ recover first

Invariant: what becomes visible is what was visible before, row by row. To undo is to restore the
published content, by the same protocol as recovery: sidecar first, one publish, one audit row. The
foreign versions stay in the table's history until cleanup. A file is copied to where a published
version expects it; nothing is published, and the stray copy is left to cleanup. Without `confirm`
nothing changes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.deferred import deferred
from omnigraph.errors import OmnigraphError, RecoveryRequired, StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.storage import failpoints
from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.lance.delta import Deltas
from omnigraph.storage.lance.named_files import BRING_BACK, MissingFile, missing_files, placed
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.lance.transactions import operations_since
from omnigraph.storage.locks.locks import Guard, Locks, hold
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.publish import ManifestChange, Publisher
from omnigraph.storage.names import lock_name, owner_of
from omnigraph.storage.protocol.intent import Intent, WriterKind
from omnigraph.storage.protocol.recover import Recoverer
from omnigraph.storage.protocol.sidecars import Sidecar, Sidecars, SidecarTable
from omnigraph.storage.records import NO_NOTE, CommitId, CommitNote, OperationId, TablePin
from omnigraph.storage.upkeep.drift import Drift, Drifts
from omnigraph.types import TableKey

if TYPE_CHECKING:
    from ulid import ULID
else:
    ULID = deferred("ulid", "ULID")

NO_DRIFT, MAINTENANCE = "none", "verified_maintenance"
SUSPICIOUS, UNVERIFIABLE, BEHIND = "suspicious", "unverifiable", "behind"
PENDING = "pending"
MISPLACED, MISSING = "misplaced_file", "missing_file"

_KEEPS_ROWS = frozenset({"Rewrite", "CreateIndex", "ReserveFragments"})


@dataclass(frozen=True, slots=True)
class TableRepair:
    """One table of one branch: how its head compares with what is published, and what was done.

    `action` is none, move, heal, undo, recover or refused; without confirmation it is what would be
    done. `files` are those that a published version expects, and that are moved or missing.
    """

    table: TableKey
    branch: str
    published_version: int
    head_version: int
    classification: str = NO_DRIFT
    action: str = "none"
    operations: tuple[str, ...] = ()
    error: str | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """A table of a branch to be looked at, in any process."""

    branch: str
    table: TableKey
    force: bool
    confirm: bool = False


RunLooks = Callable[[Sequence[Look]], Sequence[TableRepair]]


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Every table of every branch.

    >>> graph.repair().confirmed
    False
    """

    tables: tuple[TableRepair, ...]
    confirmed: bool
    forced: bool
    commit_ids: tuple[str, ...]

    @property
    def refused(self) -> tuple[TableRepair, ...]:
        """The tables that were left as they are."""
        return tuple(table for table in self.tables if table.action == "refused")


class Repairer:
    """Classifies drift, and ends it."""

    def __init__(
        self,
        datasets: Datasets,
        tables: Tables,
        deltas: Deltas,
        manifest: Manifest,
        publisher: Publisher,
        sidecars: Sidecars,
        drifts: Drifts,
        recoverer: Recoverer,
        locks: Locks,
    ) -> None:
        self._datasets = datasets
        self._tables = tables
        self._deltas = deltas
        self._manifest = manifest
        self._publisher = publisher
        self._sidecars = sidecars
        self._drifts = drifts
        self._recoverer = recoverer
        self._locks = locks

    def repair(
        self,
        branches: Sequence[str],
        *,
        confirm: bool,
        force: bool,
        note: CommitNote = NO_NOTE,
        run: RunLooks | None = None,
    ) -> RepairReport:
        """Look at every table, move misplaced files, and end the drift that may be ended."""
        tables: list[TableRepair] = []
        # A drift is classified by reading the table, so its files come first.
        files = {
            (each.branch, each.table): each
            for branch in branches
            for key in self._own(branch)
            for each in self._files(branch, key, confirm)
        }
        commits: list[str] = []
        looks = [
            Look(branch, key, force, confirm) for branch in branches for key in self._own(branch)
        ]
        seen = run(looks) if run is not None else [self.look(each) for each in looks]
        for branch in branches:
            looked = [table for table in seen if table.branch == branch]
            drifted = [table.table for table in looked if table.action in ("heal", "undo")]
            if confirm and drifted:
                done, published = self._end(branch, drifted, force, note)
                commits += published
                looked = [done.get(table.table, table) for table in looked]
            for table in looked:
                of_files = files.get((table.branch, table.table))
                tables += [table] if of_files is None or table.action != "none" else []
                tables += [] if of_files is None else [of_files]
        return RepairReport(tuple(tables), confirm, force, tuple(commits))

    def _own(self, branch: str) -> list[TableKey]:
        pins = self._manifest.state(branch).pins
        return sorted(key for key, pin in pins.items() if pin.branch == owner_of(branch))

    # Files

    def _files(self, branch: str, key: TableKey, confirm: bool) -> Iterator[TableRepair]:
        """The files that the published version of a table lacks; with `confirm`, the misplaced ones
        are moved to where it expects them."""
        pin = self._manifest.state(branch).pins[key]
        try:
            missing = missing_files(self._datasets, pin)
        except OmnigraphError:
            return  # the look at the head says it
        report = TableRepair(key, branch, pin.version, pin.version)
        gone = tuple(each.path for each in missing if each.found is None)
        misplaced = tuple(each for each in missing if each.found is not None)
        if gone:
            text = f"{len(gone)} file(s) are missing, like {gone[0]}; {BRING_BACK}"
            yield replace(report, classification=MISSING, action="refused", error=text, files=gone)
        elif misplaced:
            paths = tuple(each.path for each in misplaced)
            moved = replace(report, classification=MISPLACED, action="move", files=paths)
            yield self._moved(moved, misplaced) if confirm else moved

    def _moved(self, report: TableRepair, misplaced: Sequence[MissingFile]) -> TableRepair:
        with hold(self._locks, [lock_name(report.table, report.branch)]):
            try:
                for each in misplaced:
                    placed(self._datasets, each)
            except StorageFailed as cause:
                return replace(report, action="refused", error=str(cause))
            finally:
                self._datasets.forget(misplaced[0].version.location)
        return report

    # Looking

    def look(self, asked: Look) -> TableRepair:
        """How a table's head compares with what is published, and what would be done."""
        branch, key, force = asked.branch, asked.table, asked.force
        try:
            drift = self._drifts.of(branch, key)
        except RecoveryRequired as cause:
            pin = self._manifest.state(branch).pins[key]
            report = TableRepair(key, branch, pin.version, self._drifts.head(pin))
            sidecar = None if asked.confirm else self._drifts.explained(branch, key)
            if sidecar is None:
                return replace(report, action="refused", error=str(cause))
            # A confirmed repair recovers it before it looks.
            return replace(report, classification=PENDING, action="recover", error=str(cause))
        if drift is None:
            pin = self._manifest.state(branch).pins[key]
            return TableRepair(key, branch, pin.version, pin.version)
        return self._classified(branch, drift, force)

    def _classified(self, branch: str, drift: Drift, force: bool) -> TableRepair:
        report = TableRepair(drift.pin.table_key, branch, drift.pin.version, drift.head)
        if drift.is_behind:
            text = "versions that were published are gone; bring their files back from a copy"
            return replace(report, classification=BEHIND, action="refused", error=text)
        try:
            operations = operations_since(self._datasets, drift.pin, drift.head)
            same = _KEEPS_ROWS.issuperset(operations) and self._same(drift)
        except OmnigraphError as cause:
            text = f"its history cannot be read ({cause})"
            return _undone(report, UNVERIFIABLE, force, text)
        report = replace(report, operations=operations)
        if same:
            return replace(report, classification=MAINTENANCE, action="heal")
        text = "somebody wrote to it without this program"
        return _undone(report, SUSPICIOUS, force, text)

    def _same(self, drift: Drift) -> bool:
        """Whether the head has the rows and columns that are published."""
        head = replace(drift.pin, version=drift.head)
        ours, theirs = self._datasets.handle(drift.pin), self._datasets.handle(head)
        return bool(
            ours.schema == theirs.schema
            and ours.count_rows() == theirs.count_rows()
            and self._deltas.touched(drift.pin, head).num_rows == 0
        )

    # Ending

    def _end(
        self, branch: str, keys: Sequence[TableKey], force: bool, note: CommitNote
    ) -> tuple[dict[TableKey, TableRepair], list[str]]:
        """Look once more under the locks, then publish what is verified and undo the rest."""
        with hold(self._locks, [lock_name(key, branch) for key in keys]) as guard:
            drifts = [self._drifts.under_lock(branch, key) for key in keys]
            drifted = {
                drift.pin.table_key: (drift, self._classified(branch, drift, force))
                for drift in drifts
                if drift is not None
            }
            heal = [drift for drift, report in drifted.values() if report.action == "heal"]
            undo = [drift for drift, report in drifted.values() if report.action == "undo"]
            published = [self._publish(branch, heal, note)] if heal else []
            if undo:
                published.append(self._undo(branch, undo, note, guard))
        return {key: report for key, (_, report) in drifted.items()}, published

    def _publish(self, branch: str, drifts: Sequence[Drift], note: CommitNote) -> str:
        failpoints.hit("repair.publish")
        heads = [self._head(drift) for drift in drifts]
        commit = self._publisher.publish(
            branch,
            ManifestChange(commit_id=CommitId(str(ULID())), pins=tuple(heads), **note.stated),
            expected_table_versions={d.pin.table_key: d.pin.version for d in drifts},
        )
        return commit.id

    def _head(self, drift: Drift) -> TablePin:
        pin = replace(drift.pin, version=drift.head)
        return self._tables.pinned(pin, self._datasets.handle(pin))

    def _undo(self, branch: str, drifts: Sequence[Drift], note: CommitNote, guard: Guard) -> str:
        """A sidecar that promises nothing: recovery restores what is published."""
        intent = Intent(
            operation_id=OperationId(str(ULID())),
            kind=WriterKind.REPAIR,
            **note.stated,
            branch=branch,
            branch_identity=self._manifest.identity(branch),
            commit_id=CommitId(str(ULID())),
            rollback_id=CommitId(str(ULID())),
        )
        sidecar = Sidecar(intent, tables=tuple(_note(drift) for drift in drifts))
        self._sidecars.write(sidecar)
        failpoints.hit("repair.sidecar_written")
        self._recoverer.settle(sidecar, guard)
        return intent.rollback_id


def _undone(report: TableRepair, classification: str, force: bool, text: str) -> TableRepair:
    if force:
        return replace(report, classification=classification, action="undo")
    error = f"{text}; force sets the table back to what is published"
    return replace(report, classification=classification, action="refused", error=error)


def _note(drift: Drift) -> SidecarTable:
    return SidecarTable(
        table_key=drift.pin.table_key,
        table_path=drift.pin.location,
        table_branch=drift.pin.branch,
        fork=drift.pin.fork,
        expected_version=drift.pin.version,
        post_commit_pin=drift.pin.version,
    )
