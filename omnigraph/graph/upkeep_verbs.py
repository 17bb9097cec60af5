"""`Graph.optimize`, `ensure_indices`, `cleanup`, `repair` and `stats`: upkeep of an open graph.

Invariant: these methods ask the upkeep room, nothing else.
"""

from collections.abc import Callable, Mapping
from typing import Any

from omnigraph.arguments import checked
from omnigraph.exec.durations import GRACE, Duration
from omnigraph.exec.progress import UpkeepProgress
from omnigraph.exec.schemas import Schemas, under_schema
from omnigraph.graph.late_reading import LateReading
from omnigraph.graph.later_rooms import (
    CleanupReport,
    IndexReport,
    OptimizeReport,
    RepairReport,
    ensure_indices,
    topology_after,
    upkeep,
)
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import noted
from omnigraph.storage.stats import StatsView
from omnigraph.storage.store import Store
from omnigraph.types import EngineName


class UpkeepVerbs:
    """The verbs of a graph that look after its files."""

    _store: Store
    _schemas: Schemas
    _guard: PolicyGuard
    _late_reading: LateReading

    def stats(self) -> StatsView:
        """Protocol events and storage calls since the graph was opened.

        >>> graph.stats() == graph.stats()
        True
        """
        return self._store.stats.view()

    @property
    def cache_bytes(self) -> int:
        """Bytes kept in memory between queries.

        >>> graph.cache_bytes >= 0
        True
        """
        return self._late_reading.bytes_kept

    @checked
    def ensure_indices(
        self,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> IndexReport:
        """Build the indexes that the schema asks for and that are missing or behind.

        >>> graph.ensure_indices().commit_id is None
        False
        """
        note = noted(self._guard.changes(branch, actor), message, metadata)
        return under_schema(
            self._schemas,
            lambda catalog: ensure_indices(self._store, catalog, branch, note=note),
            branch,
        )

    @checked
    def optimize(
        self,
        branch: str = MAIN,
        *,
        engine: EngineName = "auto",
        spark: Any = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        progress: Callable[[UpkeepProgress], None] | None = None,
    ) -> OptimizeReport:
        """Few fragments, whole indexes, a folded manifest: one commit that changes no row.

        >>> graph.optimize().branch
        'main'
        """
        note = noted(self._guard.changes(branch, actor), message, metadata)
        return under_schema(
            self._schemas,
            lambda catalog: upkeep.optimize(
                self._store,
                catalog,
                branch,
                engine=engine,
                spark=spark,
                note=note,
                progress=progress,
            ),
            branch,
        )

    @checked
    def cleanup(
        self,
        keep: int | None = None,
        older_than: Duration | None = None,
        confirm: bool = False,
        *,
        grace: Duration = GRACE,
        engine: EngineName = "auto",
        spark: Any = None,
    ) -> CleanupReport:
        """Remove what old commits alone need; without `confirm`, only say what would go.

        `keep` commits a branch stay readable, and those that were a head since `older_than`
        (`7d`) or since `grace`.

        >>> graph.cleanup(keep=10, older_than="7d").commits_reclaimed
        0
        """
        self._guard.administers()
        report = upkeep.cleanup(
            self._store,
            keep=keep,
            older_than=older_than,
            confirm=confirm,
            grace=grace,
            engine=engine,
            spark=spark,
        )
        if confirm:
            # A file whose version is gone can no longer be brought up to date.
            topology_after(self._store, self._schemas.current().catalog, MAIN)
        return report

    @checked
    def repair(
        self,
        confirm: bool = False,
        force: bool = False,
        *,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        engine: EngineName = "auto",
        spark: Any = None,
    ) -> RepairReport:
        """Look for table heads that no commit explains; with `confirm` publish those that only
        upkeep moved, and with `force` set the others back to what is published.

        >>> graph.repair().refused
        ()
        """
        actor = self._guard.administers(actor)
        return upkeep.repair(
            self._store,
            confirm=confirm,
            force=force,
            note=noted(actor, message, metadata),
            engine=engine,
            spark=spark,
        )
