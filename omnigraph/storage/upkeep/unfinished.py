"""Temporary files on a local disk that writers left when they died.

A file gets its name by a rename once it is whole. Until then its own ends in `#` and digits, or it
begins with `.tmp`, and no listing of the store shows it; Lance removes such files from some of its
folders only. An object store has none.

Invariant: looking changes nothing.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from omnigraph.errors import StorageFailed
from omnigraph.storage.objects import Listed

_TEMPORARY = re.compile(r"\.tmp\w+|.+#\d+")


def unfinished(root: Path) -> list[Listed]:
    """The temporary files below a folder, by one walk, whose cost is that of a listing."""
    left = []
    for folder, _, names in os.walk(root):
        for name in filter(_TEMPORARY.fullmatch, names):
            with suppress(FileNotFoundError):
                facts = os.stat(f"{folder}/{name}")
                path = os.path.relpath(f"{folder}/{name}", root)
                left.append(Listed(path, facts.st_size, facts.st_mtime))
    return left


def is_small(left: Listed) -> bool:
    """Whether a temporary file is that of a small object, which is written at once."""
    return not os.path.basename(left.path).startswith(".tmp")


def remove_unfinished(root: Path, left: Listed) -> None:
    """Remove one of these."""
    try:
        (root / left.path).unlink(missing_ok=True)
    except OSError as cause:
        raise StorageFailed(f"removed {root / left.path}", str(cause)) from cause
