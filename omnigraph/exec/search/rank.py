"""Ranking of query rows: BM25, nearest neighbours, reciprocal rank fusion, and text conditions.

Invariant: a ranking sees exactly the entities of its variable in the rows, so every condition of
the pattern is applied first. Ties are in order of ids.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import number_arrays
from omnigraph.catalog.indexes import Metric
from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest
from omnigraph.exec.memory.numbering import Ids
from omnigraph.exec.memory.resident import Nodes
from omnigraph.exec.memory.view import TablesView
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.rows import BoundEntities, Rows, as_numpy
from omnigraph.light_dataclass import dataclass
from omnigraph.plan import ir
from omnigraph.storage.records import embedded_property

if TYPE_CHECKING:
    from omnigraph.exec.search import embed, search, search_by_number
    from omnigraph.exec.values import vector_base
else:
    vector_base = deferred("omnigraph.exec.values", "vector_base")
    embed = deferred("omnigraph.exec.search", "embed")
    search = deferred("omnigraph.exec.search", "search")
    search_by_number = deferred("omnigraph.exec.search", "search_by_number")


@dataclass(frozen=True, slots=True)
class TopK:
    """Top-k bound: how many of the best entities a query can show; whether ids break ties."""

    count: int
    ties_by_id: bool


class Ranker:
    """Evaluates the text conditions and rankings of one query."""

    def __init__(self, tables: TablesView, given: Given, embedder: "embed.Provider | None") -> None:
        self._tables = tables
        self._cache = tables.holdings.cache
        self._given = given
        self._embedder = embedder

    # Conditions

    def text_matches(self, match: ir.TextMatch, rows: Rows) -> np.ndarray:
        """Mask of the rows that a text search matches. Null text never does."""
        subject = _Subject(self._tables, match.column, rows)
        query = self._given.of(match.query)
        edits = None if match.edits_max is None else self._given.of(match.edits_max)
        if subject.name is None or query is None or not len(subject.entities):
            return np.zeros(rows.length, bool)
        asked = (subject.source.reader, subject.name, str(query))
        edits_max = None if edits is None else int(edits)  # type: ignore[arg-type]
        if subject.numbering is None:
            ids = search.matching_ids(
                *asked, mode=match.mode, edits_max=edits_max, among=subject.among, cache=self._cache
            )
            indexes = subject.indexes_of_ids(ids)
        else:
            numbers = search_by_number.matching_numbers(
                *asked,
                mode=match.mode,
                edits_max=edits_max,
                numbering=subject.numbering,
                among=subject.among_numbers,
                cache=self._cache,
            )
            indexes = subject.indexes_of(numbers)
        matches = np.zeros(len(subject.entities), bool)
        matches[indexes[indexes >= 0]] = True
        return subject.spread(matches, False)

    # Scores

    def require_provider(self, scores: Iterable[ir.Score]) -> None:
        """Refuse a ranking by a text that cannot be embedded, also where there are no rows."""
        for score in scores:
            ranking = score.ranking
            arms = (ranking.first, ranking.second) if isinstance(ranking, ir.Rrf) else (ranking,)
            for arm in arms:
                if isinstance(arm, ir.Nearest) and isinstance(self._given.of(arm.query), str):
                    self._provider_of(arm)

    def score(self, score: ir.Score, rows: Rows, top: TopK | None) -> Rows:
        """The rows with their score; with `required` only rows that have one."""
        ranking = score.ranking
        if isinstance(ranking, ir.Rrf):
            return self._fused(score, ranking, rows)
        subject = _Subject(self._tables, ranking.column, rows)
        order, scores = self._ranked(ranking, subject, top)
        values = np.full(len(subject.entities), np.nan)
        values[order] = scores
        known = np.zeros(len(subject.entities), bool)
        known[order] = True
        has_score = subject.spread(known, False)
        scored = rows.put(score.out, pa.array(subject.spread(values, np.nan), mask=~has_score))
        return scored.where(has_score) if score.required else scored

    def scores_of(
        self, ranking: ir.Nearest | ir.Bm25, domain: Nodes, positions: list[int]
    ) -> dict[int, float]:
        """The scores of nodes given by position; nodes without a score are left out."""
        name = domain.source.columns.name_of(ranking.column)
        query = self._given.of(ranking.query)
        if name is None or query is None or not positions:
            return {}
        among = np.array(sorted(set(positions)), np.int64)
        reader, cache = domain.source.reader, self._cache
        if isinstance(ranking, ir.Bm25):
            ranked, scores = search_by_number.bm25_numbers(
                reader, name, str(query), numbering=domain.ids, among=among, cache=cache
            )
        else:
            vector = self._vector(ranking, query)
            ranked, scores = search_by_number.nearest_numbers(
                reader,
                name,
                vector,
                numbering=domain.ids,
                among=among,
                k=len(among),
                metric=ranking.metric,
                cache=cache,
            )
        return dict(zip(ranked.tolist(), scores.tolist(), strict=True))

    def _ranked(
        self, ranking: ir.Nearest | ir.Bm25, subject: "_Subject", top: TopK | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Indexes of the subject's entities, best first, and their scores."""
        query = self._given.of(ranking.query)
        if subject.name is None or query is None or not len(subject.entities):
            return np.empty(0, np.int64), np.empty(0)
        if isinstance(ranking, ir.Bm25):
            text = str(query)
            indexes, scores = _best(lambda k: self._bm25(subject, text, k), top)
        else:
            vector = self._vector(ranking, query)
            metric = ranking.metric
            indexes, scores = _best(lambda k: self._nearest(subject, vector, k, metric), top)
        return indexes[indexes >= 0], np.asarray(scores)[indexes >= 0]

    def _bm25(self, subject: "_Subject", query: str, k: int | None) -> "Ranked":
        assert subject.name is not None
        asked, cache = (subject.source.reader, subject.name, query), self._cache
        if subject.numbering is None:
            ids, scores = search.bm25(*asked, among=subject.among, k=k, cache=cache)
            return subject.indexes_of_ids(ids), scores
        numbers, scores = search_by_number.bm25_numbers(
            *asked, numbering=subject.numbering, among=subject.among_numbers, k=k, cache=cache
        )
        return subject.indexes_of(numbers), scores

    def _nearest(
        self, subject: "_Subject", vector: Sequence[float], k: int | None, metric: Metric
    ) -> "Ranked":
        assert subject.name is not None
        asked, cache = (subject.source.reader, subject.name, vector), self._cache
        if subject.numbering is None:
            ids, scores = search.nearest(
                *asked, among=subject.among, k=k, metric=metric, cache=cache
            )
            return subject.indexes_of_ids(ids), scores
        numbers, scores = search_by_number.nearest_numbers(
            *asked,
            numbering=subject.numbering,
            among=subject.among_numbers,
            k=k,
            metric=metric,
            cache=cache,
        )
        return subject.indexes_of(numbers), scores

    def _vector(self, ranking: ir.Nearest, query: ir.Constant) -> Sequence[float]:
        if isinstance(query, tuple):
            return [float(number) for number in query]  # type: ignore[arg-type]
        dimension = ranking.column.type.dimension
        assert dimension is not None
        return embed.embed_query(self._provider_of(ranking), str(query), dimension)

    def _provider_of(self, ranking: ir.Nearest) -> "embed.Provider":
        """Return the provider of a query text. Raises `BadRequest` if it has another model than the
        vectors."""
        provider, column, model = embed.require_provider(self._embedder), ranking.column, None
        if ranking.owner is not None:
            key = embedded_property(ranking.owner, column.property_id)
            recorded = self._tables.snapshot.embedded.get(key)
            model = None if recorded is None else recorded.model
        for stated in (ranking.model, model):
            if stated is not None and stated != provider.model:
                raise vector_base.other_model(column.name, stated, provider.model)
        return provider

    def _fused(self, score: ir.Score, ranking: ir.Rrf, rows: Rows) -> Rows:
        k = self._given.of(ranking.k)
        if not isinstance(k, int) or k < 1:
            raise BadRequest(f"the k of rrf is {k}", "give a whole number of at least 1")
        subject = _Subject(self._tables, ranking.first.column, rows)
        first = self._arm(ranking.first, ranking.depth, subject, rows)
        second = self._arm(ranking.second, ranking.depth, subject, rows)
        scores = _reciprocal(first, k) + _reciprocal(second, k)
        order = np.lexsort((_ranked_last(second), _ranked_last(first), -scores))
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        has_score = subject.spread((first >= 0) | (second >= 0), False)
        scored = rows.put(score.out, pa.array(subject.spread(scores, 0.0), mask=~has_score))
        if score.position is not None:
            scored = scored.put(score.position, pa.array(subject.spread(position, -1)))
        return scored.where(has_score) if score.required else scored

    def _arm(
        self, arm: ir.Nearest | ir.Bm25, depth: int, primary: "_Subject", rows: Rows
    ) -> np.ndarray:
        """The rank of each primary entity in one arm, -1 for entities the arm does not rank."""
        subject = _Subject(self._tables, arm.column, rows)
        deep = TopK(depth, ties_by_id=True) if isinstance(arm, ir.Nearest) else None
        order, _ = self._ranked(arm, subject, deep)
        if isinstance(arm, ir.Nearest):
            order = order[:depth]
        ranks = np.full(len(primary.entities), -1)
        if subject.source.table == primary.source.table:
            indexes = primary.indexes_of_ids(subject.ids.take(pa.array(order)))
            ranks[indexes[indexes >= 0]] = np.flatnonzero(indexes >= 0)
        return ranks


Ranked = tuple[np.ndarray, np.ndarray]
"""Indexes of a subject's entities, best first, and their scores."""


def _best(ranked: Callable[[int | None], Ranked], top: "TopK | None") -> Ranked:
    """The top k with all ties of the last one, unless ids break ties."""
    if top is None or not top.count:
        return ranked(None)
    if top.ties_by_id:
        return ranked(top.count)
    count = top.count
    indexes, scores = ranked(count + 1)
    while len(scores) > count and scores[-1] == scores[top.count - 1]:
        count *= 4
        indexes, scores = ranked(count + 1)
    return indexes, scores


def _ranked_last(ranks: np.ndarray) -> np.ndarray:
    """Ranks as a sort key: entities without a rank come last."""
    return np.where(ranks < 0, np.iinfo(np.int64).max, ranks)


def _reciprocal(ranks: np.ndarray, k: int) -> np.ndarray:
    return np.where(ranks < 0, 0.0, 1.0 / (k + ranks + 1))


class _Subject:
    """The distinct entities of a ranked variable in the rows, by position, ascending."""

    def __init__(self, tables: TablesView, column: ir.Column, rows: Rows) -> None:
        self._bound: BoundEntities = rows.bindings[column.var]
        self._row_count = tables.snapshot.tables[self._bound.domain.table].row_count
        self.source = tables.source(self._bound.domain.table)
        self.name = self.source.columns.name_of(column)
        positions, domain = self._bound.positions, self._bound.domain
        self._is_whole_table = isinstance(domain, Nodes) and positions is domain.present
        self.entities = positions
        if not self._is_whole_table:
            self.entities = number_arrays.distinct(positions[positions >= 0])

    @property
    def ids(self) -> pa.Array:
        return self._bound.domain.ids_at(self.entities)

    @property
    def among(self) -> pa.Array | None:
        """The ids a search may return; None when the rows hold every entity of the table."""
        return None if len(self.entities) == self._row_count else self.ids

    @property
    def numbering(self) -> Ids | None:
        """The id dictionary of the table, when the whole table is in memory."""
        domain = self._bound.domain
        return domain.ids if isinstance(domain, Nodes) else None

    @property
    def among_numbers(self) -> np.ndarray | None:
        """The same as `among`, by number."""
        return None if len(self.entities) == self._row_count else self.entities

    def indexes_of_ids(self, ids: pa.Array) -> np.ndarray:
        """The index of each id among the entities, -1 where it is none of them."""
        domain = self._bound.domain
        if isinstance(domain, Nodes):
            return self.indexes_of(domain.ids.locate(ids))
        indexes = pc.index_in(ids, value_set=self.ids).fill_null(-1)
        return as_numpy(indexes).astype(np.int64)

    def indexes_of(self, positions: np.ndarray) -> np.ndarray:
        """The index of each position among the entities, -1 where it is none of them."""
        if not len(self.entities):
            return np.full(len(positions), -1)
        indexes = np.minimum(np.searchsorted(self.entities, positions), len(self.entities) - 1)
        return np.where(self.entities[indexes] == positions, indexes, -1)

    def spread(self, values: np.ndarray, missing: object) -> np.ndarray:
        """Values by entity as values by row."""
        if self._is_whole_table:
            return values
        indexes = self.indexes_of(self._bound.positions)
        return np.take(np.append(values, np.asarray([missing], values.dtype)), indexes)
