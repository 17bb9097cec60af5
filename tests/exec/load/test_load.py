"""Loads in one process: modes, rules, errors, and what is left when one fails."""

import gzip
import io
import threading
from datetime import date
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.exec.load import finish, pieces, sources
from omnigraph.exec.load import local as loading
from omnigraph.exec.progress import Progress
from omnigraph.graph import Graph
from tests.exec.bulk import by_name, contents, edge, lines, new_graph, node, person

FAMILY = lines(
    edge("knows", "Ada", "Bob", since="2020-01-01", id="k1"),
    person("Ada", age=36, email="a@b"),
    person("Bob", tags=["x"], pic="base64:aGk="),
)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path)


@pytest.fixture
def family(graph: Graph) -> Graph:
    graph.load(FAMILY, "append")
    return graph


def refused(graph: Graph, source: Any, mode: str, **options: Any) -> og.ConstraintViolated:
    """The error of a load that must leave everything as it was."""
    before, commits = contents(graph), len(graph.commits.list())
    with pytest.raises(og.ConstraintViolated) as caught:
        graph.load(source, mode, **options)
    assert contents(graph) == before
    assert len(graph.commits.list()) == commits
    return caught.value


# Modes (LD2, O1-O3)


def test_LD2_nodes_and_edges_in_any_order_are_one_commit(graph: Graph) -> None:
    commits = len(graph.commits.list())
    done = graph.load(FAMILY, "append", actor="act-me")
    assert (done.nodes, done.edges, done.total_entities) == ({"Person": 2}, {"Knows": 1}, 3)
    assert (done.engine, done.branch, done.mode, done.actor_id) == (
        "local",
        "main",
        "append",
        "act-me",
    )
    assert len(graph.commits.list()) == commits + 1
    assert graph.commits.list()[0] == done.commit
    assert by_name(graph, "edge:Knows")["k1"]["since"] == date(2020, 1, 1)
    assert by_name(graph, "node:Person")["Bob"]["pic"] == b"hi"


def test_an_empty_load_is_an_empty_commit(graph: Graph) -> None:
    for mode in ("append", "merge", "overwrite"):
        commits = len(graph.commits.list())
        assert graph.load(b"", mode).total_entities == 0
        assert len(graph.commits.list()) == commits + 1


def test_O1_append_of_an_existing_id_is_key_taken(family: Graph) -> None:
    before = contents(family)
    with pytest.raises(og.KeyTaken) as caught:
        family.load(lines(person("Cy"), person("Ada")), "append")
    assert (caught.value.entity_kind, caught.value.type_name) == ("node", "Person")
    assert caught.value.entity_id == "Ada"
    with pytest.raises(og.KeyTaken, match="edge type 'Knows' already has id 'k1'"):
        family.load(lines(edge("Knows", "Bob", "Ada", id="k1")), "append")
    assert contents(family) == before


def test_merge_replaces_whole_rows_and_leaves_others(family: Graph) -> None:
    done = family.load(
        lines(person("Ada", height=1.5), person("Cy"), edge("Knows", "Ada", "Cy", id="k1")),
        "merge",
    )
    assert done.nodes == {"Person": 2}
    people = by_name(family, "node:Person")
    assert (people["Ada"]["age"], people["Ada"]["height"]) == (None, 1.5)
    assert people["Bob"]["tags"] == ["x"]
    assert people["Bob"]["pic"] == b"hi"
    assert set(people) == {"Ada", "Bob", "Cy"}
    assert [row["dst"] for row in contents(family)["edge:Knows"]] == ["Cy"]


def test_merge_of_the_same_edge_id_keeps_the_last(family: Graph) -> None:
    done = family.load(
        lines(
            edge("Knows", "Ada", "Nobody", id="n"),
            edge("Knows", "Bob", "Ada", id="n"),
            edge("Knows", "Ada", "Ada", id="k1"),
            edge("Knows", "Bob", "Bob", id="k1"),
        ),
        "merge",
    )
    assert done.edges == {"Knows": 4}, "input rows are counted"
    found = by_name(family, "edge:Knows")
    assert {i: (e["src"], e["dst"]) for i, e in found.items()} == {
        "n": ("Bob", "Ada"),
        "k1": ("Bob", "Bob"),
    }


def test_merge_of_the_same_key_twice_keeps_the_last(family: Graph) -> None:
    done = family.load(
        lines(
            person("Cy", email="c@d"),
            person("Ada", age=1),
            person("Cy", age=1),
            node("Ticket", tenant="a", number=1),
            person("Ada", age=2),
            node("Ticket", number=1, tenant="a"),
            person("Di", email="c@d"),
        ),
        "merge",
    )
    assert done.nodes == {"Person": 5, "Ticket": 2}, "input rows are counted"
    people = by_name(family, "node:Person")
    assert (people["Cy"]["age"], people["Cy"]["email"]) == (1, None), "the last one, whole"
    assert people["Ada"]["age"] == 2
    assert people["Di"]["email"] == "c@d", "what a row that lost held is free"
    assert len(contents(family)["node:Ticket"]) == 1


def test_merge_of_the_same_key_twice_is_refused_when_asked(family: Graph) -> None:
    twice = lines(person("Cy"), person("Cy", age=1))
    error = refused(family, twice, "merge", on_duplicate="refuse")
    assert error.counts == (("unique", 1),)
    assert (error.violations[0].line, error.violations[0].id) == (2, "Cy")
    edges = lines(edge("Knows", "Ada", "Ada", id="e"), edge("Knows", "Bob", "Ada", id="e"))
    error = refused(family, edges, "merge", on_duplicate="refuse")
    assert (error.violations[0].line, error.violations[0].id) == (2, "e")
    for mode in ("append", "overwrite"):
        assert ("unique", 1) in refused(family, twice, mode).counts


def test_the_last_of_several_files_is_the_last_in_the_order_given(
    family: Graph, tmp_path: Path
) -> None:
    for name, age in (("a", 1), ("b", 2)):
        (tmp_path / f"{name}.jsonl").write_bytes(lines(person("Cy", age=age)))
    for order, age in (("ab", 2), ("ba", 1)):
        family.load([tmp_path / f"{name}.jsonl" for name in order], "merge")
        assert by_name(family, "node:Person")["Cy"]["age"] == age
    family.load(str(tmp_path / "*.jsonl"), "merge")
    assert by_name(family, "node:Person")["Cy"]["age"] == 2, "a pattern is in name order"


def test_the_last_one_counts_in_every_kind_of_input(family: Graph) -> None:
    rows = [{"name": "Cy", "age": 1}, {"name": "Cy", "age": 2}]
    for source in (rows, pa.Table.from_pylist(rows), pa.Table.from_pylist(rows).to_reader()):
        family.load([person("Cy", age=9)], "merge")
        family.load(source, "merge", type="Person")
        assert by_name(family, "node:Person")["Cy"]["age"] == 2
    older = '{"type":"Person","data":{"name":"Cy","age":5}} {"type":"Person","data":{"name":"Cy"}}'
    family.load(older.encode(), "merge", permissive=True)
    assert by_name(family, "node:Person")["Cy"]["age"] is None, "two on one line"


def test_a_big_merge_keeps_the_last_of_each_key(
    family: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COSTS, "upsert_rows_max", 10)
    monkeypatch.setattr(COSTS, "key_bucket_bytes", 2_000)
    people = [person(f"p{n % 300}", age=n // 300, email=f"{n}@x") for n in range(900)]
    family.load(lines(*people), "merge")
    kept = by_name(family, "node:Person")
    assert [kept[f"p{n}"]["age"] for n in range(300)] == [2] * 300
    assert len(kept) == 302


@pytest.mark.parametrize(
    ("mode", "options", "text"),
    [
        ("merge", {"on_duplicate": "first"}, "'first'"),
        ("append", {"on_duplicate": "last"}, "merge"),
        ("overwrite", {"on_duplicate": "last"}, "merge"),
        ("merge", {"order_by": "age"}, "DataFrame"),
    ],
)
def test_an_order_that_means_nothing_is_refused(
    family: Graph, mode: str, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(og.BadRequest, match=text):
        family.load(lines(person("Cy")), mode, **options)


def test_merge_keeps_blobs_of_rows_it_does_not_name_and_takes_new_ones(family: Graph) -> None:
    family.load(lines(person("Ada", pic="base64:")), "merge")
    assert by_name(family, "node:Person")["Ada"]["pic"] == b""
    assert by_name(family, "node:Person")["Bob"]["pic"] == b"hi"


def test_overwrite_replaces_the_types_that_occur(family: Graph) -> None:
    family.load(lines(node("Log", text="old")), "append")
    family.load(lines(person("Ada"), person("Bob"), person("Cy")), "overwrite")
    assert set(by_name(family, "node:Person")) == {"Ada", "Bob", "Cy"}
    assert set(by_name(family, "edge:Knows")) == {"k1"}
    assert len(by_name(family, "node:Log")) == 1


def test_overwrite_must_keep_nodes_that_edges_use(family: Graph) -> None:
    error = refused(family, lines(person("Ada")), "overwrite")
    assert [str(v) for v in error.violations] == ["dst 'Bob' not found in Person"]
    family.load(lines(person("Ada"), edge("Knows", "Ada", "Ada")), "overwrite")
    assert set(by_name(family, "node:Person")) == {"Ada"}


def test_O2_an_overwrite_of_a_named_type_without_rows_empties_it(family: Graph) -> None:
    family.load(pa.table({"from": pa.array([], pa.utf8()), "to": pa.array([], pa.utf8())}),
                "overwrite", edge="Knows")  # fmt: skip
    assert set(contents(family)) == {"node:Person"}
    family.load(FAMILY, "overwrite")
    assert set(contents(family)) == {"node:Person", "edge:Knows"}


def test_an_overwrite_that_lost_the_race_says_so(family: Graph, monkeypatch: Any) -> None:
    other = og.open(family.uri)
    _once_before_staging(monkeypatch, lambda: other.load(lines(person("Zoe")), "append"))
    with pytest.raises(og.VersionMismatch):
        family.load(lines(person("Ada"), person("Bob")), "overwrite")
    assert "Zoe" in by_name(family, "node:Person")


def test_an_append_that_lost_the_race_checks_again_and_writes_nothing_twice(
    family: Graph, monkeypatch: Any
) -> None:
    other = og.open(family.uri)
    _once_before_staging(monkeypatch, lambda: other.load(lines(person("Zoe")), "append"))
    family.load(lines(person("Cy"), edge("Knows", "Cy", "Ada")), "append")
    assert set(by_name(family, "node:Person")) == {"Ada", "Bob", "Cy", "Zoe"}
    _once_before_staging(monkeypatch, lambda: other.load(lines(person("Dan")), "append"))
    with pytest.raises(og.KeyTaken):
        family.load(lines(person("Dan")), "append")


def _once_before_staging(monkeypatch: Any, act: Any) -> None:
    stage = finish.Finish._stage
    left = [act]

    def racing(self: Any, write: Any) -> None:
        if left:
            left.pop()()
        stage(self, write)

    monkeypatch.setattr(finish.Finish, "_stage", racing)


def test_concurrent_appends_all_arrive(family: Graph) -> None:
    def write(number: int) -> None:
        og.open(family.uri).load(lines(person(f"p{number}")), "append")

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(by_name(family, "node:Person")) == 6


def test_missing_ends_are_counted_as_such(family: Graph) -> None:
    edges = [edge("Knows", "Ada", f"Nobody {number // 2}") for number in range(60)]
    with pytest.raises(og.ConstraintViolated, match="30 missing ends: dst 'Nobody"):
        family.load(lines(*edges), "append")


# Branches


def test_a_missing_branch_is_created_only_when_told_from_where(family: Graph) -> None:
    with pytest.raises(og.NotFound, match="branch 'x' not found; pass from_branch= "):
        family.load(lines(person("Cy")), "append", branch="x")
    with pytest.raises(og.NotFound, match="did you mean 'main'"):
        family.load(lines(person("Cy")), "append", branch="mian")
    done = family.load(lines(person("Cy")), "append", branch="x", from_branch="main")
    assert (done.branch, done.base_branch, done.branch_created) == ("x", "main", True)
    assert len(contents(family, "x")["node:Person"]) == 3
    assert len(contents(family)["node:Person"]) == 2
    again = family.load(lines(person("Cy", age=1)), "merge", branch="x", from_branch="main")
    assert not again.branch_created


def test_the_fork_stays_when_the_load_fails(family: Graph) -> None:
    with pytest.raises(og.ConstraintViolated):
        family.load(b"nope", "append", branch="x", from_branch="main")
    assert "x" in family.branches.list()


# Errors (LD3)


def test_LD3_all_violations_are_counted_and_the_first_of_each_is_told(
    family: Graph, tmp_path: Path
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(
        lines(
            person("a", age=200),
            person("b", age=-1),
            person("c", email="nomail"),
            person("d", role="boss"),
            person("e", email="a@b"),
            person("f"),
            person("f"),
            b"{oops",
            edge("Knows", "a", "Ghost"),
            edge("Knows", "Phantom", "a"),
            edge("Knows", "a", "b"),
            edge("Knows", "a", "b"),
            {"type": "Nope", "data": {}},
        )
    )
    error = refused(family, str(file), "append")
    assert dict(error.counts) == {
        "range": 2,
        "check": 1,
        "enum": 1,
        "unique": 3,
        "json": 1,
        "endpoint": 2,
        "unknown_type": 1,
    }
    assert error.total == 11
    told = {(v.rule, v.property): v for v in reversed(error.violations)}
    assert told["range", "age"].line == 1
    assert (told["range", "age"].id, told["range", "age"].value) == ("a", "200")
    assert "@range violation on Person.age: value 200 > max 150" in str(told["range", "age"])
    assert told["check", "email"].line == 3
    assert (
        told["enum", "role"].text
        == "invalid enum value 'boss' for Person.role (expected: admin, guest)"
    )
    assert told["unique", "email"].line == 5
    assert told["unique", "name"].line == 7
    assert told["json", None].line == 8
    assert (told["endpoint", "dst"].line, told["endpoint", "src"].line) == (9, 10)
    assert told["unique", "(src, dst)"].line == 12
    assert all(v.file == str(file) for v in error.violations)


def test_missing_and_null_required_properties_are_refused(graph: Graph) -> None:
    error = refused(graph, lines(node("Log"), node("Log", text=None)), "append")
    assert error.counts == (("required", 2),)
    assert "non-nullable" in str(error)


def test_cardinality_is_counted_with_committed_edges(graph: Graph) -> None:
    logs = [node("Log", text="t", id=f"l{n}") for n in range(3)]
    graph.load(lines(person("Ada"), *logs, edge("Wrote", "Ada", "l0", id="w0")), "append")
    more = [edge("Wrote", "Ada", "l1"), edge("Wrote", "Ada", "l2")]
    error = refused(graph, lines(*more), "append")
    assert str(error.violations[0]) == (
        "line 2: @card violation on edge Wrote: source 'Ada' has 3 edges (max 2)"
    )
    graph.load(lines(edge("Wrote", "Ada", "l1", id="w0"), edge("Wrote", "Ada", "l2")), "merge")
    assert len(contents(graph)["edge:Wrote"]) == 2


def test_a_merge_may_not_take_the_last_edge_a_source_needs(graph: Graph) -> None:
    records = [node("Count", n=1), node("Count", n=2), node("Log", text="t", id="l")]
    graph.load(lines(*records, edge("Owns", "1", "l", id="o")), "append")
    error = refused(graph, lines(edge("Owns", "2", "l", id="o")), "merge")
    assert "source '1' has 0 edges (min 1)" in str(error)


def test_an_overwrite_may_not_leave_a_source_without_the_edges_it_needs(graph: Graph) -> None:
    records = [node("Count", n=1), node("Count", n=2), node("Log", text="t", id="l")]
    graph.load(lines(*records, edge("Owns", "1", "l", id="o")), "append")
    error = refused(graph, lines(edge("Owns", "2", "l", id="p")), "overwrite")
    assert "source '1' has 0 edges (min 1)" in str(error)
    gone = lines(node("Count", n=2), edge("Owns", "2", "l", id="p"))
    graph.load(gone, "overwrite")
    assert set(by_name(graph, "edge:Owns")) == {"p"}


def test_unique_ignores_rows_that_the_merge_replaces(family: Graph) -> None:
    family.load(lines(person("Ada"), person("Cy", email="a@b")), "merge")
    error = refused(family, lines(person("Dan", email="a@b")), "merge")
    assert [violation.rule for violation in error.violations] == ["unique"]


def test_rejects_are_written_with_their_reasons(family: Graph, tmp_path: Path) -> None:
    source = lines(person("a", age=200), b"{oops", edge("Knows", "a", "Ghost"))
    refused(family, source, "append", rejects=tmp_path / "rejects")
    text = (tmp_path / "rejects" / "rejects.jsonl").read_text()
    entries = {e["line"]: e for e in map(orjson.loads, text.splitlines())}
    assert entries[2]["record"] == "{oops"
    assert (entries[1]["rule"], entries[3]["rule"]) == ("range", "endpoint")
    assert "Ghost" in entries[3]["reason"]


def test_a_line_that_is_too_long_is_a_limit(graph: Graph, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sources, "LINE_BYTES_MAX", 1 << 20)
    file = tmp_path / "long.jsonl"
    file.write_bytes(lines(person("a"), person("b" * (11 << 20)), person("c")))
    monkeypatch.setattr("omnigraph.exec.load.decode.LINE_BYTES_MAX", 1 << 20)
    with pytest.raises(og.LimitExceeded, match="graph_batch_line_bytes") as caught:
        graph.load(file, "append")
    assert "line 2 of" in str(caught.value)
    tokens = b'{"type":"Person","data":{"name":"a","tags":[' + b'"",' * 140_000 + b'""]}}'
    with pytest.raises(og.LimitExceeded, match="graph_batch_json_structural_slots"):
        graph.load(tokens, "append")


def test_a_file_that_vanishes_leaves_nothing(
    graph: Graph, tmp_path: Path, monkeypatch: Any
) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_bytes(lines(person("a")))
    second.write_bytes(lines(person("b")))
    read = pieces.pieces_of_part

    def vanishing(part: Any) -> Any:
        second.unlink(missing_ok=True)
        return read(part)

    monkeypatch.setattr(pieces, "pieces_of_part", vanishing)
    with pytest.raises(og.NotFound, match="it was there when the load began"):
        graph.load([str(first), str(second)], "append")
    assert contents(graph) == {}


def test_wrong_requests_are_refused(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(og.BadRequest, match="unknown load mode"):
        graph.load(b"", "replace")
    with pytest.raises(og.BadRequest, match="unknown engine"):
        graph.load(b"", "append", engine="duck")
    with pytest.raises(og.NotFound, match="node type 'Nope'"):
        graph.load(b"", "append", type="Nope")
    with pytest.raises(og.BadRequest, match="exclude each other"):
        graph.load(b"", "append", type="Person", edge="Knows")
    with pytest.raises(og.NotFound, match="input file"):
        graph.load(tmp_path / "missing.jsonl", "append")
    with pytest.raises(og.BadRequest, match="holds columns"):
        graph.load(pa.table({"name": ["a"]}), "append")
    with pytest.raises(og.BadRequest, match="cannot load a int"):
        graph.load(5, "append")
    with pytest.raises(og.BadRequest, match="read-only"):
        og.open(graph.uri, read_only=True).load(b"", "append")


# Files (LD1)


def test_LD1_files_folders_patterns_lists_and_compressed_text(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(lines(person("a")))
    (folder / "b.ndjson").write_bytes(lines(person("b")))
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(lines(person("c"))))
    (folder / "_ignored.jsonl").write_bytes(b"nope")
    assert graph.load(folder, "append").nodes == {"Person": 3}
    assert graph.load(str(folder / "*.jsonl"), "merge").nodes["Person"] == 1
    assert graph.load([folder / "a.jsonl", folder / "b.ndjson"], "merge").nodes["Person"] == 2
    assert graph.load(io.BytesIO(lines(person("d"))), "append").nodes == {"Person": 1}


def test_records_at_hand_are_loaded(graph: Graph) -> None:
    done = graph.load((r for r in [person("a"), edge("Knows", "a", "a")]), "append")
    assert done.total_entities == 2
    assert graph.load([{"name": "b", "age": 3}], "append", type="Person").nodes == {"Person": 1}
    error = refused(graph, [person("c"), person("d", age="x")], "append")
    assert error.violations[0].line == 2


def test_LD7_progress_is_told(graph: Graph) -> None:
    told: list[Progress] = []
    graph.load(FAMILY, "append", progress=told.append)
    assert [p.stage for p in told] == ["read", "check", "stage", "done"]
    assert {p.rows for p in told} == {3}


def test_the_older_format_is_loaded_when_it_is_asked_for(graph: Graph, tmp_path: Path) -> None:
    text = b'{"type": "Count",\n "data": {"id": "007", "n": 7, "nope": 1}}\n'
    text += b'{"type":"Log","data":{"id":"l","text":"t"}} {"edge":"owns","from":"007","to":"l"}'
    refused(graph, text, "append")
    done = graph.load(text, "append", permissive=True)
    assert (done.nodes, done.edges) == ({"Count": 1, "Log": 1}, {"Owns": 1})
    (tmp_path / "old.json").write_bytes(text + b" {")
    error = refused(graph, tmp_path / "old.json", "overwrite", permissive=True)
    assert (error.counts, error.violations[0].line) == ((("json", 1),), 3)


# Many buckets


def test_buckets_find_what_one_bucket_finds(family: Graph, monkeypatch: Any) -> None:
    monkeypatch.setattr(loading, "bucket_count", lambda size: 7)
    many = [person(f"p{n}", email=f"p{n}@x") for n in range(50)]
    ring = [edge("Knows", f"p{n}", f"p{(n + 1) % 50}") for n in range(50)]
    family.load(lines(*many, *ring), "append")
    with pytest.raises(og.KeyTaken):
        family.load(lines(person("p7")), "append")
    error = refused(
        family,
        lines(
            person("x", email="p7@x"), person("y"), person("y"),
            edge("Knows", "p1", "p2"), edge("Knows", "p1", "gone"),
        ),
        "append",
    )  # fmt: skip
    assert dict(error.counts) == {"unique": 3, "endpoint": 1}
    family.load(lines(person("p7"), person("new", email="p7@x")), "merge")
    refused(family, lines(person("Ada")), "overwrite")
    assert len(by_name(family, "node:Person")) == 53
    monkeypatch.setattr(loading, "bucket_count", lambda size: 1)
    refused(family, lines(person("newer", email="p7@x")), "merge")


def test_LD5_buckets_follow_the_rows_whatever_the_input(
    graph: Graph, tmp_path: Path, monkeypatch: Any
) -> None:
    asked: list[int] = []
    count = loading.bucket_count
    monkeypatch.setattr(
        loading, "bucket_count", lambda size: asked.append(count(size)) or asked[-1]
    )
    monkeypatch.setattr(COSTS, "record_piece_rows", 2)
    error = refused(graph, iter([person(n) for n in "abca"]), "append")
    assert (error.counts, error.violations[0].line) == ((("unique", 1),), 4)
    graph.load(iter([person("a")]), "append")
    assert asked[0] > 8 > asked[1] == 1, "a stream may go on for long, unless it is over already"
    monkeypatch.setattr(COSTS, "key_bucket_bytes", 1_000)
    names = [f"p{n}" for n in range(300)]
    (tmp_path / "in.jsonl").write_bytes(lines(*map(person, names)))
    graph.load(tmp_path / "in.jsonl", "append")
    pq.write_table(pa.table({"name": names}), tmp_path / "in.parquet")
    graph.load(tmp_path / "in.parquet", "merge", type="Person")
    assert asked[3] >= asked[2] / 2, "columns take fewer bytes than the text of the same rows"


@pytest.mark.parametrize("ids", [{}, {"id": "w2"}])
def test_an_edge_without_an_end_is_told_by_the_id_it_states(
    graph: Graph, ids: dict[str, str]
) -> None:
    others = [edge("Knows", "a", "a", id="k")] if ids else []
    source = lines(person("a"), *others, edge("Knows", "a", "ghost", **ids))
    (told,) = refused(graph, source, "append").violations
    assert (told.id, told.value) == (ids.get("id"), "ghost")
    mixed = lines(person("a"), edge("Knows", "a", "a", id="k"), edge("Knows", "a", "ghost"))
    assert refused(graph, mixed, "append").violations[0].id is None


def test_of_many_edges_to_one_missing_end_the_first_is_told(graph: Graph) -> None:
    many = [edge("Knows", "a", "ghost" if n % 2 else "a") for n in range(40)]
    error = refused(graph, lines(person("a"), *many), "append")
    told = {v.rule: v for v in error.violations}
    assert (dict(error.counts)["endpoint"], told["endpoint"].line) == (1, 3)


@pytest.mark.parametrize("ids", [{}, {"id": "w2"}])
def test_a_merge_counts_the_edges_beside_its_own(family: Graph, ids: dict[str, str]) -> None:
    family.load(lines(*(node("Log", text="t", id=f"l{n}") for n in range(3))), "append")
    family.load(lines(edge("Wrote", "Ada", "l0", id="w0")), "merge")
    family.load(lines(edge("Wrote", "Ada", "l1", **ids)), "merge")
    with pytest.raises(og.ConstraintViolated, match="has 3 edges"):
        family.load(lines(edge("Wrote", "Ada", "l2")), "merge")
    family.load(lines(edge("Wrote", "Bob", "l2", id="w0")), "merge")
    family.load(lines(edge("Wrote", "Ada", "l2")), "merge")
    assert len(by_name(family, "edge:Wrote")) == 3


# Other writers meanwhile (C1-C2)


def _lost_race(monkeypatch: Any, act: Any) -> list[Any]:
    """Let another writer commit before the first attempt does; the checks that were planned."""
    planned: list[Any] = []
    run = finish.run_all

    def noted(checks: Any, *args: Any) -> Any:
        planned.append([type(check.rule).__name__ for check, _ in checks])
        return run(checks, *args)

    monkeypatch.setattr(finish, "run_all", noted)
    _once_before_staging(monkeypatch, act)
    return planned


def test_C2_after_insertions_only_those_are_looked_at(family: Graph, monkeypatch: Any) -> None:
    other = og.open(family.uri)
    planned = _lost_race(monkeypatch, lambda: other.load(lines(person("Zoe")), "append"))
    family.load(lines(person("Cy"), edge("Knows", "Cy", "Ada")), "append")
    assert {"Endpoint", "FreeIds", "Unique", "DistinctIds"} <= set(planned[0])
    assert set(planned[-1]) == {"FreeIds", "Unique"}
    assert set(by_name(family, "node:Person")) == {"Ada", "Bob", "Cy", "Zoe"}


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_C2_what_another_writer_took_is_seen(family: Graph, monkeypatch: Any, mode: str) -> None:
    other = og.open(family.uri)
    theirs = lines(person("Zoe", email="z@z"))
    _lost_race(monkeypatch, lambda: other.load(theirs, "append"))
    with pytest.raises(og.ConstraintViolated, match="value 'z@z' held by"):
        family.load(lines(person("Cy", email="z@z")), mode)
    assert set(by_name(family, "node:Person")) == {"Ada", "Bob", "Zoe"}


def test_C2_a_merge_replaces_what_another_writer_inserted(family: Graph, monkeypatch: Any) -> None:
    other = og.open(family.uri)
    theirs = lines(person("Zoe", email="z@z", age=1))
    _lost_race(monkeypatch, lambda: other.load(theirs, "append"))
    family.load(lines(person("Zoe", email="z@z", age=2)), "merge")
    assert by_name(family, "node:Person")["Zoe"]["age"] == 2


def test_C2_edges_of_another_writer_are_counted(family: Graph, monkeypatch: Any) -> None:
    family.load(lines(*(node("Log", text="t", id=f"l{n}") for n in range(3))), "append")
    family.load(lines(edge("Wrote", "Ada", "l0")), "append")
    other = og.open(family.uri)
    _lost_race(monkeypatch, lambda: other.load(lines(edge("Wrote", "Ada", "l1")), "append"))
    with pytest.raises(og.ConstraintViolated, match="has 3 edges"):
        family.load(lines(edge("Wrote", "Ada", "l2")), "append")


def test_C2_after_a_removal_everything_is_looked_at_again(family: Graph, monkeypatch: Any) -> None:
    family.load(lines(person("Cy")), "append")
    other = og.open(family.uri)
    remove = 'query d() { delete Person where name = "Cy" }'
    planned = _lost_race(monkeypatch, lambda: other.mutate(remove))
    with pytest.raises(og.ConstraintViolated, match="dst 'Cy' not found"):
        family.load(lines(edge("Knows", "Ada", "Cy")), "append")
    assert "Endpoint" in planned[-1]


def test_LD1_a_blob_column_of_addresses_is_copied_in(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"picture")
    allowed = og.open(graph.uri, external_blobs=[f"file://{tmp_path}/"])
    allowed.load(pa.table({"name": ["Ada"], "pic": [f"file://{file}"]}), "append", type="Person")
    file.unlink()
    assert by_name(graph, "node:Person")["Ada"]["pic"] == b"picture"
    error = refused(allowed, lines(person("B"), person("C", pic=f"file://{file}")), "append")
    assert (error.violations[0].line, error.violations[0].rule) == (2, "blob")


def test_equal_faults_of_an_input_are_folded(tmp_path: Path) -> None:
    schema = """node Paper {
        slug: String @key
        year: I32?
        kind: enum(a, b)?
        @range(year, 1900..2100)
    }"""
    file = tmp_path / "papers.jsonl"
    papers = [{"slug": f"p{n:03}", "year": 3000 if n % 2 else 2000} for n in range(200)]
    papers[5]["kind"] = "c"
    records = [orjson.dumps({"type": "Paper", "data": paper}) for paper in papers]
    file.write_bytes(b"\n".join(records))
    with og.init(tmp_path / "g", schema) as graph, pytest.raises(og.ConstraintViolated) as refused:
        graph.load(str(file), "append")
    text = str(refused.value)
    assert "100 rows: @range violation on Paper.year: value 3000 > max 2100; first: " in text
    assert f"id 'p001', {file}:2" in text
    assert f"{file}:6: invalid enum value 'c' for Paper.kind" in text
    assert (refused.value.total, " more" in text) == (101, False)
