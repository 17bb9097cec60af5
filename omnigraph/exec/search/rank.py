"""Ranking numbers and text conditions, asked of the search module for the rows at hand.

Invariant: a ranking sees exactly the entities of its variable among the rows, so every condition of
the pattern came first. Ties are in order of ids.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import BadRequest
from omnigraph.exec.memory.numbering import Ids
from omnigraph.exec.memory.resident import Nodes
from omnigraph.exec.memory.view import TablesView
from omnigraph.exec.search import embed, search, search_at
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.rows import BoundEntities, Rows, as_numpy
from omnigraph.plan import ir


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many of the best entities a query can show; whether their ids decide between ties."""

    count: int
    ties_by_id: bool


class Ranker:
    """Answers the text and vector questions of one query."""

    def __init__(self, tables: TablesView, given: Given, embedder: "embed.Provider | None") -> None:
        self._tables = tables
        self._cache = tables.holdings.cache
        self._given = given
        self._embedder = embedder

    # Conditions

    def text_matches(self, match: ir.TextMatch, rows: Rows) -> np.ndarray:
        """Which rows a text search matches. Null text never does."""
        subject = _Subject(self._tables, match.column, rows)
        query = self._given.of(match.query)
        edits = None if match.edits_max is None else self._given.of(match.edits_max)
        if subject.name is None or query is None or not len(subject.there):
            return np.zeros(rows.length, bool)
        asked = (subject.source.reader, subject.name, str(query))
        edits_max = None if edits is None else int(edits)  # type: ignore[arg-type]
        if subject.numbering is None:
            ids = search.matching_ids(
                *asked, mode=match.mode, edits_max=edits_max, among=subject.among, cache=self._cache
            )
            places = subject.places(ids)
        else:
            at = search_at.matching_at(
                *asked,
                mode=match.mode,
                edits_max=edits_max,
                numbering=subject.numbering,
                among=subject.some,
                cache=self._cache,
            )
            places = subject.places_of(at)
        found = np.zeros(len(subject.there), bool)
        found[places[places >= 0]] = True
        return subject.spread(found, False)

    # Numbers

    def score(self, score: ir.Score, rows: Rows, wanted: Wanted | None) -> Rows:
        """The rows with their number; with `required` only those that have one."""
        ranking = score.ranking
        if isinstance(ranking, ir.Rrf):
            return self._fused(score, ranking, rows)
        subject = _Subject(self._tables, ranking.column, rows)
        order, numbers = self._ranked(ranking, subject, wanted)
        values = np.full(len(subject.there), np.nan)
        values[order] = numbers
        known = np.zeros(len(subject.there), bool)
        known[order] = True
        there = subject.spread(known, False)
        scored = rows.put(score.out, pa.array(subject.spread(values, np.nan), mask=~there))
        return scored.where(there) if score.required else scored

    def numbers_of(
        self, ranking: ir.Nearest | ir.Bm25, domain: Nodes, at: list[int]
    ) -> dict[int, float]:
        """The numbers of some nodes, by position, for those that have one."""
        name = domain.source.columns.name_of(ranking.column)
        query = self._given.of(ranking.query)
        if name is None or query is None or not at:
            return {}
        some = np.array(sorted(set(at)), np.int64)
        reader, cache = domain.source.reader, self._cache
        if isinstance(ranking, ir.Bm25):
            found, numbers = search_at.bm25_at(
                reader, name, str(query), numbering=domain.ids, among=some, cache=cache
            )
        else:
            vector = self._vector(ranking, query)
            found, numbers = search_at.nearest_at(
                reader, name, vector, numbering=domain.ids, among=some, k=len(some), cache=cache
            )
        return dict(zip(found.tolist(), numbers.tolist(), strict=True))

    def _ranked(
        self, ranking: ir.Nearest | ir.Bm25, subject: "_Subject", wanted: Wanted | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Places of the subject's entities, best first, and their numbers."""
        query = self._given.of(ranking.query)
        if subject.name is None or query is None or not len(subject.there):
            return np.empty(0, np.int64), np.empty(0)
        if isinstance(ranking, ir.Bm25):
            text = str(query)
            places, numbers = _best(lambda k: self._bm25(subject, text, k), wanted)
        else:
            vector = self._vector(ranking, query)
            places, numbers = _best(lambda k: self._nearest(subject, vector, k), wanted)
        return places[places >= 0], np.asarray(numbers)[places >= 0]

    def _bm25(self, subject: "_Subject", query: str, k: int | None) -> "Ranked":
        assert subject.name is not None
        asked, cache = (subject.source.reader, subject.name, query), self._cache
        if subject.numbering is None:
            ids, numbers = search.bm25(*asked, among=subject.among, k=k, cache=cache)
            return subject.places(ids), numbers
        at, numbers = search_at.bm25_at(
            *asked, numbering=subject.numbering, among=subject.some, k=k, cache=cache
        )
        return subject.places_of(at), numbers

    def _nearest(self, subject: "_Subject", vector: Sequence[float], k: int | None) -> "Ranked":
        assert subject.name is not None
        asked, cache = (subject.source.reader, subject.name, vector), self._cache
        if subject.numbering is None:
            ids, numbers = search.nearest(*asked, among=subject.among, k=k, cache=cache)
            return subject.places(ids), numbers
        at, numbers = search_at.nearest_at(
            *asked, numbering=subject.numbering, among=subject.some, k=k, cache=cache
        )
        return subject.places_of(at), numbers

    def _vector(self, ranking: ir.Nearest, query: ir.Constant) -> Sequence[float]:
        if isinstance(query, tuple):
            return [float(number) for number in query]  # type: ignore[arg-type]
        dimension = ranking.column.type.dimension
        assert dimension is not None
        return embed.embed_query(self._embedder, str(query), dimension, ranking.model)

    def _fused(self, score: ir.Score, ranking: ir.Rrf, rows: Rows) -> Rows:
        k = self._given.of(ranking.k)
        if not isinstance(k, int) or k < 1:
            raise BadRequest(f"the k of rrf is {k}", "give a whole number of at least 1")
        subject = _Subject(self._tables, ranking.first.column, rows)
        first = self._arm(ranking.first, ranking.depth, subject, rows)
        second = self._arm(ranking.second, ranking.depth, subject, rows)
        numbers = _reciprocal(first, k) + _reciprocal(second, k)
        order = np.lexsort((_ranked_last(second), _ranked_last(first), -numbers))
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        there = subject.spread((first >= 0) | (second >= 0), False)
        scored = rows.put(score.out, pa.array(subject.spread(numbers, 0.0), mask=~there))
        if score.position is not None:
            scored = scored.put(score.position, pa.array(subject.spread(position, -1)))
        return scored.where(there) if score.required else scored

    def _arm(
        self, arm: ir.Nearest | ir.Bm25, depth: int, primary: "_Subject", rows: Rows
    ) -> np.ndarray:
        """The rank of each primary entity in one arm, -1 for those it does not hold."""
        subject = _Subject(self._tables, arm.column, rows)
        deep = Wanted(depth, ties_by_id=True) if isinstance(arm, ir.Nearest) else None
        order, _ = self._ranked(arm, subject, deep)
        if isinstance(arm, ir.Nearest):
            order = order[:depth]
        ranks = np.full(len(primary.there), -1)
        if subject.source.table == primary.source.table:
            places = primary.places(subject.ids.take(pa.array(order)))
            ranks[places[places >= 0]] = np.flatnonzero(places >= 0)
        return ranks


Ranked = tuple[np.ndarray, np.ndarray]
"""Places among a subject's entities, best first, and the numbers of these."""


def _best(ranked: Callable[[int | None], Ranked], wanted: "Wanted | None") -> Ranked:
    """The best that are wanted, and those that tie with the last of them, unless ids decide."""
    if wanted is None or not wanted.count:
        return ranked(None)
    if wanted.ties_by_id:
        return ranked(wanted.count)
    count = wanted.count
    places, numbers = ranked(count + 1)
    while len(numbers) > count and numbers[-1] == numbers[wanted.count - 1]:
        count *= 4
        places, numbers = ranked(count + 1)
    return places, numbers


def _ranked_last(ranks: np.ndarray) -> np.ndarray:
    """Ranks to sort by: who has none comes last."""
    return np.where(ranks < 0, np.iinfo(np.int64).max, ranks)


def _reciprocal(ranks: np.ndarray, k: int) -> np.ndarray:
    return np.where(ranks < 0, 0.0, 1.0 / (k + ranks + 1))


class _Subject:
    """The distinct entities of a ranked variable among some rows."""

    def __init__(self, tables: TablesView, column: ir.Column, rows: Rows) -> None:
        self._bound: BoundEntities = rows.bindings[column.var]
        self._row_count = tables.snapshot.tables[self._bound.domain.table].row_count
        self.source = tables.source(self._bound.domain.table)
        self.name = self.source.columns.name_of(column)
        at = self._bound.positions
        self._everyone = isinstance(self._bound.domain, Nodes) and at is self._bound.domain.present
        self.there = at if self._everyone else np.unique(at[at >= 0])

    @property
    def ids(self) -> pa.Array:
        return self._bound.domain.ids_at(self.there)

    @property
    def among(self) -> pa.Array | None:
        """The ids a search may return; None when the rows hold every entity there is."""
        return None if len(self.there) == self._row_count else self.ids

    @property
    def numbering(self) -> Ids | None:
        """The dictionary that numbers the entities, when their whole table is held."""
        domain = self._bound.domain
        return domain.ids if isinstance(domain, Nodes) else None

    @property
    def some(self) -> np.ndarray | None:
        """The same as `among`, by number."""
        return None if len(self.there) == self._row_count else self.there

    def places_of(self, at: np.ndarray) -> np.ndarray:
        """Where these numbers stand among the entities, -1 where they do not."""
        return self._among_there(at)

    def places(self, ids: pa.Array) -> np.ndarray:
        """Where these ids stand among the entities, -1 where they do not."""
        domain = self._bound.domain
        if isinstance(domain, Nodes):
            return self.places_of(domain.ids.locate(ids))
        found = pc.index_in(ids, value_set=self.ids).fill_null(-1)
        return as_numpy(found).astype(np.int64)

    def _among_there(self, at: np.ndarray) -> np.ndarray:
        if not len(self.there):
            return np.full(len(at), -1)
        places = np.minimum(np.searchsorted(self.there, at), len(self.there) - 1)
        return np.where(self.there[places] == at, places, -1)

    def spread(self, values: np.ndarray, missing: object) -> np.ndarray:
        """A value an entity as a value a row."""
        if self._everyone:
            return values
        places = self._among_there(self._bound.positions)
        return np.take(np.append(values, np.asarray([missing], values.dtype)), places)
