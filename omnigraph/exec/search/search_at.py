"""Text and vector search for rows that hold numbers in place of ids.

Invariant: a function here returns the numbers of the ids that its namesake in `search` returns, in
the same order. Which number a document has is looked up once a table version, so that a search
touches no id at all.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.memory.incremental import key_of
from omnigraph.exec.search import search
from omnigraph.exec.search.analyse import terms
from omnigraph.plan.ir import TextMode
from omnigraph.storage.lance.reader import TableReader

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_NONE = np.empty(0, np.int64)


class Numbering(Protocol):
    """Numbers of ids. Dictionaries of one family agree on every id they share."""

    family: Hashable
    strings: pa.Array  # by number

    def __len__(self) -> int: ...

    def locate(self, wanted: pa.Array) -> np.ndarray:
        """The number of each id, -1 for those it does not know."""
        ...


def matching_at(
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
    if mode is TextMode.ANY_TOKEN and search.ask_disk(reader, column, cache):
        ids = search.matching_on_disk(reader, column, query, None)
        return _only(numbering.locate(ids), among, len(numbering))
    index = search.text(reader, column, cache=cache)
    if mode is TextMode.FUZZY:
        found = index.matching_fuzzily(query, search.edits_allowed(edits_max))
    else:
        found = index.matching(query)
    places = _places(key_of(search.TEXT, reader.pin, column), index.ids, numbering, cache)
    return _only(places.number_of[found], among, len(numbering))


def bm25_at(
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
    places = _places(key_of(search.TEXT, reader.pin, column), index.ids, numbering, cache)
    found, scores = index.scored(query)
    if among is not None:
        kept = _flags(among, len(numbering))[places.number_of[found]]
        found, scores = found[kept], scores[kept]
    order = search.best(scores, k)
    return places.number_of[found[order]], scores[order]


def nearest_at(
    reader: TableReader,
    column: str,
    vector: Sequence[float],
    *,
    numbering: Numbering,
    cache: Cache,
    k: int | None = None,
    among: Numbers | None = None,
) -> tuple[Numbers, Floats]:
    """The numbers of the k nearest rows (all, without k) and their distances, ties by id."""
    query = search.query_vector(reader, column, vector)
    if k is not None and not search.fits(reader, len(query), cache):
        ids = None if among is None else numbering.strings.take(pa.array(among))
        found_ids, away = search.nearest(reader, column, vector, k=k, among=ids, cache=cache)
        return numbering.locate(found_ids), away
    held = search.vectors_of(reader, column, cache=cache)
    places = _places(key_of(search.VECTORS, reader.pin, column), held.ids, numbering, cache)
    some = None if among is None else places.rows(among)
    found, away = held.nearest(query, k, some)
    return places.number_of[found], away


@dataclass(frozen=True, slots=True)
class _Places:
    """The number of each row of a searched column, and the row of each number."""

    number_of: Numbers
    row_of: Numbers  # -1 for numbers without a row

    def rows(self, numbers: Numbers) -> Numbers:
        """The rows of some numbers, ascending, without those that have none."""
        known = numbers[(numbers >= 0) & (numbers < len(self.row_of))]
        rows = self.row_of[known]
        return np.unique(rows[rows >= 0])


def _places(key: Hashable, ids: pa.Array, numbering: Numbering, cache: Cache) -> _Places:
    def make() -> tuple[_Places, int]:
        number_of = numbering.locate(ids)
        assert number_of.min(initial=0) >= 0, "a dictionary knows the ids of its own version"
        row_of = np.full(int(number_of.max(initial=-1)) + 1, -1)
        row_of[number_of] = np.arange(len(ids))
        return _Places(number_of, row_of), number_of.nbytes + row_of.nbytes

    return cache.made(("places", key, numbering.family), make)


def _flags(among: Numbers, count: int) -> npt.NDArray[np.bool_]:
    flags = np.zeros(count, dtype=np.bool_)
    flags[among] = True
    return flags


def _only(found: Numbers, among: Numbers | None, count: int) -> Numbers:
    return found if among is None else found[_flags(among, count)[found]]
