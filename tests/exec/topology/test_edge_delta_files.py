"""Delta files of edge tables: what writes them, what reads them, and what must not use them."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph.costs import COSTS
from omnigraph.exec.memory.filed_tables import FiledEdges
from omnigraph.graph import Graph
from omnigraph.storage.derived.edge_delta_file import EDGE_DELTAS, EdgeDeltaFile
from omnigraph.storage.derived.mapped_file import MappedFile
from tests.exec.memory.test_resident import SCHEMA as MODEL_SCHEMA
from tests.exec.memory.test_resident import STEPS, E, Model, P
from tests.exec.topology.test_topology_builders import (
    KNOWS,
    PERSON,
    answers,
    expected,
    filed,
    files_of,
    forget,
    name,
)
from tests.exec.topology.test_topology_files import check
from tests.exec.world import graph_of

ARRAYS = ("removed", "removed_source", "removed_target", "row_ids", "source", "target")


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(COSTS, "commit_file_rows_max", 5)


def kinds(path: Path) -> list[str]:
    return [file.name.partition("-")[0] for file in files_of(path)]


def more(count: int, seed: int) -> pa.Table:
    rng = random.Random(seed)
    ends = [[name(rng.randrange(60)) for _ in range(count)] for _ in range(2)]
    since = pa.array([seed] * count, pa.int32())
    return pa.table({"src": ends[0], "dst": ends[1], "since": since})


def befriend(graph: Graph, count: int, seed: int, branch: str = "main") -> None:
    graph.load(more(count, seed), "append", edge="Knows", engine="local", branch=branch)


def test_TP1_edges_since_a_file_get_a_file_of_their_own_until_they_are_a_tenth(
    tmp_path: Path,
) -> None:
    path = tmp_path / "g"
    with filed(path) as graph:
        base = next(file for file in files_of(path) if file.name.startswith("edges-"))
        for number in (1, 2):
            befriend(graph, 10, number)
            assert kinds(path) == [*[EDGE_DELTAS] * number, "edges", "nodes"]
            state = graph.snapshot().topology[KNOWS]
            assert state.rows_behind == 0
            assert state.bytes > base.stat().st_size
            assert answers(graph) == expected(path)
        graph.mutate('query q() { delete Knows where from = "p007" }')
        befriend(graph, 2, 3)
        with omnigraph.open(path) as other:
            before = other.stats()
            assert answers(other) == expected(path)
            assert "derived.rejected" not in other.stats().since(before).events
            assert other.check().ok
        assert base.exists()
        assert kinds(path).count("edges") == 1
        befriend(graph, 40, 4)
        assert kinds(path).count("edges") == 2, "past a tenth the delta is folded"
        assert answers(graph) == expected(path)
        assert graph.check().ok


def test_TP1_what_a_delta_has_is_not_read_from_the_table(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with filed(path) as graph:
        befriend(graph, 20, 1)
    with omnigraph.open(path) as graph:
        before = graph.stats()
        text = "query q($n: String) { match { $p: Person { name: $n }  $p knows $f } "
        graph.query(text + "return { $f.name as n } }", {"n": name(3)})
        assert {"lance.scan", "lance.rows_by_id", "lance.delta"}.isdisjoint(
            graph.stats().since(before).calls
        )


def test_TP5_a_fork_names_the_file_of_its_base_and_adds_its_delta(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with filed(path) as graph:
        graph.branches.create("side")
        befriend(graph, 15, 1, branch="side")
        befriend(graph, 12, 2)
        assert sorted(kinds(path)) == [EDGE_DELTAS, EDGE_DELTAS, "edges", "nodes"]
        for branch in ("main", "side"):
            forget(graph)
            pin = graph._store.snapshot(branch).tables[KNOWS]
            base = graph._store.derived.edges(pin, _ends(graph, branch))
            assert base is not None
            assert base.delta is not None
            assert base.pin.branch == (None if branch == "main" else branch)
            assert answers(graph, branch) == expected(path, branch)
        assert graph.check().ok


def _ends(graph: Graph, branch: str) -> Any:
    nodes = graph._store.derived.nodes(graph._store.snapshot(branch).tables[PERSON])
    assert nodes is not None
    return nodes.file.lineage, nodes.file.lineage


def test_TP5_a_merge_of_many_edges_leaves_a_delta_and_one_of_few_leaves_none(
    tmp_path: Path,
) -> None:
    path = tmp_path / "g"
    with filed(path) as graph:
        for number, (count, deltas) in enumerate(((2, 0), (20, 1))):
            branch = f"b{number}"
            graph.branches.create(branch)
            edges = ", ".join(f'"{name(n)}"' for n in range(count))
            for end in edges.split(", "):
                graph.mutate(
                    f"query q() {{ insert Knows {{ from: {end}, to: {end} }} }}", branch=branch
                )
            befriend(graph, 1, 50 + number)  # so that the merge is no fast-forward
            before = kinds(path).count(EDGE_DELTAS)
            graph.branches.merge(branch)
            assert kinds(path).count(EDGE_DELTAS) - before == deltas
        assert answers(graph) == expected(path)
        assert graph.check().ok


def test_TP3_every_byte_range_of_a_delta_damaged_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "g"
    with filed(path) as graph:
        befriend(graph, 20, 1)
        right = expected(path)
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1000000")
    [delta] = [file for file in files_of(path) if file.name.startswith(EDGE_DELTAS)]
    whole, rejected = delta.read_bytes(), 0
    with omnigraph.open(path) as graph:
        for start in [n for n in range(0, len(whole), 256) if any(whole[n : n + 256])]:
            delta.unlink(missing_ok=True)
            delta.write_bytes(_flipped(whole, start))
            forget(graph)
            graph._store.derived.files._rejected.clear()
            before = graph.stats()
            assert answers(graph) == right, f"from byte {start}"
            rejected += graph.stats().since(before).events.get("derived.rejected", 0)
    assert rejected >= 4


def _flipped(data: bytes, start: int) -> bytes:
    part = bytes(each ^ 0x5A for each in data[start : start + 256])
    return data[:start] + part + data[start + 256 :]


def test_TP6_a_delta_without_its_file_is_used_by_nobody_and_cleaned_up(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with filed(path) as graph:
        befriend(graph, 20, 1)
        right = expected(path)
        for file in files_of(path):
            if file.name.startswith("edges-"):
                file.unlink()
        forget(graph)
        assert graph._store.derived.remove_unreadable()[0] == 1
        assert EDGE_DELTAS not in kinds(path)
        assert answers(graph) == right


def test_TP6_check_tells_a_delta_that_differs(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with filed(path) as graph:
        befriend(graph, 20, 1)
        [delta] = [file for file in files_of(path) if file.name.startswith(EDGE_DELTAS)]
        file = MappedFile(delta, delta.stem.rpartition("-")[2])
        right = EdgeDeltaFile(file)
        arrays = {each: getattr(right, each) for each in ARRAYS}
        delta.unlink()
        for array in ("target", "row_ids", "removed"):
            wrong = {**arrays, array: _wrong(arrays[array])}
            if array == "removed":
                wrong |= {"removed_source": wrong["removed"], "removed_target": wrong["removed"]}
            pin = graph._store.snapshot().tables[KNOWS]
            made = graph._store.derived.files.write(EDGE_DELTAS, pin, file.facts, wrong)
            assert made is not None
            findings = graph.check().findings
            assert [finding.code for finding in findings] == ["topology"], array
            made.path.unlink()


def _wrong(numbers: np.ndarray) -> np.ndarray:
    if not len(numbers):
        return np.array([3])
    changed = numbers.copy()
    changed[0] += 1
    return changed


def test_a_delta_answers_which_edges_a_node_has(tmp_path: Path) -> None:
    path = tmp_path / "g"
    with filed(path) as graph:
        befriend(graph, 8, 1)
        graph.mutate('query q() { delete Knows where to = "p011" }')
        befriend(graph, 6, 2)
        forget(graph)
        store = graph._store
        pin = store.snapshot().tables[KNOWS]
        base = store.derived.edges(pin, _ends(graph, "main"))
        assert base is not None
        assert base.delta is not None
        assert len(base.delta.removed) > 0
        rows = store.tables.reader(pin).rows(["src", "dst"], with_row_id=True).to_pylist()
        for end in ("src", "dst"):
            for number in (3, 11, 30):
                found = store.derived.edge_row_ids(pin, end, pa.array([name(number)]))
                assert found is not None
                own = sorted(row["_rowid"] for row in rows if row[end] == name(number))
                assert sorted(found.tolist()) == own


# ---- any writes


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("deltas")) / "g", MODEL_SCHEMA) as made:
        yield made


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=2, max_size=6), built=st.sets(st.integers(0, 5), min_size=1))
def test_TP1_after_any_writes_delta_files_read_what_was_written(
    written: Graph, steps: list[tuple[Any, ...]], built: set[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
        patch.setattr(COSTS, "commit_file_rows_max", -1)
        patch.setattr(COSTS, "edge_delta_fold_share", 0)
        model = Model(written)
        model.begin_anew()
        check(model)
        for number, (step, *arguments) in enumerate(steps):
            getattr(model, step)(*arguments)
            if number in built:
                written.ensure_indices()
                forget(written)  # the next read begins with the files alone
            check(model)
        view = written._reading._view(written._store.snapshot())
        assert isinstance(view.topology(E, P, P).edges, FiledEdges)
        assert not [each for each in written.check().findings if each.code == "topology"]
