"""Edge delta file: edges that are gone and edges that are new since an edge file, on disk.

    removed, removed_source, removed_target    dead positions, and the numbers of their ends
    row_ids, source, target                    of the positions behind those of the edge file

Invariant: edge file and delta together are the version that the delta names: it names the edge file
by its digest, so nothing else has to be known of that one's version, which may be gone. Numbers are
those of the node files that the delta names; a later file of their lineages keeps them. A delta is
of all changes since its edge file: two are never joined.
"""

from typing import Any

import numpy as np

from omnigraph.storage.derived.edge_file import EdgeFile, Way
from omnigraph.storage.derived.mapped_file import DamagedFile, MappedFile

EDGE_DELTAS = "edgedelta"

_ARRAYS = ("removed", "removed_source", "removed_target", "row_ids", "source", "target")


class EdgeDeltaFile:
    """One edge delta file, open and verified whole."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.digest = file.digest
        try:
            self.base = str(file.facts["base"])
            self.ends = (str(file.facts["source"]), str(file.facts["target"]))
            whole = [file.array(name).whole() for name in _ARRAYS]
        except (KeyError, TypeError, ValueError) as cause:
            raise DamagedFile(file.path, f"it lacks {cause}") from cause
        gone, new = {len(each) for each in whole[:3]}, {len(each) for each in whole[3:]}
        if len(gone) != 1 or len(new) != 1:
            raise DamagedFile(file.path, "its arrays do not belong together")
        self.removed, self.removed_source, self.removed_target = (
            each.astype(np.int64) for each in whole[:3]
        )
        self.row_ids = whole[3].astype(np.uint64)
        self.source, self.target = (each.astype(np.int64) for each in whole[4:])

    def __len__(self) -> int:
        return len(self.removed) + len(self.row_ids)

    def require_over(self, file: EdgeFile) -> None:
        """Pass if every position is one of the edge file or of the delta itself."""
        size = file.count + len(self.row_ids)
        if len(self.removed) and not 0 <= self.removed.min() <= self.removed.max() < size:
            raise DamagedFile(self.file.path, "a position is beyond the last edge")

    def row_ids_of(self, file: EdgeFile, way: Way, numbers: np.ndarray) -> np.ndarray:
        """The row ids of the new edges that have one of these nodes at an end, and are not gone."""
        own = np.arange(file.count, file.count + len(self.row_ids))
        near = self.source if way is Way.OUT else self.target
        return self.row_ids[np.isin(near, numbers) & ~np.isin(own, self.removed)]


def delta_facts(
    base: EdgeFile, source: str, target: str, arrays: tuple[np.ndarray, ...]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The facts and arrays of a delta over an edge file, whose numbers are those of two node
    files."""
    facts = {"base": base.digest, "source": source, "target": target}
    return facts, dict(zip(_ARRAYS, arrays, strict=True))
