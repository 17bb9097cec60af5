"""Cleanup (retention, garbage collection): which commits stay readable, and what is removed.

A commit is kept when it is among the newest of a branch; when it was a branch's head within the
time asked for, within the grace that readers get, or within what other processes rely on; or when a
merge of two live branches starts from it, or a tag names it.

Invariant: a commit is kept whole, with the manifest and every table version it pins, or not at all.
The head of a live branch is always kept. Without `confirm` nothing changes.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import combinations

from omnigraph import environment
from omnigraph.errors import BadRequest
from omnigraph.exec.merge.ancestry import lookup_in, meeting
from omnigraph.exec.threads import in_order
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit, CommitId
from omnigraph.storage.store import Store
from omnigraph.storage.upkeep.cleanup import LineTask, RunLines, TableCleanup

GRACE = "10m"
"""A commit that was a head within this time may have readers."""

Duration = str | int | float | timedelta

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d+)([smhdw]?)")


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What was removed, or, without `confirmed`, what would be."""

    tables: tuple[TableCleanup, ...]
    keep: int | None
    older_than_s: int | None
    commits_kept: int
    commits_reclaimed: int
    confirmed: bool

    @property
    def errors(self) -> tuple[TableCleanup, ...]:
        """The tables that failed. The others are done."""
        return tuple(table for table in self.tables if table.error is not None)


def seconds(duration: Duration) -> int:
    """Parse a duration: seconds, or a number with s, m, h, d or w."""
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    match = _DURATION.fullmatch(str(duration).strip()) if isinstance(duration, str | int) else None
    if match is not None and not isinstance(duration, bool):
        return int(match[1]) * _UNITS[match[2]]
    if isinstance(duration, float) and duration >= 0:
        return int(duration)
    raise BadRequest(f"'{duration}' is no duration", "write a number and s, m, h, d or w: 7d")


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
    with store.upkeep(reclaims=True):
        store.heal(if_room=True)  # what a pending sidecar needs is kept
        report = _cleanup(store, keep, age, seconds(grace), confirm=True, run=run)
        store.heal(if_room=True)  # there may be room now
        store.close()  # its caches may name removed versions
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
    window = max(grace, age or 0, store.reclaimer.age_s)
    branches = store.history.branches()
    lines = {branch: store.history.list(branch) for branch in branches}
    kept: dict[CommitId, Commit] = {}
    floors: dict[str, int] = {}
    for branch, line in lines.items():
        recent = list(_recent(line, window))
        kept |= {c.id: c for c in (*line[: keep or 1], *recent)}
        own = [c.manifest_version for c in recent if (c.branch or MAIN) == branch]
        floors[branch] = min(own, default=store.snapshot(branch).manifest_version)
    kept |= {c.id: c for c in _meetings(store, lines)}
    kept |= {c.id: c for c in _tagged(store, lines)}
    known = {commit.id for line in lines.values() for commit in line}
    versions: dict[str, list[int]] = {branch: [] for branch in branches}
    for commit in kept.values():
        if (commit.branch or MAIN) in versions:
            versions[commit.branch or MAIN].append(commit.manifest_version)
    tables = store.reclaimer.reclaim(
        versions, floors, confirm=confirm, run=run or partial(_here, store)
    )
    return CleanupReport(
        (*tables, store.reclaimer.staged_files(confirm=confirm)),
        keep,
        age,
        len(kept),
        len(known - kept.keys()),
        confirm,
    )


def _here(store: Store, tasks: Sequence[LineTask]) -> list[TableCleanup]:
    """Run tasks in threads of this process, which mostly wait for the store."""
    threads = environment.MAINTENANCE_CONCURRENCY.read()
    return list(in_order(store.reclaimer.run, tasks, threads=threads)) if tasks else []


def _recent(line: Iterable[Commit], window_s: float) -> Iterator[Commit]:
    """The commits of a line, newest first, that were its head within the window."""
    now = time.time() * 1e6
    ended = now
    for commit in line:
        if now - ended <= window_s * 1e6:
            yield commit
        ended = commit.created_at


def _tagged(store: Store, lines: dict[str, tuple[Commit, ...]]) -> Iterator[Commit]:
    """The commits that tags name."""
    named = {tag.commit_id for tag in store.tags.list().values()}
    yield from (commit for line in lines.values() for commit in line if commit.id in named)


def _meetings(store: Store, lines: dict[str, tuple[Commit, ...]]) -> Iterator[Commit]:
    """Merge bases of every two live branches."""
    lookup = lookup_in(store.history, *lines)
    for ours, theirs in combinations([line[0].id for line in lines.values()], 2):
        merge_base = meeting(lookup, ours, theirs)
        yield from merge_base.bases
        for (
            merge
        ) in merge_base.forgotten:  # what such a merge changed is read against its first parent
            yield merge
            before = None if merge.parent is None else lookup(merge.parent)
            if before is not None:
                yield before
