"""Did-you-mean hints for paths: the file beside a missing one whose name is nearest to it.

Invariant: a hint names only what is there. A folder that cannot be listed gives none.
"""

import os
from pathlib import Path

from omnigraph.catalog.near_names import nearest


def near_path(path: str | os.PathLike[str]) -> str:
    """A hint about a path that leads to nothing; empty where no name is near."""
    folder, name = os.path.split(os.fspath(path).rstrip("/"))
    try:
        beside = os.listdir(folder or ".")
    except FileNotFoundError:
        return f"there is no folder '{folder}'"
    except (OSError, ValueError):
        return ""
    # An ending that many files share makes no name near.
    seen = [each for each in beside if not each.startswith(".")]
    near_stem = nearest(Path(name).stem, (Path(each).stem for each in seen))
    near = nearest(name, (each for each in seen if Path(each).stem == near_stem))
    return "" if near is None else f"did you mean '{os.path.join(folder, near)}'?"
