"""`Graph.backup`: the copy of an open graph, and the check of the copy.

Invariant: the copy is opened only to be checked, read-only.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.arguments import checked, require_address
from omnigraph.deferred import deferred
from omnigraph.exec.progress import UpkeepProgress
from omnigraph.exec.schemas import Schemas
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.graph.schema import stored_catalog
from omnigraph.storage.opening import open_store
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from omnigraph.exec.upkeep.backup import BackupReport, run_backup
    from omnigraph.exec.upkeep.check import check as check_store
else:
    BackupReport = deferred("omnigraph.exec.upkeep.backup", "BackupReport")
    run_backup = deferred("omnigraph.exec.upkeep.backup", "run_backup")
    check_store = deferred("omnigraph.exec.upkeep.check", "check")


class BackupVerb:
    """The backup of one open graph."""

    _store: Store
    _guard: PolicyGuard

    @checked
    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        storage_options: dict[str, str] | None = None,
        check: bool = True,
        dry_run: bool = False,
        progress: Callable[[UpkeepProgress], None] | None = None,
    ) -> BackupReport:
        """Copy the graph at one moment, with its branches, tags and commits, to an empty folder or
        bucket prefix, or bring an earlier backup there up to date: only new files are copied.

        The copy is checked at the end. To restore it is to open it.

        >>> graph.backup("people.copy").check.ok
        True
        """
        self._guard.exports_graph()
        require_address(target)
        uri = os.fspath(target)
        options = storage_options or self._store.where.storage_options
        report = run_backup(self._store, uri, options, dry_run=dry_run, progress=progress)
        if dry_run or not check:
            return report
        copy = open_store(uri, read_only=True, storage_options=options)
        return replace(report, check=check_store(copy, Schemas(copy), lambda: stored_catalog(copy)))
