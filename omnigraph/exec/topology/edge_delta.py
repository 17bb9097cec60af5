"""Delta of an edge table over its base file: edges that are gone, and edges that are new.

Invariant: a position names one edge for ever. An edge that was written again with the same ends and
row id keeps its position; any other gets a new one behind all others, and the old one is dead.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from omnigraph import number_arrays
from omnigraph.exec.values.columns import in_one
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.derived.edge_file import EdgeFile
from omnigraph.storage.lance.derived_bases import EdgeBase
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.spans import AFTER, BEFORE

Locate = Callable[[pa.Array], np.ndarray]
"""The numbers of node ids, -1 where one is not known."""

_ENDS = ["src", "dst"]


@dataclass(frozen=True, slots=True)
class EdgeDelta:
    """Edges of a version beside those of its base file.

    `removed` are dead positions with the numbers of their ends; `row_ids`, `source` and `target`
    are of the positions behind the base's, dead ones included.
    """

    removed: np.ndarray
    removed_source: np.ndarray
    removed_target: np.ndarray
    row_ids: np.ndarray
    source: np.ndarray
    target: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What a delta file keeps, in its order."""
        ends = self.removed_source, self.removed_target
        return (self.removed, *ends, self.row_ids, self.source, self.target)

    @property
    def is_empty(self) -> bool:
        return not len(self.removed) and not len(self.row_ids)

    @property
    def bytes_held(self) -> int:
        return int(sum(array.nbytes for array in self.arrays))


def no_edges() -> EdgeDelta:
    """The delta of a version that is its base."""
    empty = np.empty(0, np.int64)
    return EdgeDelta(empty, empty, empty, np.empty(0, np.uint64), empty, empty)


def stored_delta(base: EdgeBase) -> EdgeDelta:
    """The delta of the version that a base names over its edge file."""
    stored = base.delta
    if stored is None:
        return no_edges()
    ends = stored.removed_source, stored.removed_target
    return EdgeDelta(stored.removed, *ends, stored.row_ids, stored.source, stored.target)


def positions_of(file: EdgeFile, delta: EdgeDelta, row_ids: np.ndarray) -> np.ndarray:
    """The live position of each row id, or -1."""
    positions = file.positions_of(row_ids)
    positions[number_arrays.are_among(positions, delta.removed)] = -1
    # Few row ids are looked up among many: those of the delta that are asked for are sorted alone.
    own = np.flatnonzero(number_arrays.are_among(delta.row_ids, row_ids))
    own = own[~number_arrays.are_among(own + file.count, delta.removed)]
    if len(own):
        own = own[np.argsort(delta.row_ids[own], kind="stable")]
        ordered = delta.row_ids[own]
        nearest = np.minimum(np.searchsorted(ordered, row_ids), len(ordered) - 1)
        positions = np.where(ordered[nearest] == row_ids, own[nearest] + file.count, positions)
    return positions


def followed(
    file: EdgeFile,
    delta: EdgeDelta,
    touched: pa.Table,
    readers: tuple[TableReader, TableReader],
    locate: tuple[Locate, Locate],
) -> tuple[EdgeDelta, np.ndarray]:
    """The delta of a version from that of an earlier one, and the positions written between them.

    `touched` compares the two versions, which `readers` read.
    """
    if not touched.num_rows:
        return delta, np.empty(0, np.int64)
    before, after = touched[BEFORE], touched[AFTER]
    old, new = _ends(readers[0], before, locate), _ends(readers[1], after, locate)
    was, is_ = _filled(before), _filled(after)
    has_old, has_new = before.is_valid().to_numpy(), after.is_valid().to_numpy()
    same = has_old & has_new & (was == is_) & (old[0] == new[0]) & (old[1] == new[1])
    positions = np.full(touched.num_rows, -1)
    positions[has_old] = positions_of(file, delta, was[has_old])
    gone = has_old & ~same & (positions >= 0)
    added = has_new & ~(same & (positions >= 0))
    size = file.count + len(delta.row_ids)
    fresh = np.arange(size, size + int(np.count_nonzero(added)))
    written = np.concatenate((positions[same & (positions >= 0)], fresh))
    return (
        EdgeDelta(
            np.concatenate((delta.removed, positions[gone])),
            np.concatenate((delta.removed_source, old[0][gone])),
            np.concatenate((delta.removed_target, old[1][gone])),
            np.concatenate((delta.row_ids, is_[added])),
            np.concatenate((delta.source, new[0][added])),
            np.concatenate((delta.target, new[1][added])),
        ),
        written,
    )


def _filled(row_ids: pa.ChunkedArray) -> np.ndarray:
    numbers: np.ndarray = row_ids.fill_null(pa.scalar(0, pa.uint64())).to_numpy()
    return numbers


def _ends(
    reader: TableReader, row_ids: pa.ChunkedArray, locate: tuple[Locate, Locate]
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers at both ends of the rows that have a row id, -1 elsewhere."""
    valid = row_ids.is_valid().to_numpy()
    rows = reader.by_row_id(in_one(row_ids.drop_null()), _ENDS)
    source, target = np.full(len(valid), -1), np.full(len(valid), -1)
    source[valid] = locate[0](in_one(rows["src"]))
    target[valid] = locate[1](in_one(rows["dst"]))
    return source, target
