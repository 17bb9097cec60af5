"""Fast path of: search/search.py. Full-text and vector search over nodes that are numbered.

Reference: `matching_ids`, `bm25` and `nearest` of search/search.py, which return ids.
Held equal by: tests/exec/search/test_search.py, test_search_agrees_with_its_definition.
Falls back: entities without a numbering (their table is not in memory) use the reference, and so
does a vector column that is too large for the cache.

Invariant: a function here returns the numbers of the ids that its reference returns, in the same
order. The number of each document is looked up once a table version, so a search touches no id.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph import number_arrays
from omnigraph.catalog.indexes import Metric
from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.memory.incremental import key_of
from omnigraph.exec.search import search
from omnigraph.exec.values.analyse import terms
from omnigraph.plan.ir import TextMode
from omnigraph.storage.lance.reader import TableReader

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_NONE = np.empty(0, np.int64)


class Numbering(Protocol):
    """Dictionary from ids to numbers. Dictionaries of one family agree on every id they share."""

    family: Hashable

    @property
    def strings(self) -> pa.Array:
        """All ids, by number."""
        ...

    def __len__(self) -> int: ...

    def locate(self, ids: pa.Array) -> np.ndarray:
        """The number of each id, -1 for an unknown id."""
        ...


def matching_numbers(
    reader: TableReader,
    column: str,
    query: str,
    *,
    mode: TextMode,
    numbering: Numbering,
    cache: Cache,
    edits_max: int | None = None,
    among: Numbers | None = None,
) -> Numbers:
    """The numbers of the rows whose text shares a term with the query, or nearly does."""
    if not terms(query):
        return _NONE
    if mode is TextMode.ANY_TOKEN:
        words = search.words_for_disk(reader, column, query, cache)
        if words is not None:
            ids = search.matching_on_disk(reader, column, words, None)
            return _only(numbering.locate(ids), among, len(numbering))
    index = search.text(reader, column, cache=cache)
    match mode:
        case TextMode.FUZZY:
            documents = index.matching_fuzzily(query, search.edits_allowed(edits_max))
        case TextMode.ANY_TOKEN:
            documents = index.matching(query)
        case _:
            assert_never(mode)
    mapping = _row_numbers(key_of(search.TEXT, reader.pin, column), index.ids, numbering, cache)
    return _only(mapping.number_of[documents], among, len(numbering))


def bm25_numbers(
    reader: TableReader,
    column: str,
    query: str,
    *,
    numbering: Numbering,
    cache: Cache,
    among: Numbers | None = None,
    k: int | None = None,
) -> tuple[Numbers, Floats]:
    """The numbers of matching rows and their scores, best first, ties by id; with k the first k."""
    if not terms(query):
        return _NONE, np.empty(0, np.float64)
    index = search.text(reader, column, cache=cache)
    mapping = _row_numbers(key_of(search.TEXT, reader.pin, column), index.ids, numbering, cache)
    documents, scores = index.scored(query)
    if among is not None:
        kept = _flags(among, len(numbering))[mapping.number_of[documents]]
        documents, scores = documents[kept], scores[kept]
    order = search.best(scores, k)
    return mapping.number_of[documents[order]], scores[order]


def nearest_numbers(
    reader: TableReader,
    column: str,
    vector: Sequence[float],
    *,
    numbering: Numbering,
    cache: Cache,
    k: int | None = None,
    metric: Metric = Metric.L2,
    among: Numbers | None = None,
) -> tuple[Numbers, Floats]:
    """The numbers of the k nearest rows (all, without k) and their distances, ties by id."""
    query = search.query_vector(reader, column, vector)
    if k is not None and not search.fits(reader, len(query), cache):
        ids = None if among is None else numbering.strings.take(pa.array(among))
        found_ids, away = search.nearest(
            reader, column, vector, k=k, metric=metric, among=ids, cache=cache
        )
        return numbering.locate(found_ids), away
    column_vectors = search.vectors_of(reader, column, cache=cache)
    mapping = _row_numbers(
        key_of(search.VECTORS, reader.pin, column), column_vectors.ids, numbering, cache
    )
    candidates = None if among is None else mapping.rows(among)
    nearest_rows, away = column_vectors.nearest(query, k, candidates, metric)
    return mapping.number_of[nearest_rows], away


@dataclass(frozen=True, slots=True)
class _RowNumbers:
    """The number of each row of a searched column, and the row of each number."""

    number_of: Numbers
    row_of: Numbers  # -1 for numbers without a row

    def rows(self, numbers: Numbers) -> Numbers:
        """The rows of these numbers, ascending; numbers without a row are left out."""
        known = numbers[(numbers >= 0) & (numbers < len(self.row_of))]
        rows = self.row_of[known]
        return number_arrays.distinct(rows[rows >= 0])


def _row_numbers(key: Hashable, ids: pa.Array, numbering: Numbering, cache: Cache) -> _RowNumbers:
    def make() -> tuple[_RowNumbers, int]:
        number_of = numbering.locate(ids)
        assert number_of.min(initial=0) >= 0, "a dictionary knows the ids of its own version"
        row_of = np.full(int(number_of.max(initial=-1)) + 1, -1)
        row_of[number_of] = np.arange(len(ids))
        return _RowNumbers(number_of, row_of), number_of.nbytes + row_of.nbytes

    return cache.made(("row numbers", key, numbering.family), make)


def _flags(among: Numbers, count: int) -> npt.NDArray[np.bool_]:
    flags = np.zeros(count, dtype=np.bool_)
    flags[among] = True
    return flags


def _only(numbers: Numbers, among: Numbers | None, count: int) -> Numbers:
    return numbers if among is None else numbers[_flags(among, count)[numbers]]
