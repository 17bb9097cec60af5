"""Full-text search (BM25, fuzzy) and vector search (exact k nearest) over one table version.

Invariant: the answer depends on the rows of the version alone, not on index coverage or on the
cache. Text matches are exact sets; scores come from the statistics of the whole
version; neighbours are the exact nearest, with one stated exception:

    A vector column too large for the cache is searched through its index, if it has one. Distances
    are exact and rows that no index covers are compared one by one, but a neighbour that lies in a
    part of the index that was not probed is missed. Without an index such a column is scanned.

Filters come first: `among` names the ids that may be returned, None means all.
"""

from collections.abc import Sequence
from typing import assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.indexes import IndexKind, Metric
from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest
from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.memory.incremental import Recipe, derived, key_of
from omnigraph.exec.search import bm25_index, vectors
from omnigraph.exec.search.bm25_index import TextIndex
from omnigraph.exec.search.schema_indexes import is_kind, metric_of
from omnigraph.exec.search.vectors import Vectors
from omnigraph.exec.values.analyse import searched_words, terms
from omnigraph.plan.ir import TextMode
from omnigraph.storage.lance.reader import TableReader

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TEXT = Recipe("text", bm25_index.build, bm25_index.replaced)
VECTORS = Recipe("vectors", vectors.build, vectors.replaced)

EDITS_DEFAULT = 2
NO_CACHE = Cache(0)


# Of an index whose column does not fit in memory.
_PROBES = 64
_REFINE = 8


# Text


def matching_ids(
    reader: TableReader,
    column: str,
    query: str,
    *,
    mode: TextMode,
    edits_max: int | None = None,
    among: pa.Array | None = None,
    cache: Cache = NO_CACHE,
) -> pa.Array:
    """The ids of the rows whose text shares a term with the query, or nearly does, in id order."""
    if not terms(query):
        return pa.array([], pa.utf8())
    if mode is TextMode.ANY_TOKEN:
        words = words_for_disk(reader, column, query, cache)
        if words is not None:
            return matching_on_disk(reader, column, words, among)
    index = text(reader, column, cache=cache)
    match mode:
        case TextMode.FUZZY:
            documents = index.matching_fuzzily(query, edits_allowed(edits_max))
        case TextMode.ANY_TOKEN:
            documents = index.matching(query)
        case _:
            assert_never(mode)
    return index.ids.take(pa.array(_among(index.ids, documents, among)))


def bm25(
    reader: TableReader,
    column: str,
    query: str,
    *,
    among: pa.Array | None = None,
    k: int | None = None,
    cache: Cache = NO_CACHE,
) -> tuple[pa.Array, Floats]:
    """The ids of matching rows and their scores, best first, ties by id; with k the first k."""
    if not terms(query):
        return pa.array([], pa.utf8()), np.empty(0, np.float64)
    index = text(reader, column, cache=cache)
    documents, scores = index.scored(query)
    if among is not None:
        kept = _is_among(index.ids, documents, among)
        documents, scores = documents[kept], scores[kept]
    order = best(scores, k)
    return index.ids.take(pa.array(documents[order])), scores[order]


def text(reader: TableReader, column: str, *, cache: Cache) -> TextIndex:
    """The inverted column of a version."""
    return derived(TEXT, reader, column, cache)


def words_for_disk(
    reader: TableReader, column: str, query: str, cache: Cache
) -> Sequence[str] | None:
    """Return the words to look up in the index on disk; None if the inverted column answers.

    The first searches do not pay to invert the column, unless they have more words than the index
    on disk answers faster.
    """
    key = key_of(TEXT, reader.pin, column)
    if cache.get(key) is not None:
        return None
    is_indexed = _is_indexed(reader, column, IndexKind.FULL_TEXT)
    if not is_indexed or cache.use(key) > COSTS.inverted_build_uses:
        return None
    words = searched_words(query)
    return words if len(words) <= COSTS.disk_words_max else None


def matching_on_disk(
    reader: TableReader, column: str, words: Sequence[str], among: pa.Array | None
) -> pa.Array:
    """Return the ids of the rows that have a term of these words, in id order, by the index on
    disk."""
    ids = reader.ids_with_any_word(column, words)
    if among is not None:
        ids = ids.filter(pc.is_in(ids, value_set=among))
    return ids.take(pc.sort_indices(ids))


def best(scores: Floats, k: int | None) -> Numbers:
    """Indexes of the top k scores, highest first, ties in order."""
    if k is None or k >= len(scores):
        return np.argsort(-scores, kind="stable")
    if k == 0:
        return np.empty(0, np.int64)
    bound = np.partition(scores, len(scores) - k)[len(scores) - k]
    candidates = np.flatnonzero(scores >= bound)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]


def edits_allowed(edits_max: int | None) -> int:
    if edits_max is None:
        return EDITS_DEFAULT
    if edits_max < 0:
        raise BadRequest(f"fuzzy allows {edits_max} edits", "give a whole number from 0 on")
    return edits_max


# Vectors


def nearest(
    reader: TableReader,
    column: str,
    vector: Sequence[float],
    *,
    k: int | None = None,
    metric: Metric = Metric.L2,
    among: pa.Array | None = None,
    cache: Cache = NO_CACHE,
) -> tuple[pa.Array, Floats]:
    """The ids of the k nearest rows (all, without k) and their distances, ties by id.

    Rows without a vector are absent.
    """
    query = query_vector(reader, column, vector)
    if not fits(reader, len(query), cache) and k is not None:
        return _nearest_of_many(reader, column, query, k=k, metric=metric, among=among)
    column_vectors = vectors_of(reader, column, cache=cache)
    candidates = (
        None
        if among is None
        else _among(column_vectors.ids, np.arange(len(column_vectors.ids)), among)
    )
    rows, away = column_vectors.nearest(query, k, candidates, metric)
    return column_vectors.ids.take(pa.array(rows)), away


def vectors_of(reader: TableReader, column: str, *, cache: Cache) -> Vectors:
    """The vectors of a version."""
    return derived(VECTORS, reader, column, cache)


def query_vector(
    reader: TableReader, column: str, vector: Sequence[float]
) -> npt.NDArray[np.float32]:
    dimension = reader.schema.field(column).type.list_size
    if len(vector) != dimension:
        raise BadRequest(
            f"the query vector has {len(vector)} components, {column} has {dimension}",
            "give a vector of the property's dimension",
        )
    return np.asarray(vector, dtype=np.float32)


def fits(reader: TableReader, dimension: int, cache: Cache) -> bool:
    return vectors_fit(reader.pin.row_count, dimension, cache.bytes_max)


def vectors_fit(rows: int, dimension: int, cache_bytes: int) -> bool:
    """Whether exact search may hold so many vectors."""
    return rows * (dimension + 8) * 4 <= max(cache_bytes, COSTS.vector_scan_bytes_max)


def _nearest_of_many(
    reader: TableReader,
    column: str,
    query: npt.NDArray[np.float32],
    *,
    k: int,
    metric: Metric,
    among: pa.Array | None,
) -> tuple[pa.Array, Floats]:
    """Neighbours in a column that is too large to keep: by its index, else batch by batch."""
    if among is None and k > 0 and _is_measured(reader, column, metric):
        near = {"column": column, "q": query, "k": k, "nprobes": _PROBES, "refine_factor": _REFINE}
        batches = iter(reader.batches(["id", column, "_distance"], nearest=near))
    else:
        batches = reader.batches(["id", column])
    best_ids, best_away = pa.array([], pa.utf8()), np.empty(0, np.float64)
    for batch in batches:
        if among is not None:
            batch = batch.filter(pc.is_in(batch.column("id"), value_set=among))
        batch_vectors = vectors.build(batch.column("id"), pa.chunked_array([batch.column(column)]))
        rows, away = batch_vectors.nearest(query, k, None, metric)
        ids = pa.concat_arrays([best_ids, batch_vectors.ids.take(pa.array(rows))])
        away = np.concatenate([best_away, away])
        order = np.lexsort((_ranks(ids), away))[:k]
        best_ids, best_away = ids.take(pa.array(order)), away[order]
    return best_ids, best_away


def _ranks(ids: pa.Array) -> Numbers:
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids))
    return ranks


# Indexes and filters


def _is_measured(reader: TableReader, column: str, metric: Metric) -> bool:
    """Whether a column of vectors has an index that measures them so."""
    vectors_of_column = (
        each
        for each in reader.indexes()
        if each.column == column and is_kind(each, IndexKind.VECTOR)
    )
    return any(metric_of(each) is metric for each in vectors_of_column)


def _is_indexed(reader: TableReader, column: str, kind: IndexKind) -> bool:
    return any(each.column == column and is_kind(each, kind) for each in reader.indexes())


def _among(ids: pa.Array, rows: Numbers, among: pa.Array | None) -> Numbers:
    return rows if among is None else rows[_is_among(ids, rows, among)]


def _is_among(ids: pa.Array, rows: Numbers, among: pa.Array) -> npt.NDArray[np.bool_]:
    flags = pc.is_in(ids.take(pa.array(rows)), value_set=among)
    return np.asarray(flags.to_numpy(zero_copy_only=False), dtype=np.bool_)
