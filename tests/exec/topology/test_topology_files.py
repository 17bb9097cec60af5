"""Topology files: whatever state they are in, reads give the rows of the naive evaluator."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph.costs import COSTS
from omnigraph.errors import ExpressionFailed, TypeCheckError
from omnigraph.exec.memory.filed_lists import either_way, filed_adjacency
from omnigraph.exec.memory.filed_tables import FiledEdges, FiledNodes
from omnigraph.exec.topology.build import build_topology
from omnigraph.exec.topology.edge_delta import EdgeDelta
from omnigraph.graph import Graph
from omnigraph.plan.compile import compile_query
from omnigraph.plan.ir import ReadPlan
from omnigraph.plan.params import bind_parameters
from omnigraph.storage.derived.edge_file import EdgeFile, Way, edge_arrays
from omnigraph.storage.derived.mapped_file import MappedFile, write_file
from omnigraph.storage.records import Snapshot
from omnigraph.types import TableKey
from tests.exec.memory.test_resident import (
    ALL_EDGES,
    ALL_NODES,
    ALL_PAIRS,
    IDS,
    ONE_NODE,
    STEPS,
    E,
    Model,
    P,
)
from tests.exec.memory.test_resident import SCHEMA as MODEL_SCHEMA
from tests.exec.random_queries import SCHEMA, graphs, queries
from tests.exec.read.test_random_queries import TABLES, answers, or_refused, overwrite
from tests.exec.reference import Reference
from tests.exec.reference_functions import NoValue
from tests.exec.topology.test_topology_builders import forget
from tests.exec.world import graph_of

# Rows of the reference, too, keep the last of several columns of one name.
pytestmark = pytest.mark.filterwarnings("ignore:several columns are called")

STEPS_OF_SCHEMA = (
    (TableKey("edge:E"), TableKey("node:P"), TableKey("node:P")),
    (TableKey("edge:W"), TableKey("node:P"), TableKey("node:C")),
)
NODE_TABLES = (TableKey("node:P"), TableKey("node:C"))


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Columns are fetched for few rows alone, however small the table is.
    monkeypatch.setattr(
        "omnigraph.exec.memory.filed_tables._is_fetched",
        lambda cache, table, name, count: not table.holds(name),
    )


def files_of(graph: Graph) -> list[Path]:
    folder = Path(graph.uri) / "__derived"
    return sorted(folder.rglob("*.og"))


def built(graph: Graph, branch: str = "main") -> None:
    """Build every file that can be: of nodes and edges, and of each column."""
    snapshot: Snapshot = graph._store.snapshot(branch)
    nodes = graph.schema.catalog.nodes.values()
    columns = {node.table: tuple(prop.id for prop in node.properties) for node in nodes}
    build_topology(graph._store, snapshot, STEPS_OF_SCHEMA, NODE_TABLES, hot=columns)


# ---- random queries


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("topology")) / "g", SCHEMA) as made:
        yield made


def damage(path: Path, choice: int) -> None:
    data = bytearray(path.read_bytes())
    first = choice * 7919 % len(data)
    for index in range(first, min(first + 4096, len(data))):
        data[index] ^= 0xA5
    path.unlink()  # a mapping keeps the file it has: files are never changed in place
    path.write_bytes(data)


def _agrees(
    graph: Graph,
    data: dict[str, list[dict[str, Any]]],
    asked: list[tuple[str, dict[str, Any]]],
    state: str,
) -> None:
    tables = {TableKey(f"{TABLES[name]}:{name}"): rows for name, rows in data.items()}
    for text, params in asked:
        try:
            plan = compile_query(text, graph.schema.catalog)
        except TypeCheckError:
            continue
        assert isinstance(plan, ReadPlan)
        bound = bind_parameters(plan.parameters, params)
        try:
            expected = or_refused(Reference(tables, bound).rows, plan)
        except NoValue:
            continue  # whether a row that is left out later fails is the engine's choice
        for mode, few in (("csr", 0), ("csr", 128), ("auto", 128)):
            rows = or_refused(answers, graph, text, params, mode, few)
            how = f"{state}, {mode}, {few} rows are few"
            assert rows in (expected, ExpressionFailed), f"{how}: {text} {params}"


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    data=graphs(),
    earlier=graphs(),
    asked=st.lists(queries(), min_size=6, max_size=12),
    state=st.sampled_from(
        ["present", "absent", "stale", "damaged", "folded", "delta", "damaged delta"]
    ),
    choice=st.integers(0, 2**20),
)
def test_TP_reading_with_files_gives_the_rows_of_the_naive_evaluator(
    graph: Graph,
    data: dict[str, list[dict[str, Any]]],
    earlier: dict[str, list[dict[str, Any]]],
    asked: list[tuple[str, dict[str, Any]]],
    state: str,
    choice: int,
) -> None:
    shutil.rmtree(Path(graph.uri) / "__derived", ignore_errors=True)
    forget(graph)
    if state in ("stale", "folded", "delta", "damaged delta"):
        overwrite(graph, earlier)
        built(graph)
    overwrite(graph, data)
    with pytest.MonkeyPatch.context() as patch:
        if state in ("folded", "delta", "damaged delta"):
            patch.setattr(COSTS, "commit_file_rows_max", -1)
        if "delta" in state:
            patch.setattr(COSTS, "edge_delta_fold_share", 0)  # none is folded
        if state not in ("absent", "stale"):
            built(graph)
            assert files_of(graph)
        if "damaged" in state:
            for path in files_of(graph):
                if state == "damaged" or path.name.startswith("edgedelta"):
                    damage(path, choice)
            forget(graph)
        if state != "present":
            patch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1000000")  # nothing is built again
        _agrees(graph, data, asked, state)


@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=graphs(), forked=graphs(), asked=st.lists(queries(), min_size=6, max_size=10))
def test_TP5_a_fork_reads_the_files_of_its_base_and_its_own_rows(
    graph: Graph,
    data: dict[str, list[dict[str, Any]]],
    forked: dict[str, list[dict[str, Any]]],
    asked: list[tuple[str, dict[str, Any]]],
) -> None:
    shutil.rmtree(Path(graph.uri) / "__derived", ignore_errors=True)
    forget(graph)
    overwrite(graph, data)
    built(graph)
    graph.branches.create("side")
    try:
        _on_branch(graph, forked)
        tables = {TableKey(f"{TABLES[name]}:{name}"): rows for name, rows in forked.items()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "1000000")
            for text, params in asked:
                try:
                    plan = compile_query(text, graph.schema.catalog)
                except TypeCheckError:
                    continue
                assert isinstance(plan, ReadPlan)
                bound = bind_parameters(plan.parameters, params)
                try:
                    expected = or_refused(Reference(tables, bound).rows, plan)
                except NoValue:
                    continue  # as in `_agrees`
                rows = or_refused(lambda t, p: graph.query(t, p, branch="side").rows, text, params)
                assert rows in (expected, ExpressionFailed), f"{text} {params}"
            _agrees(graph, data, asked, "beside a fork")
        for table in NODE_TABLES:
            pin = graph._store.snapshot("side").tables[table]
            base = graph._store.derived.nodes(pin)
            assert base is None or base.pin.branch is None, "the fork's base is main's file"
    finally:
        graph.branches.delete("side")


def _on_branch(graph: Graph, data: dict[str, list[dict[str, Any]]]) -> None:
    store = graph._store
    begin = store.begin

    def begin_on_side(branch: str = "main", **options: Any) -> Any:
        return begin("side", **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "begin", begin_on_side)
        overwrite(graph, data)


# ---- writes, followed


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("followed")) / "g", MODEL_SCHEMA) as made:
        yield made


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, min_size=2, max_size=6), anew=st.sets(st.integers(0, 5)))
def test_TP1_after_any_writes_files_and_deltas_read_what_was_written(
    written: Graph, steps: list[tuple[Any, ...]], anew: set[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
        model = Model(written)
        model.begin_anew()
        check(model)
        for number, (name, *arguments) in enumerate(steps):
            getattr(model, name)(*arguments)
            if number in anew:
                forget(written)  # the next read begins with the files alone
            check(model)
        view = written._reading._view(written._store.snapshot())
        assert isinstance(view.nodes(P), FiledNodes)
        assert isinstance(view.topology(E, P, P).edges, FiledEdges)


def check(model: Model) -> None:
    graph = model.graph
    edges = sorted(
        ({"a": e["src"], "k": e["id"], "w": e["w"], "b": e["dst"]} for e in model.edges.values()),
        key=lambda row: (row["a"], row["b"], row["k"]),
    )
    assert graph.query(ALL_EDGES).rows == edges
    pairs = {(e["src"], e["dst"]) for e in model.edges.values()}
    pairs |= {(b, a) for a, b in pairs}
    assert [(r["a"], r["b"]) for r in graph.query(ALL_PAIRS)] == sorted(pairs)
    nodes = [{"p": n["id"], "i": n["i"], "s": n["s"]} for _, n in sorted(model.nodes.items())]
    assert graph.query(ALL_NODES).rows == nodes
    for key in IDS:
        rows = [row["p"] for row in graph.query(ONE_NODE, {"k": key})]
        assert rows == ([key] if key in model.nodes else [])


# ---- lists


ENDS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=25)


@settings(max_examples=80, deadline=None)
@given(base=ENDS, added=ENDS, choose=st.randoms(use_true_random=False))
def test_TP1_lists_of_a_file_and_its_delta_equal_those_built_anew(
    tmp_path_factory: pytest.TempPathFactory,
    base: list[tuple[int, int]],
    added: list[tuple[int, int]],
    choose: Any,
) -> None:
    ends = np.array([*base, *added], np.int32).reshape(-1, 2)
    count = len(base)
    dead = sorted(choose.sample(range(len(ends)), len(ends) // 3))
    file = edge_file(tmp_path_factory.mktemp("lists"), ends[:count])
    delta = EdgeDelta(
        np.array(dead, np.int64),
        ends[dead, 0].astype(np.int64),
        ends[dead, 1].astype(np.int64),
        np.arange(count, len(ends), dtype=np.uint64),
        ends[count:, 0].astype(np.int64),
        ends[count:, 1].astype(np.int64),
    )
    out, back = (filed_adjacency(file, delta, way, 9) for way in Way)
    live = [(int(a), int(b), n) for n, (a, b) in enumerate(ends) if n not in dead]
    turned = [(b, a, n) for a, b, n in live]
    either = [*live, *(edge for edge in turned if edge[0] != edge[1])]
    nodes = np.array([3, 8, 0, 3, 1, 2, 4, 5, 6, 7])
    for adjacency, edges in ((out, live), (back, turned), (either_way(out, back), either)):
        lists = {node: sorted((b, n) for a, b, n in edges if a == node) for node in range(9)}
        owners, neighbours, positions = adjacency.multiple.taken(nodes)
        taken = list(zip(owners.tolist(), neighbours.tolist(), positions.tolist(), strict=True))
        expected = [(i, b, n) for i, node in enumerate(nodes.tolist()) for b, n in lists[node]]
        assert sorted(taken) == sorted(expected)
        assert [each[:2] for each in taken] == [each[:2] for each in expected]
        distinct = {node: sorted({b for b, _ in row}) for node, row in lists.items()}
        owners, neighbours = adjacency.distinct.reached(nodes)
        reached = list(zip(owners.tolist(), neighbours.tolist(), strict=True))
        assert reached == [(i, b) for i, node in enumerate(nodes.tolist()) for b in distinct[node]]
        assert adjacency.distinct.degrees(nodes).tolist() == [len(distinct[n]) for n in nodes]
        assert adjacency.multiple.degrees(nodes).tolist() == [len(lists[n]) for n in nodes]
        assert adjacency.distinct.loops(nodes).tolist() == [n in distinct[n] for n in nodes]
        for node in range(9):
            assert list(adjacency.distinct.row(node)) == distinct[node]
            row = zip(adjacency.multiple.row(node), adjacency.multiple.edge_row(node), strict=True)
            assert sorted(row) == lists[node]


def edge_file(folder: Path, ends: np.ndarray) -> EdgeFile:
    row_ids = np.arange(len(ends), dtype=np.uint64)
    facts, arrays = edge_arrays((ends[:, 0], ends[:, 1]), (7, 7), row_ids)
    digest, _ = write_file(folder / "f", {**facts, "source": "", "target": ""}, arrays)
    return EdgeFile(MappedFile(folder / "f", digest))


# ---- who writes where


def test_TP2_the_first_reader_leaves_files_for_the_others(tmp_path: Path) -> None:
    with graph_of(tmp_path / "g", MODEL_SCHEMA) as made:
        model = Model(made)
        model.begin_anew()
        assert not files_of(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
        with omnigraph.open(tmp_path / "g") as first:
            assert len(first.query(ALL_PAIRS)) > 0
            assert first.stats().events["derived.written"] == 2
            names = files_of(first)
        with omnigraph.open(tmp_path / "g") as second:
            assert len(second.query(ALL_PAIRS)) > 0
            assert "derived.written" not in second.stats().events
            assert files_of(second) == names


def test_TP2_a_read_only_handle_writes_to_the_users_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    with graph_of(tmp_path / "g", MODEL_SCHEMA) as made:
        Model(made).begin_anew()
    before = sorted(tmp_path.rglob("g/**/*"))
    for written in (2, 0):
        with omnigraph.open(tmp_path / "g", read_only=True) as reader:
            assert len(reader.query(ALL_PAIRS)) > 0
            assert reader.stats().events.get("derived.written", 0) == written
    assert sorted(tmp_path.rglob("g/**/*")) == before
    assert len(list((tmp_path / "cache").rglob("*.og"))) == 2


def test_TP2_a_reader_never_waits_for_a_builder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    with graph_of(tmp_path / "g", MODEL_SCHEMA) as made:
        Model(made).begin_anew()
        with made._store.derived.files.building() as is_builder:
            assert is_builder
            with omnigraph.open(tmp_path / "g") as reader:
                assert len(reader.query(ALL_PAIRS)) > 0
                assert "derived.written" not in reader.stats().events


def test_TP3_a_file_of_another_graph_is_refused_and_counted(tmp_path: Path) -> None:
    graphs = []
    for number in (1, 2):
        made = graph_of(tmp_path / f"g{number}", MODEL_SCHEMA)
        model = Model(made)
        model.begin_anew()
        if number == 2:
            model.nodes = {key: model.node(key, 1) for key in IDS[3:8]}
            model.edges = {}
        model.replace()
        build_topology(made._store, made._store.snapshot(), [(E, P, P)], [P])
        graphs.append((made, model))
    for path in files_of(graphs[1][0]):
        path.unlink()
    ours, theirs = (Path(made.uri) / "__derived" for made, _ in graphs)
    shutil.rmtree(theirs)
    shutil.copytree(ours, theirs)
    made, model = graphs[1]
    forget(made)
    check(model)
    assert made.stats().events["derived.rejected"] >= 1
    for each, _ in graphs:
        each.close()
