"""Text and vector search: the same answer with no index, a part of one, or a whole one."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.catalog.indexes import Metric
from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest
from omnigraph.exec.memory.cache import Cache
from omnigraph.exec.memory.numbering import Ids
from omnigraph.exec.search import search
from omnigraph.exec.search.search import bm25, matching_ids, nearest
from omnigraph.exec.search.search_by_number import bm25_numbers, matching_numbers, nearest_numbers
from omnigraph.exec.values.analyse import INDEX_PARAMETERS, analyse, terms
from omnigraph.plan.ir import TextMode
from omnigraph.storage.lance.index_segments import IndexRequest
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import TableKey
from tests.storage.world import remove

SCHEMA = "node Doc { slug: String @key  title: String?  emb: Vector(2)? }"
DOC = TableKey("node:Doc")
Doc = tuple[str, str | None, list[float] | None]

WORKED: list[Doc] = [
    ("a", "Graph databases", [1, 0]),
    ("b", "Graphs and learning", [0.6, 0.8]),
    ("c", "Cooking", [0, 1]),
    ("d", "Deep learning", None),
]


@dataclass
class Docs:
    """A graph of documents that is changed step by step, and what it should hold."""

    graph: og.Graph
    rows: dict[str, Doc] = field(default_factory=dict)

    def upsert(self, docs: Sequence[Doc]) -> None:
        if docs:
            write = self.graph._store.begin(kind=WriterKind.MUTATION)
            write.upsert(DOC, _table(docs))
            self.graph._store.commit(write)
            self.rows.update({doc[0]: doc for doc in docs})

    def delete(self, slug: str) -> None:
        write = self.graph._store.begin(kind=WriterKind.MUTATION)
        if remove(self.graph._store, write, DOC, f"id = '{slug}'"):
            self.graph._store.commit(write)
        self.rows.pop(slug, None)

    def index(self) -> None:
        if not self.rows:
            return
        write = self.graph._store.begin(kind=WriterKind.MUTATION)
        requests = [IndexRequest("title", "INVERTED", "2:full-text", INDEX_PARAMETERS, anew=True)]
        if any(vector for _, _, vector in self.rows.values()):
            parameters = {"metric": "L2", "num_partitions": 1}
            requests.append(IndexRequest("emb", "IVF_FLAT", "3:vector", parameters, anew=True))
        write.create_indexes(DOC, requests)
        self.graph._store.commit(write)

    @property
    def reader(self) -> TableReader:
        return self.graph._store.reader(self.graph.snapshot(), DOC)


def _table(docs: Sequence[Doc]) -> pa.Table:
    slugs, titles, vectors = zip(*docs, strict=True)
    return pa.table(
        [
            pa.array(slugs),
            pa.array(slugs),
            pa.array(titles, pa.utf8()),
            pa.array(vectors, pa.list_(pa.float32(), 2)),
        ],
        names=["id", "slug", "title", "emb"],
    )


def _docs(folder: Path) -> Docs:
    return Docs(og.init(folder / "g", SCHEMA, fold=False))


@pytest.fixture
def docs(tmp_path: Path) -> Iterator[Docs]:
    made = _docs(tmp_path)
    made.upsert(WORKED)
    yield made
    made.graph.close()


# The worked examples


def test_words_of_one_stem_match(docs: Docs) -> None:
    assert _matching(docs.reader, "graphs") == ["a", "b"]


def test_a_query_without_terms_matches_nothing(docs: Docs) -> None:
    assert _matching(docs.reader, "the, and — of") == []
    assert _matching(docs.reader, "the", TextMode.FUZZY) == []
    assert bm25(docs.reader, "title", "")[0].to_pylist() == []


@pytest.mark.parametrize("query", ['"deep learning"', '"the"', '""', '"', "deep OR -cooking"])
def test_an_index_changes_no_answer_to_a_search_with_signs(docs: Docs, query: str) -> None:
    expected = _matching(docs.reader, query)
    docs.index()
    assert _matching(docs.reader, query) == expected


def test_a_search_of_more_words_than_the_index_on_disk_takes_finds_the_same(docs: Docs) -> None:
    docs.index()
    query = " ".join(["graphs", *(f"w{n}" for n in range(1000))])
    assert _matching(docs.reader, query) == ["a", "b"]


def test_fuzzy_finds_a_word_that_is_misspelt(docs: Docs) -> None:
    assert _matching(docs.reader, "lerning", TextMode.FUZZY) == ["b", "d"]
    assert _matching(docs.reader, "lerning") == []
    assert _matching(docs.reader, "grahp", TextMode.FUZZY, edits_max=1) == []
    assert _matching(docs.reader, "grahp", TextMode.FUZZY, edits_max=2) == ["a", "b"]


def test_fuzzy_wants_a_number_of_edits_from_zero_on(docs: Docs) -> None:
    with pytest.raises(BadRequest, match="-1 edits"):
        _matching(docs.reader, "x", TextMode.FUZZY, edits_max=-1)


def test_the_shorter_text_scores_higher(docs: Docs) -> None:
    ids, scores = bm25(docs.reader, "title", "learning")
    assert ids.to_pylist() == ["b", "d"]  # two terms each, "and" being none: a tie, so by id
    assert scores[0] == scores[1] > 0
    docs.upsert([("b", "Graphs and machine learning", None)])
    assert bm25(docs.reader, "title", "learning")[0].to_pylist() == ["d", "b"]


def test_neighbours_come_nearest_first_after_the_filter(docs: Docs) -> None:
    ids, distances = nearest(docs.reader, "emb", [1, 0], k=2, among=pa.array(["a", "c", "d"]))
    assert ids.to_pylist() == ["a", "c"]
    assert distances.tolist() == pytest.approx([0, math.sqrt(2)])


def test_a_query_vector_of_another_dimension_is_refused(docs: Docs) -> None:
    with pytest.raises(BadRequest, match="3 components, emb has 2"):
        nearest(docs.reader, "emb", [1, 0, 0], k=1)


def test_scores_are_those_of_lance(docs: Docs) -> None:
    docs.index()
    wanted = {"query": "graphs and learning learning", "columns": ["title"]}
    theirs = docs.reader.rows(["id", "_score"], full_text_query=wanted)
    by_id = dict(zip(theirs["id"].to_pylist(), theirs["_score"].to_pylist(), strict=True))
    ids, scores = bm25(docs.reader, "title", "graphs and learning learning")
    assert dict(zip(ids.to_pylist(), scores, strict=True)) == pytest.approx(by_id, rel=1e-5)


# Any history of writes, with indexes built at any moment

_WORDS = ["graph", "graphs", "Gräph", "learn", "learning", "deep", "and", "sea", "see", "x1"]
_TITLES = st.none() | st.lists(st.sampled_from(_WORDS), max_size=6).map(" ".join)
_NUMBERS = st.sampled_from([-1.0, 0.0, 0.1, 0.5, 1.0, 3e5])
_VECTORS = st.none() | st.lists(_NUMBERS, min_size=2, max_size=2)
_SLUGS = st.sampled_from([f"{letter}{n}" for letter in "aÄz" for n in range(6)])
_BATCHES = st.lists(
    st.tuples(_SLUGS, _TITLES, _VECTORS), min_size=1, max_size=8, unique_by=lambda doc: doc[0]
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), _BATCHES),
        st.tuples(st.just("delete"), _SLUGS),
        st.tuples(st.just("index"), st.none()),
    ),
    min_size=1,
    max_size=5,
)
_MARKS = ['"', "(", ")", "-", "+", "~", "*", "^2", "title:", "OR", "'", "\\", "{", "\x00", "\n"]
_QUERIES = st.one_of(
    st.lists(st.sampled_from([*_WORDS, *_MARKS, "grapf", "lern", "the"]), max_size=4).map(" ".join),
    st.lists(st.sampled_from(_WORDS), max_size=3).map(lambda words: f'"{" ".join(words)}"'),
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=_STEPS,
    query=_QUERIES,
    vector=st.lists(_NUMBERS, min_size=2, max_size=2),
    among=st.none() | st.lists(_SLUGS, unique=True),
    k=st.none() | st.integers(0, 6),
    kept=st.booleans(),
)
def test_search_agrees_with_its_definition(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, object]],
    query: str,
    vector: list[float],
    among: list[str] | None,
    k: int | None,
    kept: bool,
) -> None:
    docs = _docs(tmp_path_factory.mktemp("search"))
    cache = Cache(1 << 20 if kept else 0)
    for step, value in steps:
        docs.index() if step == "index" else getattr(docs, step)(value)
        # What one version left in the cache is what the next is made of.
        _assert_all(docs, cache, query, vector, among, k)
    for _ in range(COSTS.inverted_build_uses if kept else 0):  # on disk first, then in memory
        _assert_all(docs, cache, query, vector, among, k)
    docs.graph.close()


def _assert_all(
    docs: Docs,
    cache: Cache,
    query: str,
    vector: list[float],
    among: list[str] | None,
    k: int | None,
) -> None:
    reference = _Reference(docs.rows, among)
    allowed = None if among is None else pa.array(among, pa.utf8())
    reader = docs.reader
    ids = Ids(reader.rows(["id"])["id"].combine_chunks())
    numbers = None if allowed is None else ids.locate(allowed)
    some = None if numbers is None else numbers[numbers >= 0]
    by_id = {"among": allowed, "cache": cache}
    by_number = {"among": some, "numbering": ids, "cache": cache}

    for mode, edits in _MODES:
        expected = reference.matching(query, edits or 0)
        asked = (reader, "title", query)
        found = matching_ids(*asked, mode=mode, edits_max=edits, **by_id)
        assert found.to_pylist() == expected
        at = matching_numbers(*asked, mode=mode, edits_max=edits, **by_number)
        assert sorted(_named(ids, at), key=str.encode) == expected
    scores = reference.scores(query)[:k]
    _assert_ranking(*bm25(reader, "title", query, k=k, **by_id), scores)
    at, numbered = bm25_numbers(reader, "title", query, k=k, **by_number)
    _assert_ranking(_named(ids, at), numbered, scores)
    distances = reference.distances(vector)[:k]
    _assert_ranking(*nearest(reader, "emb", vector, k=k, **by_id), distances)
    at, numbered = nearest_numbers(reader, "emb", vector, k=k, **by_number)
    _assert_ranking(_named(ids, at), numbered, distances)


_MODES = [(TextMode.ANY_TOKEN, None), *((TextMode.FUZZY, edits) for edits in (0, 1, 2))]


def _named(ids: Ids, at: np.ndarray) -> list[str]:
    named: list[str] = ids.strings.take(pa.array(at)).to_pylist()
    return named


def test_a_version_is_made_of_the_one_before(docs: Docs, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(1 << 20)
    before = search.text(docs.reader, "title", cache=cache)
    built = []
    monkeypatch.setattr(search.bm25_index, "analyse", lambda texts: built.append(len(texts)))
    docs.index()
    assert search.text(docs.reader, "title", cache=cache) is before
    assert built == []
    monkeypatch.undo()
    monkeypatch.setattr(
        search.bm25_index, "analyse", lambda texts: built.append(len(texts)) or analyse(texts)
    )
    docs.upsert([("a", "Databases", None)])
    assert _matching(docs.reader, "databases") == ["a"]
    built.clear()
    assert bm25(docs.reader, "title", "graph", cache=cache)[0].to_pylist() == ["b"]
    assert built == [1]


def test_a_column_too_large_to_keep_is_searched_in_pieces(
    docs: Docs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "vector_scan_bytes_max", 0)
    for indexed in (False, True):
        if indexed:
            docs.index()
            docs.upsert([("e", None, [0.9, 0]), ("f", None, [5, 5])])
        for among in (None, ["b", "c", "d", "f"]):
            allowed = None if among is None else pa.array(among)
            ids, distances = nearest(docs.reader, "emb", [1, 0], k=3, among=allowed)
            expected = _Reference(docs.rows, among).distances([1, 0])[:3]
            _assert_ranking(ids, distances, expected)


_WIDE = st.floats(-(2.0**100), 2.0**100, width=32)
_FAR_AWAY = st.integers(0, 60).map(lambda n: 1000 + n / 64)  # squares that agree in most digits


@settings(deadline=None)
@given(
    components=st.one_of(
        st.lists(st.lists(_WIDE, min_size=3, max_size=3), min_size=1, max_size=30),
        st.lists(st.lists(_FAR_AWAY, min_size=3, max_size=3), min_size=8, max_size=30),
    ),
    k=st.integers(1, 5),
)
def test_no_neighbour_is_lost_to_rounding(components: list[list[float]], k: int) -> None:
    ids = pa.array([f"{n:02}" for n in range(len(components))])
    column = pa.chunked_array([pa.array(components, pa.list_(pa.float32(), 3))])
    held = search.vectors.build(ids, column)
    query = np.array(components[0], dtype=np.float32)
    for metric in Metric:
        found, away = held.nearest(query, k, None, metric)
        every, exact = held.nearest(query, None, None, metric)  # without the pass in 32 bits
        assert found.tolist() == every[:k].tolist()
        assert away.tolist() == exact[:k].tolist()
    apart = np.array(components, dtype=np.float32) - query.astype(np.float64)
    exact = np.sqrt(np.einsum("ij,ij->i", apart, apart))
    order = np.argsort(exact, kind="stable")[:k]
    found, away = held.nearest(query, k, None)
    assert found.tolist() == order.tolist()
    assert away.tolist() == exact[order].tolist()


def _matching(
    reader: TableReader,
    query: str,
    mode: TextMode = TextMode.ANY_TOKEN,
    edits_max: int | None = None,
) -> list[str]:
    found: list[str] = matching_ids(
        reader, "title", query, mode=mode, edits_max=edits_max
    ).to_pylist()
    return found


def _assert_ranking(
    ids: pa.Array | list[str], numbers: Sequence[float], expected: list[tuple[str, float]]
) -> None:
    assert list(map(str, ids)) == [slug for slug, _ in expected]
    assert list(numbers) == pytest.approx([number for _, number in expected], rel=1e-12, abs=1e-12)


class _Reference:
    """Search as it is defined, one document at a time."""

    def __init__(self, rows: dict[str, Doc], among: list[str] | None) -> None:
        self._terms = {slug: terms(title or "") for slug, title, _ in rows.values()}
        self._texts = {slug: found for slug, found in self._terms.items() if found}
        self._vectors = {slug: v for slug, _, v in rows.values() if v is not None}
        self._allowed = set(rows) if among is None else set(among)

    def matching(self, query: str, edits: int) -> list[str]:
        wanted = terms(query)
        found = [
            slug
            for slug, held in self._texts.items()
            if any(_edits(w, h) <= edits for w in wanted for h in held)
        ]
        return sorted((set(found) & self._allowed), key=str.encode)

    def scores(self, query: str) -> list[tuple[str, float]]:
        scored = [(slug, self._score(slug, query)) for slug in self.matching(query, 0)]
        # Sums in another order differ in their last bits, so ties are found with some slack.
        return sorted(scored, key=lambda pair: -round(pair[1], 9))

    def _score(self, slug: str, query: str) -> float:
        total = len(self._texts)
        average = sum(map(len, self._texts.values())) / total
        frequencies, length = Counter(self._texts[slug]), len(self._texts[slug])
        score = 0.0
        for term in sorted(terms(query)):
            f = frequencies[term]
            n = sum(term in held for held in self._texts.values())
            idf = math.log(1 + (total - n + 0.5) / (n + 0.5))
            score += idf * f * 2.2 / (f + 1.2 * (0.25 + 0.75 * length / average))
        return score

    def distances(self, vector: list[float]) -> list[tuple[str, float]]:
        query = np.array(vector, dtype=np.float32).tolist()
        measured = [
            (slug, math.dist(np.array(v, dtype=np.float32).tolist(), query))
            for slug, v in self._vectors.items()
            if slug in self._allowed
        ]
        return sorted(measured, key=lambda pair: (pair[1], pair[0].encode()))


def _edits(left: str, right: str) -> int:
    above = list(range(len(right) + 1))
    for i, letter in enumerate(left, start=1):
        row = [i]
        for j, other in enumerate(right, start=1):
            row.append(min(row[-1] + 1, above[j] + 1, above[j - 1] + (letter != other)))
        above = row
    return above[-1]
