"""Scratch folders of loads, with a lock file (flock) by which stale ones are recognised.

Invariant: a folder is removed by its owner, or by any process once its owner is gone. The owner
holds the lock of a file in it, which the system releases however the process ends.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OWNED = "omnigraph-load-"
"""Folders of one process, which holds their lock."""

SHARED = "omnigraph-write-"
"""Folders that several processes use in turn: none knows whether it is the last."""

SHARED_AGE_S_MAX = 7 * 24 * 3600
_UNLOCKED_AGE_S_MAX = 3600  # how long an owner may take to lock what it made
_LOCK = "owner.lock"


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A temporary folder, removed afterwards; a later load removes it if this process is killed."""
    where = Path(tempfile.gettempdir()) if parent is None else parent
    forget_dead(where)
    path = Path(tempfile.mkdtemp(prefix=OWNED, dir=where))
    lock = _lock(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def discard(folder: Path) -> None:
    """Remove a shared folder, renamed first: a task that still works there cannot recreate it."""
    gone = folder.with_name(f"{folder.name}.gone")
    with suppress(OSError):
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _lock(folder: Path) -> int:
    # The file gets its name once it is locked, so no process sees it unlocked under that name.
    unfinished = folder / f"{_LOCK}.new"
    descriptor = os.open(unfinished, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    unfinished.rename(folder / _LOCK)
    return descriptor


def forget_dead(where: Path) -> None:
    """Remove folders whose owner is gone."""
    for folder in where.glob(f"{OWNED}*"):
        # Another user's folder is that user's to remove.
        with suppress(OSError):
            _forget(folder)
    for folder in where.glob(f"{SHARED}*"):
        with suppress(OSError):
            if _age_s(folder) > SHARED_AGE_S_MAX:
                shutil.rmtree(folder)


def _forget(folder: Path) -> None:
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR)
    except FileNotFoundError:
        if _age_s(folder) > _UNLOCKED_AGE_S_MAX:
            shutil.rmtree(folder)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(descriptor)


def _age_s(folder: Path) -> float:
    return time.time() - folder.stat().st_mtime
