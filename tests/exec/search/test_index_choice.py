"""The indexes a schema asks for, and that nothing depends on them."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.catalog.accept import accept
from omnigraph.catalog.indexes import IndexKind
from omnigraph.errors import BadRequest
from omnigraph.exec.search.schema_indexes import schema_indexes
from omnigraph.exec.upkeep import build_indexes
from omnigraph.exec.upkeep.build_indexes import IndexNote
from omnigraph.storage import failpoints
from omnigraph.storage.lance.id_index import IdIndex
from omnigraph.storage.protocol.intent import WriterKind
from omnigraph.types import TableKey
from tests.storage.world import remove

SCHEMA = """
node Person { name: String @key  bio: String? @index  age: I32? @index
              team: enum(red, blue)? @index  face: Vector(4)? @index  note: String? }
edge Knows: Person -> Person { since: Date? @index }
"""
PERSON, KNOWS = TableKey("node:Person"), TableKey("edge:Knows")
ORDERED, TEXT, VECTOR = IndexKind.ORDERED, IndexKind.FULL_TEXT, IndexKind.VECTOR

SCALAR_INDEXES = {
    (PERSON, "id", ORDERED),
    (PERSON, "name", TEXT),
    (PERSON, "name", ORDERED),
    (PERSON, "bio", TEXT),
    (PERSON, "bio", ORDERED),
    (PERSON, "age", ORDERED),
    (PERSON, "team", ORDERED),
    (KNOWS, "id", ORDERED),
    (KNOWS, "src", ORDERED),
    (KNOWS, "dst", ORDERED),
    (KNOWS, "since", ORDERED),
}
ALL_INDEXES = SCALAR_INDEXES | {(PERSON, "face", VECTOR)}


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g", SCHEMA, fold=False) as made:
        yield made


def _add(graph: og.Graph, first: int, last: int, *, faces: bool = True) -> None:
    names = [f"p{n:04}" for n in range(first, last)]
    chance = np.random.default_rng(first)
    vectors = chance.normal(size=(len(names), 4)).astype(np.float32).tolist()
    people = pa.table(
        {
            "id": names,
            "name": names,
            "bio": [f"likes graphs and number{n % 7}" for n in range(first, last)],
            "age": pa.array([n % 90 for n in range(first, last)], pa.int32()),
            "team": ["red" if n % 2 else "blue" for n in range(first, last)],
            "face": pa.array(vectors if faces else [None] * len(names), pa.list_(pa.float32(), 4)),
            "note": names,
        }
    )
    edges = pa.table(
        {
            "id": [f"e{name}" for name in names],
            "src": names,
            "dst": names[1:] + names[:1],
            "since": pa.array(range(len(names)), pa.date32()),
        }
    )
    write = graph._store.begin(kind=WriterKind.MUTATION)
    write.append(PERSON, people)
    write.append(KNOWS, edges)
    graph._store.commit(write)


def _facts(notes: tuple[IndexNote, ...]) -> set[tuple[TableKey, str, IndexKind]]:
    return {(note.table, note.column, note.kind) for note in notes}


def _commits(graph: og.Graph) -> int:
    return len(graph.commits.list())


def test_the_schema_says_which_indexes_there_are() -> None:
    wanted = schema_indexes(accept(SCHEMA))
    assert {(each.table, each.column, each.kind) for each in wanted} == ALL_INDEXES
    assert len({(each.table, each.name) for each in wanted}) == len(wanted)


def test_an_empty_graph_has_nothing_to_index(graph: og.Graph) -> None:
    report = graph.ensure_indices()
    assert (report.built, report.kept, report.commit_id) == ((), (), None)
    assert _facts(report.pending) == ALL_INDEXES
    assert _commits(graph) == 1


def test_everything_declared_is_built_in_one_commit(graph: og.Graph) -> None:
    _add(graph, 0, 300)
    before = _commits(graph)
    report = graph.ensure_indices()
    assert _facts(report.built) == ALL_INDEXES
    assert (report.kept, report.pending) == ((), ())
    assert _commits(graph) == before + 1
    assert graph.commits.list()[0].id == report.commit_id
    for table in (PERSON, KNOWS):
        found = graph._store.reader(graph.snapshot(), table).indexes()
        assert all(index.is_whole and index.rows == 300 for index in found)


def test_a_second_run_keeps_what_is_there(graph: og.Graph) -> None:
    _add(graph, 0, 300)
    graph.ensure_indices()
    commits = _commits(graph)
    report = graph.ensure_indices()
    assert (report.built, report.pending, report.commit_id) == ((), (), None)
    assert _facts(report.kept) == ALL_INDEXES
    assert _commits(graph) == commits


def test_a_vector_column_with_too_few_vectors_waits(graph: og.Graph) -> None:
    _add(graph, 0, 100)
    _add(graph, 100, 400, faces=False)
    report = graph.ensure_indices()
    assert _facts(report.built) == SCALAR_INDEXES
    [waiting] = report.pending
    assert (waiting.column, waiting.kind) == ("face", VECTOR)
    assert waiting.reason.startswith("100 of the 256 vectors")
    _add(graph, 400, 600)
    assert (PERSON, "face", VECTOR) in _facts(graph.ensure_indices().built)


def test_rows_written_since_get_a_segment_of_their_own(graph: og.Graph) -> None:
    _add(graph, 0, 300)
    graph.ensure_indices()
    _add(graph, 300, 310)
    report = graph.ensure_indices()
    assert _facts(report.built) == SCALAR_INDEXES
    assert _facts(report.kept) == {(PERSON, "face", VECTOR)}  # few rows behind: compared one by one
    _add(graph, 310, 400)
    assert _facts(graph.ensure_indices().built) == ALL_INDEXES


def test_an_index_of_many_segments_becomes_one(graph: og.Graph) -> None:
    for first in range(0, 30, 10):
        _add(graph, first, first + 10, faces=False)
        graph.ensure_indices()
    assert _segments(graph, "id:ordered") == [30]


def _segments(graph: og.Graph, name: str) -> list[int]:
    """The rows of an index's segments."""
    handle = graph._store.datasets.handle(graph.snapshot().tables[PERSON])
    [index] = [each for each in handle.describe_indices() if each.name == name]
    rows = {each.fragment_id: each.count_rows() for each in handle.get_fragments()}
    assert index.num_rows_indexed == sum(rows.values())
    return sorted(sum(rows[n] for n in segment.fragment_ids) for segment in index.segments)


def test_a_large_segment_stays_and_small_ones_are_joined(graph: og.Graph) -> None:
    _add(graph, 0, 300)
    graph.ensure_indices()
    text = next(i.name for i in schema_indexes(accept(SCHEMA)) if i.kind is TEXT)
    for first in range(300, 305):
        _add(graph, first, first + 1)
        graph.ensure_indices()
    assert _segments(graph, "id:ordered") == [5, 300]
    assert _segments(graph, text) == [5, 300]


def test_a_changed_text_waits_and_is_indexed_anew_past_a_tenth(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    _add(graph, 0, 300)
    graph.ensure_indices()
    monkeypatch.setattr(IdIndex, "find", lambda *given: None)  # rows keep their row ids
    _step(graph, "change", 4)  # the four people of age 7
    _add(graph, 300, 305)
    assert (PERSON, "bio", TEXT) in _facts(graph.ensure_indices().built), "the new rows"
    known = graph._store.reader(graph.snapshot(), PERSON).indexes()
    assert {i.behind for i in known if i.column == "bio"} == {0, 4}, "the changed are compared"
    assert _likers(graph) == 301
    assert graph.ensure_indices().commit_id is None, "few changed rows wait"
    for number in range(10):
        _step(graph, "change", number)
    assert (PERSON, "bio", TEXT) in _facts(graph.ensure_indices().built)
    known = graph._store.reader(graph.snapshot(), PERSON).indexes()
    assert all(i.is_whole for i in known if i.column == "bio")
    with og.open(graph.uri) as again:
        assert _likers(again) == 305 - 40


def _likers(graph: og.Graph) -> int:
    text = 'query q() { match { $p: Person search($p.bio, "likes") } return { count($p) as n } }'
    return int(graph.query(text).rows[0]["n"])


def test_indexes_belong_to_their_branch(graph: og.Graph) -> None:
    _add(graph, 0, 300)
    graph.branches.create("side")
    graph.ensure_indices("side")
    assert graph._store.reader(graph.snapshot("side"), PERSON).indexes()
    assert graph._store.reader(graph.snapshot(), PERSON).indexes() == ()


def test_a_read_only_graph_builds_none(graph: og.Graph) -> None:
    with og.open(graph.uri, read_only=True) as view, pytest.raises(BadRequest, match="read-only"):
        view.ensure_indices()


def test_another_writer_in_between_is_no_failure(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    _add(graph, 0, 300)
    attempts = []
    attempt = build_indexes._attempt

    def disturbed(*given: object) -> object:
        attempts.append(given)
        if len(attempts) == 1:
            with monkeypatch.context() as patch:
                begin = graph._store.begin

                def begin_then_write(*args: object, **kwargs: object) -> object:
                    write = begin(*args, **kwargs)  # type: ignore[arg-type]
                    patch.undo()
                    _add(graph, 300, 310)
                    return write

                patch.setattr(graph._store, "begin", begin_then_write)
                return attempt(*given)  # type: ignore[arg-type]
        return attempt(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(build_indexes, "_attempt", disturbed)
    report = graph.ensure_indices()
    assert len(attempts) == 2
    assert _facts(report.built) == ALL_INDEXES
    assert graph._store.reader(graph.snapshot(), PERSON).count() == 310


QUERIES = [
    'query q() { match { $p: Person { name: "p0007" } } return { $p.age as x } }',
    'query q() { match { $p: Person $p.bio = "number3 graph" } return { $p.name as x } }',
    'query q() { match { $p: Person $p.bio starts_with "likes" } return { count($p) as x } }',
    'query q() { match { $p: Person search($p.bio, "likes") } return { count($p) as x } }',
    'query q() { match { $p: Person $p.age > 80 $p.team = "red" } return { $p.name as x } }',
    'query q() { match { $p: Person { name: "p0007" } $p knows $f } return { $f.name as x } }',
    'query q() { match { $p: Person search($p.bio, "number3 number5") } return { $p.name as x } }',
    'query q() { match { $p: Person fuzzy($p.bio, "nmber3", 1) } return { $p.name as x } }',
    "query q() { match { $p: Person } return { $p.name as x } "
    'order { bm25($p.bio, "number3 graph") } limit 5 }',
    "query q() { match { $p: Person $p.age < 50 } return { $p.name as x } "
    "order { nearest($p.face, [0.1, 0.2, 0.3, 0.4]) } limit 5 }",
]

# Lance answers these from an index where there is one.
FILTERS = [
    "bio = 'likes graphs and number5'",
    "bio = 'number3 graph'",
    "bio < 'm'",
    "age > 60",
    "team = 'red'",
    "id in ('p0007', 'p0300', 'p0911')",
]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(
        st.sampled_from(["add", "index", "delete", "change", "optimize"]), min_size=2, max_size=7
    )
)
def test_no_answer_depends_on_an_index(
    steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("both")
    with (
        og.init(folder / "plain", SCHEMA) as plain,
        og.init(folder / "indexed", SCHEMA) as indexed,
    ):
        for n, step in enumerate(["add", *steps]):
            for graph in (plain, indexed):
                _step(graph, step, n)
            if step == "index":
                indexed.ensure_indices()
            if step == "optimize":
                indexed.optimize()
            for query in QUERIES:
                assert plain.query(query).rows == indexed.query(query).rows, query
            for filter in FILTERS:
                assert _found(plain, filter) == _found(indexed, filter), filter


def _found(graph: og.Graph, filter: str) -> list[str]:
    reader = graph._store.reader(graph.snapshot(), PERSON)
    found: list[str] = sorted(reader.rows(["id"], filter=filter)["id"].to_pylist())
    return found


def _step(graph: og.Graph, step: str, n: int) -> None:
    write = graph._store.begin(kind=WriterKind.MUTATION)
    match step:
        case "add":
            _add(graph, n * 300, n * 300 + 290)
        case "delete":
            remove(graph._store, write, PERSON, f"age = {n}")
            graph._store.commit(write)
        case "change":
            rows = graph._store.reader(graph.snapshot(), PERSON).rows(filter=f"age = {n + 3}")
            texts = pa.array(["number3 graph"] * rows.num_rows, pa.utf8())
            place = rows.schema.get_field_index("bio")
            write.upsert(PERSON, rows.set_column(place, rows.schema.field("bio"), texts))
            graph._store.commit(write)


@pytest.mark.parametrize("place", failpoints.COMMIT)
def test_a_failure_while_indexing_leaves_the_graph_as_it_was_or_indexed(
    graph: og.Graph, place: str
) -> None:
    _add(graph, 0, 300)
    expected = [graph.query(query).rows for query in QUERIES]
    with suppress(og.OmnigraphError, failpoints.Injected), failpoints.armed(place):
        graph.ensure_indices()
    with og.open(graph.uri) as again:
        assert [again.query(query).rows for query in QUERIES] == expected
        report = again.ensure_indices()
        assert _facts(report.built + report.kept) == ALL_INDEXES
        assert [again.query(query).rows for query in QUERIES] == expected
