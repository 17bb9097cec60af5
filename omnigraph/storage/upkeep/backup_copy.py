"""Incremental copy of a backup plan to another root, with the base paths of branches rewritten.

    data files ─▶ marker ─▶ schema, refs, versions, main's last ─▶ stale files go ─▶ no marker
    (the long part: no version names them yet)

Invariant: a target with the running marker is no graph: whatever a crash leaves is refused by
`open`, and the next run goes on from it. Without the marker it is whole. A target that was not made
by a backup of the same graph, or was written to since, is never touched.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import orjson

from omnigraph.errors import AlreadyExists
from omnigraph.storage import failpoints
from omnigraph.storage.lance.base_paths import rebased, version_file
from omnigraph.storage.locks.locks import FOLDER as LOCKS
from omnigraph.storage.manifest.state import LOCATION as MANIFEST
from omnigraph.storage.names import BACKUP_FOLDER, decode
from omnigraph.storage.names import BACKUP_RUNNING as RUNNING
from omnigraph.storage.objects import Listed, Objects, Root
from omnigraph.storage.upkeep.backup_plan import (
    HINT,
    CopyPlan,
    Line,
    Vanished,
    VersionFile,
    folder_of,
    planned_paths,
)

FOLDER = BACKUP_FOLDER
COMPLETE = f"{FOLDER}/complete.json"

CopyEach = Callable[[Callable[[str], int], Iterable[str]], Iterable[int]]
"""Runs a copy for each path; what each returns, in order."""


@dataclass(frozen=True, slots=True)
class CopyNeeds:
    """What a run has to copy, and what is in the target already."""

    data: tuple[Listed, ...]
    versions: tuple[VersionFile, ...]
    reused_files: int
    reused_bytes: int
    stale: tuple[str, ...]

    @property
    def files(self) -> int:
        """How many files come, the few small ones that are written each time left out."""
        return len(self.data) + len(self.versions)

    @property
    def bytes(self) -> int:
        """How many bytes come."""
        return sum(each.size for each in self.data) + sum(each.size for each in self.versions)


class BackupCopy:
    """Copies one plan from one root to another."""

    def __init__(self, source: Objects, target: Objects, root: Root, plan: CopyPlan) -> None:
        self._source = source
        self._target = target
        self._root = root
        self._plan = plan
        is_there = root.path is None or root.path.is_dir()
        self._present = {
            file.path: file.size
            for file in (target.listed("") if is_there else ())
            if not file.path.startswith((f"{LOCKS}/", f"{FOLDER}/"))
        }
        self._is_new = not is_there

    def require_own(self) -> None:
        """Pass for an empty target, or one that a backup of the same graph made and nobody wrote
        to since."""
        if self._is_new:
            return
        complete, running = self._facts(COMPLETE), self._facts(RUNNING)
        known = running or complete
        if known is None:
            if self._present:
                raise AlreadyExists(
                    "target of the backup", self._root.uri, "it is no backup; give an empty folder"
                )
            return
        if known["genesis"] != self._plan.genesis:
            raise AlreadyExists(
                "target of the backup", self._root.uri, "it is a backup of another graph"
            )
        if running is None and complete is not None:
            self._require_untouched(complete["versions"])

    def _facts(self, path: str) -> dict[str, Any] | None:
        stored = self._target.get(path)
        return None if stored is None else dict(orjson.loads(stored.data))

    def _require_untouched(self, versions: dict[str, int]) -> None:
        """Pass unless a line of the manifest has gone on, or has come, since the last backup."""
        lines = {folder for path in self._present if (folder := _manifest_line(path)) is not None}
        ahead = [f"{f}/_versions/{version_file(versions[f] + 1)}" for f in lines & versions.keys()]
        if lines - versions.keys() or any(path in self._present for path in ahead):
            raise AlreadyExists(
                "target of the backup",
                self._root.uri,
                "it was opened and written to since; give an empty folder",
            )

    # What is to be done

    def needs(self) -> CopyNeeds:
        """Compare the plan with the target."""
        data = tuple(f for f in self._plan.data if self._present.get(f.path) != f.size)
        versions = tuple(each for line in self._plan.versions for each in self._versions(line))
        missing = {file.path for file in data} | {each.path for each in versions}
        sizes = {file.path: file.size for file in self._plan.data}
        sizes |= {v.path: v.size for of in self._plan.versions.values() for v in of}
        reused = [size for path, size in sizes.items() if path not in missing]
        stale = tuple(sorted(self._present.keys() - set(planned_paths(self._plan))))
        return CopyNeeds(data, versions, len(reused), sum(reused), stale)

    def _versions(self, line: Line) -> tuple[VersionFile, ...]:
        """The versions of a line that the target lacks. Numbers come again in a branch that was
        made again, or a graph that was set back; then the newest that both have differs."""
        planned = self._plan.versions[line]
        common = [each for each in planned if each.path in self._present]
        if not common:
            return planned
        stored = self._target.get(common[-1].path)
        if stored is None or stored.data != self._rebased(common[-1]):
            return planned
        return tuple(each for each in planned if each.path not in self._present)

    # Doing it

    def run(self, needs: CopyNeeds, each: CopyEach) -> None:
        """Copy what is needed; the target is whole when this returns."""
        if not self._present:
            self._mark()  # from the start: an interrupted first run says what it is
        for _ in each(self._copy, [file.path for file in needs.data]):
            pass
        failpoints.hit("backup.data")
        self._mark()
        failpoints.hit("backup.marked")
        self._small_files()
        for group in _groups(needs.versions):
            for _ in each(partial(self._copy_version, group), list(group)):
                pass
        failpoints.hit("backup.versions")
        for path in needs.stale:
            self._target.delete(path)
        self._put(COMPLETE, orjson.dumps(self._facts_of_plan()))
        failpoints.hit("backup.complete")
        self._target.delete(RUNNING)

    def _mark(self) -> None:
        self._put(RUNNING, orjson.dumps({"genesis": self._plan.genesis}))

    def _facts_of_plan(self) -> dict[str, Any]:
        versions = {
            folder_of(line): each[-1].version
            for line, each in self._plan.versions.items()
            if line[0] == MANIFEST
        }
        heads = {branch: commit for branch, (commit, _) in self._plan.heads.items()}
        return {
            "genesis": self._plan.genesis,
            "heads": heads,
            "versions": versions,
            "finished_at": int(time.time() * 1e6),
        }

    def _copy(self, path: str) -> int:
        if not self._target.copy_from(self._source, path):
            raise Vanished(path)
        return 1

    def _copy_version(self, versions: Mapping[str, VersionFile], path: str) -> int:
        data = self._rebased(versions[path])
        self._put(path, data)
        return len(data)

    def _small_files(self) -> None:
        for path in self._plan.small:
            stored = self._source.get(path)
            if stored is not None:  # a consumer may be gone
                self._put(path, stored.data)
        for path in self._plan.refs:
            ref = self._ref(path)
            if ref is not None:
                self._put(path, ref)
            else:
                self._target.delete(path)
        for line, versions in self._plan.versions.items():
            if versions:
                hint = orjson.dumps({"version": versions[-1].version})
                self._put(f"{folder_of(line)}/_versions/{HINT}", hint)

    def _ref(self, path: str) -> bytes | None:
        """A branch or tag of Lance, with the size of the version's file as it is in the target;
        None for a tag of a version that is not copied."""
        stored = self._source.get(path)
        if stored is None:
            raise Vanished(path)
        facts = orjson.loads(stored.data)
        folder, kind = path.rpartition("/_refs/")[0], PurePosixPath(path).parent.name
        branch, number = (
            (facts["branch"], facts["version"])
            if kind == "tags"
            else (facts["parentBranch"], facts["parentVersion"])
        )
        line = folder, None if branch is None else decode(branch)
        named = [v for v in self._plan.versions.get(line, ()) if v.version == number]
        if not named:
            return None if kind == "tags" else stored.data
        facts["manifestSize"] = (
            len(self._rebased(named[0])) if named[0].names_bases else named[0].size
        )
        return orjson.dumps(facts, option=orjson.OPT_INDENT_2)

    def _rebased(self, version: VersionFile) -> bytes:
        """The file of a version as the target has it."""
        stored = self._source.get(version.path)
        if stored is None:
            raise Vanished(version.path)
        if not version.names_bases:
            return stored.data
        return rebased(stored.data, version.line[0], self._root)

    def _put(self, path: str, data: bytes) -> None:
        self._target.put(path, data)


def _manifest_line(path: str) -> str | None:
    """The folder of the line of the manifest that a version's file belongs to."""
    folder, separator, _ = path.rpartition("/_versions/")
    is_line = folder == MANIFEST or folder.startswith(f"{MANIFEST}/tree/")
    return folder if separator and is_line else None


def _groups(versions: Iterable[VersionFile]) -> Iterator[dict[str, VersionFile]]:
    """Versions by path: of tables first, then of branches of the manifest, then of main's: until
    that has one there is no graph."""
    groups: tuple[dict[str, VersionFile], ...] = ({}, {}, {})
    for version in versions:
        folder, branch = version.line
        group = 0 if folder != MANIFEST else 1 if branch is not None else 2
        groups[group][version.path] = version
    return filter(None, groups)
