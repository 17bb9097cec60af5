"""Temporary files and empty folders on a local disk that writers left when they died.

A file gets its name by a rename once it is whole. Until then its own ends in `#` and digits, or it
begins with `.tmp`, and no listing of the store shows it; Lance removes such files from some folders
only. The folder of an index stays when its files are gone. An object store has neither.

Invariant: looking changes nothing. A folder that has a file by the time it is removed stays.
"""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from omnigraph.errors import StorageFailed
from omnigraph.storage.objects import Listed

_TEMPORARY = re.compile(r"\.tmp\w+|.+#\d+")


def unfinished(root: Path) -> list[Listed]:
    """The temporary files below a folder, and the folders of indexes without a file, which end in
    a slash; by one walk, whose cost is that of a listing."""
    left = []
    occupied: set[str] = set()
    for folder, folders, names in os.walk(root, topdown=False):
        below = [f"{folder}/{each}" for each in folders]
        if names or not occupied.isdisjoint(below):
            occupied.add(folder)
        elif os.path.basename(os.path.dirname(folder)) == "_indices":
            changed = max(_changed(each) for each in (folder, *below))
            left.append(Listed(f"{os.path.relpath(folder, root)}/", 0, changed))
        for path in (f"{folder}/{name}" for name in names if _TEMPORARY.fullmatch(name)):
            with suppress(FileNotFoundError):
                facts = os.stat(path)
                relative = os.path.relpath(path, root)
                left.append(Listed(relative, facts.st_size, facts.st_mtime))
    return left


def _changed(folder: str) -> float:
    """When a folder last changed; just now if it is gone."""
    try:
        return os.stat(folder).st_mtime
    except FileNotFoundError:
        return time.time()


def remove_unfinished(root: Path, left: Listed) -> None:
    """Remove one of these."""
    if left.path.endswith("/"):
        for folder, _, _ in os.walk(root / left.path, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
        return
    try:
        with suppress(FileNotFoundError):
            os.unlink(root / left.path)
    except OSError as cause:
        raise StorageFailed(f"removed {root / left.path}", str(cause)) from cause
