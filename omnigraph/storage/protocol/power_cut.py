"""Power cut: files that were named before their content was on disk, removed after a restart.

A power cut may leave a name without its data: an empty file, one that ends too early, or zeros.
Lance names a version before it is flushed, so the newest versions of a dataset, the newest refs and
the newest sidecars may be such files. Where commits are flushed (`flushing`), none of them belongs
to a commit that was acknowledged, and a torn sidecar belongs to a writer that had moved no head.

    __locks/boot    the boot of the kernel under which this graph was last looked through

Invariant: a file is removed only if it is torn, or is the ref of a branch without any version. It
happens once after each restart of the machine, before anything is opened for writing: between two
looks under one boot no power cut lies.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson

from omnigraph.errors import StorageFailed
from omnigraph.storage.lance.base_paths import is_whole
from omnigraph.storage.lance.refs import BRANCH_REFS, TAG_REFS
from omnigraph.storage.lance.version_files import version_paths
from omnigraph.storage.locks.locks import FOLDER as LOCKS
from omnigraph.storage.locks.locks import Locks, hold
from omnigraph.storage.locks.process_mark import current_boot
from omnigraph.storage.manifest.branches import BRANCHES_LOCK
from omnigraph.storage.manifest.state import LOCATION as MANIFEST
from omnigraph.storage.names import lock_name
from omnigraph.storage.objects import Objects, Root
from omnigraph.storage.protocol.audit import LOCATION as AUDIT
from omnigraph.storage.protocol.sidecars import FOLDER as SIDECARS
from omnigraph.storage.stats import Stats

_MARK = f"{LOCKS}/boot"
_KINDS = ("nodes", "edges")
_WHOLE_MAX = 16
"""Whole versions after which no torn one is looked for: more than one commit ever makes of a table,
and what came before it was flushed."""


class PowerCut:
    """What a power cut may have left in one graph on local disk."""

    def __init__(self, where: Root, objects: Objects, locks: Locks, stats: Stats) -> None:
        self._root = where.path
        self._objects = objects
        self._locks = locks
        self._stats = stats

    def is_possible(self) -> bool:
        """Whether the machine was restarted since this graph was last looked through."""
        if self._root is None or not (self._root / MANIFEST).is_dir():
            return False
        boot = current_boot()
        try:
            return boot is None or (self._root / _MARK).read_text(encoding="ascii") != boot
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
            return True
        except OSError as cause:
            raise StorageFailed(f"read {self._root / _MARK}", str(cause)) from cause

    def settle(self) -> None:
        """Remove what is torn."""
        if self._root is None:
            return
        with hold(self._locks, [BRANCHES_LOCK, lock_name("power-cut", "")]):
            if not self.is_possible():
                return
            try:
                self._drop_torn(self._root)
            except OSError as cause:
                raise StorageFailed("looked for what a power cut left", str(cause)) from cause
            self.mark()

    def _drop_torn(self, root: Path) -> None:
        for folder in self._datasets(root):
            self._drop_torn_versions(folder)
            self._drop_torn_refs(folder)
        self._drop_torn_sidecars(root / SIDECARS)

    def _datasets(self, root: Path) -> Iterator[Path]:
        yield root / MANIFEST
        yield root / AUDIT
        for kind in _KINDS:
            if (root / kind).is_dir():
                yield from (path for path in sorted((root / kind).iterdir()) if path.is_dir())

    def _drop_torn_versions(self, dataset: Path) -> None:
        for folder in (dataset, *_branches(dataset)):
            whole = 0
            for path in version_paths(folder):
                if is_whole(path.read_bytes()):
                    whole += 1
                else:
                    self._drop(path)
                if whole == _WHOLE_MAX:
                    break

    def _drop_torn_refs(self, dataset: Path) -> None:
        for kind in (BRANCH_REFS, TAG_REFS):
            folder = dataset / kind
            for path in folder.glob("*.json") if folder.is_dir() else ():
                tree = dataset / "tree" / path.stem
                is_broken = kind == BRANCH_REFS and not any(version_paths(tree))
                if is_broken or not _is_json(path):
                    self._drop(path)

    def _drop_torn_sidecars(self, folder: Path) -> None:
        for path in folder.glob("*.json") if folder.is_dir() else ():
            if not _is_json(path):
                self._drop(path)

    def _drop(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._stats.event("power_cut.dropped", path=path)

    def mark(self) -> None:
        """Note that nothing is torn under this boot."""
        boot = current_boot()
        if boot is not None and self._root is not None:
            with suppress(OSError):  # a full disk: the next open looks again
                (self._root / _MARK).write_text(boot, encoding="ascii")


def _branches(dataset: Path) -> list[Path]:
    tree = dataset / "tree"
    return sorted(tree.iterdir()) if tree.is_dir() else []


def _is_json(path: Path) -> bool:
    """Whether a small file ends where its writer ended it."""
    try:
        orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return True
    except orjson.JSONDecodeError:
        return False
    return True
