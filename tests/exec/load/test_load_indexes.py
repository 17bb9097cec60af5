"""Indexes of a load: built after its commit, extended by the next, and missing without harm."""

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.exec.load.request import LoadIndexes
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from omnigraph.types import TableKey
from tests.forked import KILLED, context, run

SCHEMA = """
node Person { name: String @key  bio: String? @index  age: I32? @index  face: Vector(2)? @index }
edge Knows: Person -> Person { since: I32? @index }
"""
PERSON, KNOWS = TableKey("node:Person"), TableKey("edge:Knows")
DECLARED = {"name:full-text", "name:ordered", "bio:full-text", "bio:ordered", "age:ordered"}
COUNT = 40


FEW = {"OMNIGRAPH_INDEX_ROWS_MIN": "20", "OMNIGRAPH_TOPOLOGY_ROWS_MIN": "20"}


@pytest.fixture(autouse=True)
def _few_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FEW.items():
        monkeypatch.setenv(name, value)


def people(first: int = 0, count: int = COUNT, word: str = "graphs") -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "name": [f"p{n:03d}" for n in numbers],
            "bio": [f"likes {word}" for _ in numbers],
            "age": pa.array([n % 90 for n in numbers], pa.int32()),
            "face": pa.array([[n, n] for n in numbers], pa.list_(pa.float32(), 2)),
        }
    )


def indexes(graph: Graph, table: TableKey = PERSON) -> dict[str, int]:
    """The rows that each index does not cover."""
    known = graph._store.reader(graph.snapshot(), table).indexes()
    return {f"{each.column}:{each.name.partition(':')[2]}": each.behind for each in known}


def load(graph: Graph, rows: pa.Table, mode: str = "append", **options: Any) -> og.LoadResult:
    return graph.load(rows, mode, type="Person", engine="local", **options)


def matching(graph: Graph, word: str) -> int:
    text = f'query q() {{ match {{ $p: Person search($p.bio, "{word}") }} return {{ $p.name }} }}'
    return len(graph.query(text))


def test_a_load_builds_the_indexes_of_the_schema_as_a_commit_of_the_index_writer(
    tmp_path: Path,
) -> None:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        done = load(graph, people(), actor="act-me", message="people")
        newest, loaded, _ = graph.commits.list()
        assert (loaded.id, loaded.message) == (done.commit.id, "people")
        assert (newest.id, newest.actor) == (done.indexes.commit_id, "act-me")
        assert newest.message is None
        assert done.indexes.missing is None
        assert indexes(graph) == dict.fromkeys(DECLARED, 0), (
            "topology has the ids, memory the faces"
        )
        edges = pa.table({"src": ["p001"] * 30, "dst": ["p002"] * 30})
        graph.load(edges, "append", edge="Knows", engine="local")
        assert indexes(graph, KNOWS) == {"since:ordered": 0}
        assert {each.table for each in done.indexes.built} == {PERSON}
        states = {(each.table, each.column): each for each in graph.indexes()}
        assert states[PERSON, "age"].state == "current"
        assert states[KNOWS, "src"].reason == "topology files answer lookups by it"


def test_rows_of_later_loads_extend_them_once_they_are_many(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        load(graph, people())
        done = load(graph, people(COUNT, 15))
        assert done.indexes == LoadIndexes()
        assert graph.commits.list()[0].id == done.commit.id
        assert indexes(graph) == dict.fromkeys(DECLARED, 15)
        assert load(graph, people(COUNT + 15, 5)).indexes.commit_id is not None
        assert indexes(graph) == dict.fromkeys(DECLARED, 0)
        assert matching(graph, "graphs") == COUNT + 20


def test_small_tables_and_indexes_later_get_none(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        load(graph, people(0, 10))
        later = load(graph, people(10), indexes="later")
        assert (later.indexes, indexes(graph)) == (LoadIndexes(), {})
        assert len(graph.commits.list()) == 3
        with graph.transaction() as block:
            block.load(people(100), "append", type="Person", engine="local")
        assert indexes(graph) == {}
        with pytest.raises(og.BadRequest, match="use now or later"):
            load(graph, people(200), indexes="soon")
        graph.optimize()
        assert indexes(graph).keys() >= DECLARED


def test_vectors_get_an_index_where_exact_search_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "vector_scan_bytes_max", 1024)
    monkeypatch.setenv("OMNIGRAPH_CACHE_BYTES_MAX", "1024")
    with og.init(tmp_path / "g", SCHEMA) as graph:
        load(graph, people(0, 300))
        assert indexes(graph)["face:vector"] == 0


def test_a_branch_extends_what_it_inherited_and_merges(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        load(graph, people())
        side = load(graph, people(100, 45), branch="side", from_branch="main")
        assert side.indexes.commit_id == graph.commits.list("side")[0].id
        known = graph._store.reader(graph.snapshot("side"), PERSON).indexes()
        assert {each.behind for each in known} == {0}
        assert indexes(graph) == dict.fromkeys(DECLARED, 0)
        text = 'query q() { match { $p: Person search($p.bio, "graphs") } return { $p.name } }'
        with og.open(graph.uri) as again:
            assert len(again.query(text, branch="side")) == COUNT + 45
            assert again.branches.merge("side").kind == "fast_forward"
            assert matching(again, "graphs") == COUNT + 45
            again.optimize()
            assert again.check().ok


# ---- what stops it


@pytest.mark.parametrize("place", ["upkeep.task", "commit.sidecar_written", "publish.after"])
def test_a_failure_of_the_indexes_is_told_and_the_load_stands(tmp_path: Path, place: str) -> None:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        nth = 1 if place == "upkeep.task" else 2
        with failpoints.armed(place, nth=nth):
            done = load(graph, people())
        assert done.indexes.missing is not None
        assert "optimize" in done.indexes.missing
        assert done.total_entities == COUNT
        assert matching(graph, "graphs") == COUNT
        load(graph, people(COUNT, 30))  # the next load makes up for it
        assert indexes(graph) == dict.fromkeys(DECLARED, 0)
        assert not graph._store.sidecars.pending()


def load_and_die(uri: str, place: str, nth: int) -> None:
    os.environ.update(FEW)  # the server of children has those of the tests before
    failpoints.arm(place, "kill", nth)
    load(og.open(uri), people(), once="people")


@pytest.mark.parametrize(
    ("place", "nth"), [("upkeep.task", 1), ("commit.tables_done", 2), ("derived.written", 1)]
)
def test_the_load_once_again_builds_what_a_kill_left_out(
    tmp_path: Path, place: str, nth: int
) -> None:
    og.init(tmp_path / "g", SCHEMA).close()
    assert run(load_and_die, str(tmp_path / "g"), place, nth) == KILLED
    with og.open(tmp_path / "g") as graph:
        assert matching(graph, "graphs") == COUNT
        again = load(graph, people(), once="people")
        assert again.repeated
        assert indexes(graph) == dict.fromkeys(DECLARED, 0)
        assert graph.snapshot().topology.keys() == {PERSON}


def load_many(uri: str, first: int) -> None:
    os.environ.update(FEW)
    load(og.open(uri), people(first), once=f"from {first}")


@pytest.mark.slow
def test_loads_killed_at_random_moments_leave_rows_whole_and_are_made_up_for(
    tmp_path: Path,
) -> None:
    og.init(tmp_path / "g", SCHEMA).close()
    chance = random.Random(3)
    for number in range(12):
        first = number * COUNT
        child = context().Process(target=load_many, args=(str(tmp_path / "g"), first))
        child.start()
        child.join(chance.uniform(0.05, 0.8))
        child.kill()
        child.join()
        with og.open(tmp_path / "g") as graph:
            assert matching(graph, "graphs") in (first, first + COUNT)
            load(graph, people(first), once=f"from {first}")
            assert matching(graph, "graphs") == first + COUNT
            assert max(indexes(graph).values()) < 20
            assert graph.check().ok


def test_rows_that_others_write_meanwhile_cost_no_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with og.init(tmp_path / "g", SCHEMA) as graph, og.open(tmp_path / "g") as other:
        plan = graph._store.compactor.gather
        calls = []

        def gathered(*given: Any) -> Any:
            calls.append(given)
            other.mutate('query q() { insert Person { name: "new", bio: "likes graphs" } }')
            return plan(*given)

        monkeypatch.setattr(graph._store.compactor, "gather", gathered)
        done = load(graph, people())
        assert (done.indexes.missing, len(calls)) == (None, 1)
        assert indexes(graph) == dict.fromkeys(DECLARED, 1)
        assert matching(graph, "graphs") == COUNT + 1


# ---- answers


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["append", "merge", "optimize", "delete"]),
            st.sampled_from([0, 10, 30]),
            st.sampled_from([5, 25, 40]),
            st.sampled_from(["graphs", "tea", "rivers"]),
        ),
        min_size=2,
        max_size=5,
    )
)
def test_no_answer_depends_on_when_indexes_are_built(
    steps: list[tuple[str, int, int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("both")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(COSTS, "upsert_rows_max", 0)  # merged rows keep their row ids
        with og.init(folder / "now", SCHEMA) as now, og.init(folder / "later", SCHEMA) as later:
            for number, (step, first, count, word) in enumerate([("merge", 0, 40, "tea"), *steps]):
                for graph, timing in ((now, "now"), (later, "later")):
                    match step:
                        case "optimize":
                            now.optimize()
                        case "delete":
                            graph.mutate(f"query q() {{ delete Person where age < {count // 4} }}")
                        case _:
                            start = first if step == "merge" else 100 * (number + 1)
                            load(graph, people(start, count, word), "merge", indexes=timing)
                for asked in ("graphs", "tea", "rivers", "likes"):
                    with og.open(now.uri) as reader:
                        assert matching(reader, asked) == matching(later, asked)
