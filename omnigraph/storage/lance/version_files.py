"""Version files of a dataset on local disk: found by their names, which Lance would list all.

Invariant: versions are numbered without a gap from the newest one that a process saw a moment ago,
and their names count down, so the newest is the first by name.
"""

import os
from pathlib import Path

from omnigraph.storage.lance.base_paths import is_whole, version_file
from omnigraph.storage.objects import Objects

FOLDER = "_versions"


def versions_since(dataset: Path, known: int) -> int:
    """How many versions follow a known one, by doubling and halving: a look for each name that is
    tried, where a listing would read every one."""
    folder = f"{dataset}/{FOLDER}"

    def is_there(count: int) -> bool:
        return os.access(f"{folder}/{version_file(known + count)}", os.F_OK)

    last, absent = 0, 1
    while is_there(absent):
        last, absent = absent, 2 * absent
    while absent - last > 1:
        middle = (last + absent) // 2
        last, absent = (middle, absent) if is_there(middle) else (last, middle)
    return last


def version_paths(dataset: Path) -> list[Path]:
    """The files of a dataset's versions, newest first. Asked for names alone: to list objects looks
    at each of them."""
    try:
        names = os.listdir(dataset / FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [dataset / FOLDER / name for name in sorted(names) if name.endswith(".manifest")]


def newest_whole(root: Path, folder: str, objects: Objects) -> int | None:
    """The newest version of the dataset in a folder that no power cut tore, None to let Lance
    look."""
    for path in version_paths(root / folder):
        stored = objects.get(f"{folder}/{FOLDER}/{path.name}")
        if stored is not None and is_whole(stored.data):
            return 2**64 - 1 - int(path.stem)
    return None
