"""Backup: an incremental copy of a graph with its branches, tags and commits.

Invariant: the copy is the graph at one moment, whatever is written meanwhile; cleanup waits until
it is made. Restoring is opening it: it names no file outside its own root. A run that stops leaves
a target that `open` refuses and the next run completes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from omnigraph import environment
from omnigraph.exec.progress import OnUpkeepProgress, UpkeepProgress
from omnigraph.exec.threads import in_order
from omnigraph.exec.upkeep.check import CheckReport
from omnigraph.storage.graph_copy import copy_graph
from omnigraph.storage.store import Store


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup copied, or would copy. `reused` files were in the target already.

    `heads` are the commits of the branches at the moment of the copy; `check` is the result of
    checking the copy, None when it was not checked.

    >>> graph.backup("people.second").dry_run
    False
    """

    source: str
    target: str
    heads: dict[str, str]
    files_copied: int
    bytes_copied: int
    files_reused: int
    bytes_reused: int
    files_removed: int
    dry_run: bool
    check: CheckReport | None = None

    def to_json(self) -> dict[str, Any]:
        """The report as `--json` shows it."""
        findings = None if self.check is None else [f.to_json() for f in self.check.findings]
        return {
            "source": self.source,
            "target": self.target,
            "dry_run": self.dry_run,
            "heads": self.heads,
            "files_copied": self.files_copied,
            "bytes_copied": self.bytes_copied,
            "files_reused": self.files_reused,
            "bytes_reused": self.bytes_reused,
            "files_removed": self.files_removed,
            "findings": findings,
        }


def run_backup(
    store: Store,
    target: str,
    storage_options: dict[str, str] | None,
    *,
    dry_run: bool = False,
    progress: OnUpkeepProgress | None = None,
) -> BackupReport:
    """Copy a graph to an empty place, or bring an earlier backup of it up to date."""
    each = None if dry_run else _each(progress)
    copy = copy_graph(store, target, storage_options, each=each)
    needs = copy.needs
    return BackupReport(
        store.where.uri,
        copy.uri,
        copy.heads,
        needs.files,
        needs.bytes,
        needs.reused_files,
        needs.reused_bytes,
        len(needs.stale),
        dry_run,
    )


def _each(
    progress: OnUpkeepProgress | None,
) -> Callable[[Callable[[str], int], Iterable[str]], Iterator[int]]:
    """Copies in threads, which mostly wait for the stores, and reports how far they are."""

    def run(copy: Callable[[str], int], paths: Iterable[str]) -> Iterator[int]:
        every = list(paths)
        stage = "versions" if every and "/_versions/" in every[0] else "data"
        threads = environment.MAINTENANCE_CONCURRENCY.read()
        for done, size in enumerate(in_order(copy, every, threads=threads, ahead=4 * threads), 1):
            if progress is not None:
                progress(UpkeepProgress(stage, done, len(every), every[done - 1]))
            yield size

    return run
