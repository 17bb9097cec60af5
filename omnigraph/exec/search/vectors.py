"""A vector column of one table version, and the distances to it.

Invariant: a distance is the square root of the sum of squared differences between the stored
32-bit components and the query's, rounded to 32 bits, computed in 64 bits. The neighbours returned
are the nearest by that number, ties by id: rounding in the fast pass only ever adds candidates.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.exec.limits import announce
from omnigraph.exec.values.sorted_ids import joined

Numbers = npt.NDArray[np.int64]
Distances = npt.NDArray[np.float64]

_ROWS_AT_ONCE = 1 << 14
_PRODUCTS_AT_ONCE = 1 << 17
_BLOCK = 256
_UNIT = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, slots=True)
class Vectors:
    """The rows that have a vector, in the order of their ids."""

    ids: pa.Array
    components: npt.NDArray[np.float32]  # one row a vector
    squares: npt.NDArray[np.float32]  # squared length of each

    @property
    def bytes_held(self) -> int:
        """About what it weighs, for a cache."""
        return int(self.ids.nbytes) + self.components.nbytes + self.squares.nbytes

    def nearest(
        self, vector: npt.NDArray[np.float32], k: int | None, some: Numbers | None
    ) -> tuple[Numbers, Distances]:
        """The k nearest (all without k) among some rows (ascending; all without), nearest first."""
        rows = self._candidates(vector, k, some)
        return ranked(rows, distances(self.components, rows, vector), k)

    def _candidates(
        self, vector: npt.NDArray[np.float32], k: int | None, some: Numbers | None
    ) -> Numbers:
        count = len(self.ids) if some is None else len(some)
        every = np.arange(count) if some is None else some
        if k is None or k >= count:
            return every
        if k == 0:
            return every[:0]
        near, slack = self._roughly(vector, some)
        if not np.isfinite(slack) or not np.isfinite(near).all():
            return every
        return every[np.flatnonzero(near <= _bound(near, k) + slack)]

    def _roughly(
        self, vector: npt.NDArray[np.float32], some: Numbers | None
    ) -> tuple[npt.NDArray[np.float32], float]:
        """Squared distances less the query's own square, and twice how wrong they may be."""
        components = self.components if some is None else self.components[some]
        squares = self.squares if some is None else self.squares[some]
        with np.errstate(over="ignore", invalid="ignore"):
            near = squares - 2 * _products(components, vector)
            largest = float(np.sqrt(squares.max(initial=0)))
            scale = largest * (largest + 2 * float(np.linalg.norm(vector)))
        return near, 2 * (len(vector) + 8) * _UNIT * scale


def _products(
    components: npt.NDArray[np.float32], vector: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    # In pieces small enough for one thread: on a busy machine waiting for a second one takes many
    # times longer than its share of the work.
    found = np.empty(len(components), dtype=np.float32)
    step = max(_PRODUCTS_AT_ONCE // len(vector), 1)
    for first in range(0, len(components), step):
        some = slice(first, first + step)
        np.dot(components[some], vector, out=found[some])
    return found


def _bound(near: npt.NDArray[np.float32], k: int) -> float:
    """A number that at least the k least ones do not exceed, and not many others."""
    blocks = len(near) // _BLOCK
    if blocks < 4 * k:
        return float(np.partition(near, k - 1)[k - 1])
    # The least of each block are numbers too, so the k-th of them is as large as the k-th of all.
    least = near[: blocks * _BLOCK].reshape(blocks, _BLOCK).min(axis=1)
    return float(np.partition(least, k - 1)[k - 1])


def build(ids: pa.Array, vectors: pa.ChunkedArray) -> Vectors:
    """The vectors of a column; rows without one are left out."""
    dimension = vectors.type.list_size
    announce(8 * dimension * len(vectors))
    components = np.empty((len(vectors) - vectors.null_count, dimension), dtype=np.float32)
    present, filled, first = [], 0, 0
    for chunk in vectors.chunks:
        some = chunk.drop_null()
        components[filled : filled + len(some)] = _matrix(some)
        present.append(np.flatnonzero(chunk.is_valid().to_numpy(zero_copy_only=False)) + first)
        filled, first = filled + len(some), first + len(chunk)
    held = ids.take(pa.array(np.concatenate(present) if present else np.empty(0, np.int64)))
    order = pc.sort_indices(held)
    if not (np.diff(order.to_numpy()) == 1).all():
        held, components = held.take(order), components[order.to_numpy()]
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", components, components)
    return Vectors(held, components, squares)


def replaced(held: Vectors, gone: npt.NDArray[np.bool_], extra: Vectors) -> Vectors:
    """The vectors without those of some rows, and with others."""
    kept = np.flatnonzero(~gone)
    ids, old_at, new_at = joined(held.ids.take(pa.array(kept)), extra.ids)
    components = np.empty((len(ids), held.components.shape[1]), dtype=np.float32)
    squares = np.empty(len(ids), dtype=np.float32)
    components[old_at], components[new_at] = held.components[kept], extra.components
    squares[old_at], squares[new_at] = held.squares[kept], extra.squares
    return Vectors(ids, components, squares)


def _matrix(vectors: pa.FixedSizeListArray) -> npt.NDArray[np.float32]:
    flat: npt.NDArray[np.float32] = vectors.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(vectors), vectors.type.list_size)


def distances(
    components: npt.NDArray[np.float32], rows: Numbers, vector: npt.NDArray[np.float32]
) -> Distances:
    """The distance of each of some rows."""
    found = np.empty(len(rows), dtype=np.float64)
    wide = vector.astype(np.float64)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        apart = components[rows[some]] - wide
        found[some] = np.sqrt(np.einsum("ij,ij->i", apart, apart))
    return found


def ranked(rows: Numbers, away: Distances, k: int | None) -> tuple[Numbers, Distances]:
    """Ascending rows with their distances, nearest first, ties in order, the first k."""
    order = np.argsort(away, kind="stable")[:k]
    return rows[order], away[order]
