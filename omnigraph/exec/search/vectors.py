"""Exact k-nearest-neighbour search (l2, cosine, dot) over a vector column, in memory.

Invariant: a distance is that of the stored 32-bit components and the query's, rounded to 32 bits,
computed in 64 bits. The neighbours returned are the nearest by that number, ties by id: rounding in
the 32-bit pass only adds candidates. A vector of zeros has no cosine, and so no distance by it.
"""

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.indexes import Metric
from omnigraph.costs import COSTS
from omnigraph.exec.limits import announce
from omnigraph.exec.values.sorted_ids import joined

Numbers = npt.NDArray[np.int64]
Distances = npt.NDArray[np.float64]

_UNIT = float(np.finfo(np.float32).eps)
_TINY = 1e-30  # squares below it have lost digits in 32 bits


@dataclass(frozen=True, slots=True)
class Vectors:
    """The rows that have a vector, in the order of their ids."""

    ids: pa.Array
    components: npt.NDArray[np.float32]  # one row a vector
    squares: npt.NDArray[np.float32]  # squared length of each

    @property
    def bytes_held(self) -> int:
        """Estimated bytes, for the cache."""
        return int(self.ids.nbytes) + self.components.nbytes + self.squares.nbytes

    def nearest(
        self,
        vector: npt.NDArray[np.float32],
        k: int | None,
        among: Numbers | None,
        metric: Metric = Metric.L2,
    ) -> tuple[Numbers, Distances]:
        """The k nearest rows (all, without k), nearest first; ascending `among` limits them."""
        if metric is Metric.COSINE:
            among = self._turned(vector, among)
        rows = self._candidates(vector, k, among, metric)
        return ranked(rows, distances(self.components, rows, vector, metric), k)

    def _turned(self, vector: npt.NDArray[np.float32], among: Numbers | None) -> Numbers | None:
        """The rows that have a direction, all or those `among`; None for all there are."""
        if not vector.any():
            return np.empty(0, np.int64)
        zeros = self.squares == 0  # also of tiny numbers, whose squares are nothing in 32 bits
        zeros[zeros] = ~self.components[zeros].any(axis=1)
        if not zeros.any():
            return among
        return np.flatnonzero(~zeros) if among is None else among[~zeros[among]]

    def _candidates(
        self,
        vector: npt.NDArray[np.float32],
        k: int | None,
        among: Numbers | None,
        metric: Metric,
    ) -> Numbers:
        count = len(self.ids) if among is None else len(among)
        every = np.arange(count) if among is None else among
        if k is None or k >= count:
            return every
        if k == 0:
            return every[:0]
        near, slack = self._roughly(vector, among, metric)
        if not np.isfinite(slack) or not np.isfinite(near).all():
            return every
        return every[np.flatnonzero(near <= _bound(near, k) + slack)]

    def _roughly(
        self, vector: npt.NDArray[np.float32], among: Numbers | None, metric: Metric
    ) -> tuple[npt.NDArray[np.float32], float]:
        """Numbers in 32 bits that grow with the distance, and twice their error bound: squared
        distances less the query's square, or products with the sign turned."""
        components = self.components if among is None else self.components[among]
        squares = self.squares if among is None else self.squares[among]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            products = _products(components, vector)
            largest = float(np.sqrt(squares.max(initial=0)))
            length = float(np.linalg.norm(vector))
            match metric:
                case Metric.L2:
                    near, scale = squares - 2 * products, largest * (largest + 2 * length)
                case Metric.DOT:
                    near, scale = -products, largest * length
                case Metric.COSINE:
                    near, scale = -products / np.sqrt(squares), 2 * length
                    if float(squares.min(initial=np.inf)) < _TINY or not np.isfinite(largest):
                        near = np.full(len(near), np.nan, np.float32)  # no digits are left
                case _:
                    assert_never(metric)
        return near, 2 * (len(vector) + 8) * _UNIT * scale


def _products(
    components: npt.NDArray[np.float32], vector: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    # In pieces small enough for one thread: on a busy machine waiting for a second one takes many
    # times longer than its share of the work.
    products = np.empty(len(components), dtype=np.float32)
    step = max(COSTS.products_together // len(vector), 1)
    for first in range(0, len(components), step):
        block = slice(first, first + step)
        np.dot(components[block], vector, out=products[block])
    return products


def _bound(near: npt.NDArray[np.float32], k: int) -> float:
    """An upper bound of the k-th smallest number, close to it."""
    blocks = len(near) // COSTS.kth_block_rows
    if blocks < 4 * k:
        return float(np.partition(near, k - 1)[k - 1])
    # The least of each block are numbers too, so the k-th of them is as large as the k-th of all.
    least = near[: blocks * COSTS.kth_block_rows].reshape(blocks, COSTS.kth_block_rows).min(axis=1)
    return float(np.partition(least, k - 1)[k - 1])


def build(ids: pa.Array, vectors: pa.ChunkedArray) -> Vectors:
    """The vectors of a column; rows without one are left out."""
    dimension = vectors.type.list_size
    announce(8 * dimension * len(vectors))
    components = np.empty((len(vectors) - vectors.null_count, dimension), dtype=np.float32)
    present, filled, first = [], 0, 0
    for chunk in vectors.chunks:
        present_vectors = chunk.drop_null()
        components[filled : filled + len(present_vectors)] = _matrix(present_vectors)
        present.append(np.flatnonzero(chunk.is_valid().to_numpy(zero_copy_only=False)) + first)
        filled, first = filled + len(present_vectors), first + len(chunk)
    kept_ids = ids.take(pa.array(np.concatenate(present) if present else np.empty(0, np.int64)))
    order = pc.sort_indices(kept_ids)
    if not (np.diff(order.to_numpy()) == 1).all():
        kept_ids, components = kept_ids.take(order), components[order.to_numpy()]
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", components, components)
    return Vectors(kept_ids, components, squares)


def replaced(vectors: Vectors, gone: npt.NDArray[np.bool_], extra: Vectors) -> Vectors:
    """The vectors without the rows marked in `gone`, merged with others."""
    kept = np.flatnonzero(~gone)
    ids, old_rows, new_rows = joined(vectors.ids.take(pa.array(kept)), extra.ids)
    components = np.empty((len(ids), vectors.components.shape[1]), dtype=np.float32)
    squares = np.empty(len(ids), dtype=np.float32)
    components[old_rows], components[new_rows] = vectors.components[kept], extra.components
    squares[old_rows], squares[new_rows] = vectors.squares[kept], extra.squares
    return Vectors(ids, components, squares)


def _matrix(vectors: pa.FixedSizeListArray) -> npt.NDArray[np.float32]:
    flat: npt.NDArray[np.float32] = vectors.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(vectors), vectors.type.list_size)


def distances(
    components: npt.NDArray[np.float32],
    rows: Numbers,
    vector: npt.NDArray[np.float32],
    metric: Metric = Metric.L2,
) -> Distances:
    """The distance of each of these rows, in 64 bits."""
    result = np.empty(len(rows), dtype=np.float64)
    wide = vector.astype(np.float64)
    for first in range(0, len(rows), COSTS.distance_rows_together):
        block = slice(first, first + COSTS.distance_rows_together)
        own = components[rows[block]]
        if metric is Metric.L2:
            apart = own - wide
            result[block] = np.sqrt(np.einsum("ij,ij->i", apart, apart))
            continue
        own = own.astype(np.float64)
        products = np.einsum("ij,j->i", own, wide)
        if metric is Metric.COSINE:
            lengths = np.sqrt(np.einsum("ij,ij->i", own, own)) * np.sqrt(wide @ wide)
            products = np.clip(products / lengths, -1.0, 1.0)
        result[block] = 1.0 - products
    return result


def ranked(rows: Numbers, away: Distances, k: int | None) -> tuple[Numbers, Distances]:
    """Ascending rows with their distances, nearest first, ties in order, the first k."""
    order = np.argsort(away, kind="stable")[:k]
    return rows[order], away[order]
