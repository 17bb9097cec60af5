"""RC1: what the library promises, of a graph opened from its files and of the same one served."""

import io
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from tests.remote.both import Maker

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    tags: [String]?
    born: Date?
    seen: DateTime?
    score: F64?
    place: Vector(2)?
    photo: Blob?
    role: enum(boss, guest)?
    @range(age, 0..150)
}
node City { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge Lives: Person -> City @key(src, dst)
"""
PEOPLE = (
    '{"type":"Person","data":{"name":"Ada","age":36,"photo":"base64:aGVsbG8gd29ybGQ="}}\n'
    '{"type":"Person","data":{"name":"Bob","age":25,"tags":["x","y"],"role":"guest",'
    '"born":"1999-12-31","seen":"2026-01-02T03:04:05.678Z","score":1.5,"place":[1,2]}}\n'
    '{"type":"City","data":{"name":"Oslo"}}\n'
    '{"edge":"Knows","from":"Ada","to":"Bob","data":{"since":2020}}\n'
)
NAMES = "query names() { match { $p: Person } return { $p.name as name } order { name } }"
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
AGE = "query set_age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
GONE = "query gone($n: String) { delete Person where name = $n }"


def names(graph: og.Graph, branch: str = "main") -> list[str]:
    return [row["name"] for row in graph.query(NAMES, branch=branch).rows]


def people(new: Maker) -> og.Graph:
    return new(SCHEMA, PEOPLE)


# ---- reads


def test_a_query_gives_typed_columns_and_json_rows(new: Maker) -> None:
    graph = people(new)
    every = "query all() { match { $p: Person } return { $p.name, $p.age, $p.tags, $p.born, "
    result = graph.query(
        every + "$p.seen, $p.score, $p.place, $p.role, $p } order { $p.name } }", name="all"
    )
    assert isinstance(result, og.QueryResult)
    assert result.query_name == "all"
    assert result.columns[:3] == ["p.name", "p.age", "p.tags"]
    assert result.rows[1] == {
        "p.name": "Bob",
        "p.age": 25,
        "p.tags": ["x", "y"],
        "p.born": "1999-12-31",
        "p.seen": "2026-01-02T03:04:05.678Z",
        "p.score": 1.5,
        "p.place": [1.0, 2.0],
        "p.role": "guest",
        "p": "Bob",
    }
    assert result.rows[0]["p.tags"] is None
    table = result.to_arrow()
    assert table.schema.field("p.age").type == pa.int32()
    assert table.schema.field("p.born").type == pa.date32()
    assert len(result) == 2
    assert [row["p.name"] for row in result] == ["Ada", "Bob"]
    assert result.commit_id == graph.commits.list()[0].id
    assert list(result.to_pandas()["p.name"]) == ["Ada", "Bob"]
    assert result.to_polars()["p.age"].to_list() == [36, 25]


def test_an_empty_result_has_its_columns(new: Maker) -> None:
    result = people(new).query(
        'query q() { match { $p: Person { name: "nobody" } } return { $p.age, $p.tags } }'
    )
    assert (len(result), result.columns, result.rows) == (0, ["p.age", "p.tags"], [])


def test_parameters_are_python_values(new: Maker) -> None:
    graph = people(new)
    text = (
        "query q($d: Date, $t: DateTime, $i: [I32], $x: F64?) { match { $p: Person "
        "$p.born = $d $p.seen = $t } return { $p.name } }"
    )
    moment = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
    given = {"d": date(1999, 12, 31), "t": moment, "i": (1, 2), "x": None}
    assert graph.query(text, MappingProxyType(given)).rows == [{"p.name": "Bob"}]
    assert graph.query(text, given).rows == [{"p.name": "Bob"}]
    with pytest.raises(og.BadRequest, match="parameter 'd' not provided"):
        graph.query(text)
    with pytest.raises(og.BadRequest, match="params must be a JSON object"):
        graph.query(text, [1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("DateTime", pd.Timestamp("2026-01-02T03:04:05.678", tz="UTC")),
        ("DateTime", np.datetime64("2026-01-02T03:04:05.678")),
        ("F64", Decimal("2.5")),
        ("F64", Fraction(5, 2)),
        ("F64", np.float32(2.5)),
        ("I64", np.int32(7)),
        ("I64", 7.0),
        ("Bool", np.bool_(True)),
        ("[I64]", pd.Series([1, 2])),
        ("[I64]", np.array([1, 2])),
        ("[DateTime]", pd.Series(pd.to_datetime(["2026-01-02"]))),
    ],
    ids=str,
)
def test_parameters_are_values_of_numpy_and_pandas(new: Maker, kind: str, value: object) -> None:
    graph = people(new)
    text = f"query q($x: {kind}) {{ match {{ $p: Person }} return {{ $p.name, $x as x }} limit 1 }}"
    (row,) = graph.query(text, {"x": value}).rows
    assert row["x"] is not None


def test_a_text_that_is_wrong_says_where(new: Maker, tmp_path: Path) -> None:
    graph = people(new)
    with pytest.raises(og.TypeCheckError) as wrong:
        graph.query("query q() {\n match { $p: Persn } return { $p } }")
    assert (wrong.value.code, wrong.value.line, wrong.value.column) == ("T1", 2, 14)
    assert "did you mean 'Person'" in wrong.value.hint
    assert "^^^^^" in str(wrong.value)
    with pytest.raises(og.ParseError):
        graph.query("query q( {")
    with pytest.raises(og.BadRequest, match="contains mutations"):
        graph.query(ADD, {"n": "x"})
    with pytest.raises(og.BadRequest, match="'names' is a read"):
        graph.mutate(NAMES)
    with pytest.raises(og.NotFound, match="query file"):
        graph.query(tmp_path / "none.gq")
    (tmp_path / "q.gq").write_text(NAMES)
    assert len(graph.query(tmp_path / "q.gq")) == 2


def test_arguments_are_checked_before_anything_is_asked(new: Maker) -> None:
    graph = people(new)
    graph.branches.create("x")
    for call in (
        lambda: graph.query(5),  # type: ignore[arg-type]
        lambda: graph.query(NAMES, engine="cloud"),
        lambda: graph.mutate(ADD, {"n": "x"}, retries=-1),
        lambda: graph.mutate(ADD, {"n": "x"}, if_commit="X", retries=1),
        lambda: graph.load(b"", "replace"),
        lambda: graph.load(b"", "merge", type="Person", edge="Knows"),
        lambda: graph.load(5, "merge"),
        lambda: graph.commits.list(limit=-1),
        lambda: graph.export(io.BytesIO(), "xml"),
        lambda: graph.export(io.StringIO()),  # type: ignore[arg-type]
        lambda: graph.branches.merge("x", "main", resolve="mine"),
        lambda: graph.query(NAMES, branch="main", snapshot="main"),
    ):
        with pytest.raises(og.BadRequest):
            call()
    assert len(graph.commits.list()) == 2


def test_a_name_that_is_empty_is_not_main(new: Maker) -> None:
    graph = people(new)
    head = graph.commits.list()[0].id
    line = b'{"type":"City","data":{"name":"Rome"}}'
    for call in (
        lambda: graph.query(NAMES, branch=""),
        lambda: graph.query(NAMES, snapshot=""),
        lambda: graph.snapshot(""),
        lambda: graph.mutate(ADD, {"n": "x"}, branch=""),
        lambda: graph.load(line, "merge", branch=""),
        lambda: graph.load(line, "merge", branch="new", from_branch=""),
        lambda: graph.export(io.BytesIO(), branch=""),
        lambda: graph.branches.create("x", from_=""),
        lambda: graph.branches.merge("", "main"),
        lambda: graph.branches.merge("main", ""),
        lambda: graph.revert("main", onto=""),
        lambda: graph.restore("main~1", branch=""),
        lambda: graph.commits.list(""),
        lambda: graph.commits.get(""),
        lambda: graph.commits.changes(""),
        lambda: graph.changes.poll(""),
        lambda: graph.changes.baseline(""),
        lambda: graph.schema.on(""),
        lambda: graph.schema.apply(SCHEMA, branch=""),
    ):
        with pytest.raises((og.NotFound, og.BadRequest), match=r"''|empty"):
            call()
    assert graph.commits.list(all_branches=True)[0].id == head


# ---- writes


def test_a_mutation_is_one_commit_that_says_what_it_did(new: Maker) -> None:
    graph = people(new)
    done = graph.mutate(ADD, {"n": "Eve", "a": 3}, message="why", metadata={"ticket": "7"})
    assert (done.branch, done.query_name, done.affected_nodes, done.affected_edges) == (
        "main",
        "add",
        1,
        0,
    )
    commit = done.commit
    assert commit is not None
    assert (commit.message, dict(commit.metadata), commit.actor) == ("why", {"ticket": "7"}, None)
    assert {key: rows.inserted for key, rows in commit.counts.items()} == {"node:Person": 1}
    listed = graph.commits.list(limit=1)[0]
    assert (listed.id, listed.parents, listed.created_at) == (
        commit.id,
        commit.parents,
        commit.created_at,
    )
    assert graph.commits.get("main").id == commit.id
    nothing = graph.mutate(AGE, {"n": "nobody", "a": 1})
    assert (nothing.commit, nothing.affected_nodes, nothing.repeated) == (None, 0, False)


def test_a_broken_rule_names_the_value_and_writes_nothing(new: Maker) -> None:
    graph = people(new)
    with pytest.raises(og.ConstraintViolated) as broken:
        graph.mutate(ADD, {"n": "Eve", "a": 999})
    (violation,) = broken.value.violations
    assert (violation.rule, violation.property, violation.id) == ("range", "age", "Eve")
    with pytest.raises(og.KeyTaken) as taken:
        graph.load(b'{"type":"Person","data":{"name":"Ada"}}', "append")
    assert (taken.value.type_name, taken.value.entity_id) == ("Person", "Ada")
    assert names(graph) == ["Ada", "Bob"]


def test_a_conditional_mutation_needs_its_head(new: Maker) -> None:
    graph = people(new)
    head = graph.commits.list()[0].id
    graph.mutate(ADD, {"n": "Eve", "a": 3}, if_commit=head)
    with pytest.raises(og.PreconditionFailed) as lost:
        graph.mutate(ADD, {"n": "Fay", "a": 3}, if_commit=head)
    assert (lost.value.branch, lost.value.expected) == ("main", head)
    assert lost.value.actual == graph.commits.list()[0].id


def test_a_write_once_is_done_once(new: Maker) -> None:
    graph = people(new)
    for name in ("import 7", "ein schöner Name", "x" * 300):
        assert graph.commits.once(name) is None
        first = graph.mutate(ADD, {"n": name[:5], "a": 1}, once=name)
        again = graph.mutate(ADD, {"n": name[:5], "a": 1}, once=name)
        assert (first.repeated, again.repeated) == (False, True)
        assert first.commit is not None
        assert again.commit is not None
        assert first.commit.id == again.commit.id
        known = graph.commits.once(name)
        assert known is not None
        assert known.id == first.commit.id
    line = b'{"type":"City","data":{"name":"Rome"}}\n'
    assert [graph.load(line, "append", once="rome").repeated for _ in range(2)] == [False, True]


def test_a_load_takes_every_form_of_input(new: Maker, tmp_path: Path) -> None:
    graph = new(SCHEMA)
    rows = [{"name": "Ada", "age": 36}, {"name": "Bob", "age": None}]
    table = pa.table({"name": ["Ada", "Bob"], "age": pa.array([36, None], pa.int32())})
    lines = (
        b'{"type":"Person","data":{"name":"Ada","age":36}}\n{"type":"Person","data":{"name":"Bob"}}'
    )
    (tmp_path / "a.jsonl").write_bytes(lines)
    pq.write_table(table, tmp_path / "a.parquet")
    records = [lines, tmp_path / "a.jsonl", io.BytesIO(lines)]
    records.append({"type": "Person", "data": row} for row in rows)
    columns = [rows, table, str(tmp_path / "*.parquet"), table.to_pandas()]
    columns += [polars.from_arrow(table), iter(rows)]
    for source, options in [
        *((each, {}) for each in records),
        *((each, {"type": "Person"}) for each in columns),
    ]:
        done = graph.load(source, "overwrite", message="all", metadata={"a": "b=c"}, **options)
        assert (done.nodes, done.edges, done.total_entities) == ({"Person": 2}, {}, 2)
        assert (done.mode, done.branch, done.branch_created) == ("overwrite", "main", False)
        assert (done.commit.message, dict(done.commit.metadata)) == ("all", {"a": "b=c"})
        assert ages(graph) == {"Ada": 36, "Bob": None}


def test_modes_and_branches_of_a_load(new: Maker) -> None:
    graph = people(new)
    patched = graph.load(b'{"type":"Person","data":{"name":"Ada","age":37}}', "patch")
    assert (patched.inserted, patched.updated) == (0, 1)
    done = graph.load(
        b'{"type":"City","data":{"name":"Rome"}}', "merge", branch="import", from_branch="main"
    )
    assert (done.branch, done.base_branch, done.branch_created) == ("import", "main", True)
    with pytest.raises(og.NotFound, match=r"pass from_branch= .*to create it"):
        graph.load(b"", "merge", branch="nowhere")
    with pytest.raises(og.NotFound, match=r"pass from_branch= .*to create it"):
        graph.load([{"type": "City", "data": {"name": "Rome"}}], "merge", branch="nowhere")
    twice = b'{"type":"City","data":{"name":"A"}}\n{"type":"City","data":{"name":"A"}}\n'
    with pytest.raises(og.ConstraintViolated):
        graph.load(twice, "merge", on_duplicate="refuse")
    assert graph.load(twice, "merge").nodes == {"City": 2}
    graph.load([{"type": "City", "data": {"name": "Only"}}], "overwrite")
    renamed = pa.table({"Name": ["Zoe"]})
    graph.load(renamed, "merge", type="Person", columns={"Name": "name"})
    assert "Zoe" in names(graph)
    with pytest.raises(og.ConstraintViolated) as broken:
        graph.load(b'{"type":"Person","data":{"name":"A","age":"x"}}\n', "merge")
    assert broken.value.violations[0].line == 1


def test_a_load_says_of_its_commit_what_a_commit_can_hold(new: Maker) -> None:
    graph = people(new)
    line = b'{"type":"City","data":{"name":"Rome"}}'
    done = graph.load(line, "merge", message="why & é", metadata={"a b": "c=d", "é": ""})
    assert done.commit.message == "why & é"
    assert done.commit.metadata == {"a b": "c=d", "é": ""}
    with pytest.raises(og.BadRequest, match="a key of commit metadata is empty"):
        graph.load(line, "merge", metadata={"": "x"})
    with pytest.raises(og.LimitExceeded, match="commit_message_bytes: actual 100000"):
        graph.load(line, "merge", message="x" * 100_000)
    with pytest.raises(og.LimitExceeded, match="commit_metadata_bytes: actual 20001"):
        graph.load(line, "merge", metadata={"a": "x" * 20_000})
    assert graph.commits.list()[0].id == done.commit.id


def test_a_transaction_is_one_commit_or_none(new: Maker) -> None:
    graph = people(new)
    before = len(graph.commits.list())
    with graph.transaction(message="both") as block:
        block.mutate(ADD, {"n": "Eve", "a": 1})
        block.load([{"type": "City", "data": {"name": "Rome"}}], "merge")
        assert len(block.query(NAMES)) == 3
    assert block.outcome is not None
    assert graph.commits.list()[0].message == "both"
    with pytest.raises(og.ConstraintViolated), graph.transaction() as block:
        block.mutate(ADD, {"n": "Fay", "a": 999})
    assert names(graph) == ["Ada", "Bob", "Eve"]
    assert graph.branches.list() == ("main",)
    assert len(graph.commits.list()) > before
    with (
        pytest.raises(og.PreconditionFailed),
        graph.transaction(if_commit=graph.commits.list()[1].id),
    ):
        pass


# ---- branches, merges


def test_branches_are_made_listed_and_deleted(new: Maker) -> None:
    graph = people(new)
    assert graph.branches.create(" review/x ") == "review/x"
    graph.branches.create("below", from_="review/x")
    assert graph.branches.list() == ("below", "main", "review/x")
    for call, kind in (
        (lambda: graph.branches.create("review/x"), og.AlreadyExists),
        (lambda: graph.branches.create("a~b"), og.BadRequest),
        (lambda: graph.branches.create("y", from_="nowhere"), og.NotFound),
        (lambda: graph.branches.delete("main"), og.BadRequest),
        (lambda: graph.branches.delete("nowhere"), og.NotFound),
        (lambda: graph.branches.delete(""), og.NotFound),
        (lambda: graph.branch("nowhere"), og.NotFound),
    ):
        with pytest.raises(kind):
            call()
    handle = graph.branch("review/x")
    handle.mutate(ADD, {"n": "Eve", "a": 1})
    assert len(handle.query(NAMES)) == 3
    assert handle.snapshot().tables[og.errors.TableKey("node:Person")].row_count == 3
    assert handle.merge_into("main").kind == "fast_forward"
    graph.branches.delete("below")
    handle.delete()
    assert graph.branches.list() == ("main",)


def diverged(new: Maker) -> og.Graph:
    graph = people(new)
    graph.branches.create("other")
    graph.mutate(AGE, {"n": "Ada", "a": 40})
    graph.mutate(AGE, {"n": "Ada", "a": 50}, branch="other")
    graph.mutate(AGE, {"n": "Bob", "a": 60}, branch="other")
    graph.mutate(ADD, {"n": "Eve", "a": 1}, branch="other")
    return graph


def ages(graph: og.Graph) -> dict[str, int]:
    rows = graph.query("query q() { match { $p: Person } return { $p.name, $p.age } }").rows
    return {row["p.name"]: row["p.age"] for row in rows}


def test_a_merge_that_conflicts_shows_both_sides(new: Maker) -> None:
    graph = diverged(new)
    preview = graph.branches.merge("other", dry_run=True)
    assert preview.kind == "conflicts"
    assert len(preview.conflicts) == 1
    with pytest.raises(og.MergeConflicts) as refused:
        graph.branches.merge("other")
    (conflict,) = refused.value.conflicts
    assert conflict == preview.conflicts[0]
    assert (conflict.type_name, conflict.entity_id, conflict.kind) == (
        "Person",
        "Ada",
        "divergent_update",
    )
    sides = (conflict.base, conflict.ours, conflict.theirs)
    assert [side and side["properties"]["age"] for side in sides] == [36, 40, 50]
    assert refused.value.counts == {"divergent_update": 1}
    assert ages(graph)["Ada"] == 40


@pytest.mark.parametrize("how", ["ours", "theirs", "mapping", "call", "values"])
def test_a_merge_takes_answers(new: Maker, how: str) -> None:
    graph = diverged(new)
    resolve = {
        "ours": "ours",
        "theirs": "theirs",
        "mapping": {("Person", "Ada"): "theirs"},
        "call": lambda conflict: {"age": conflict.ours["properties"]["age"] + 1},
        "values": {("Person", "Ada"): {"age": 99}},
    }[how]
    outcome = graph.branches.merge("other", resolve=resolve, delete_source=True, message="settled")
    assert (outcome.kind, outcome.source, outcome.target) == ("merged", "other", "main")
    assert (outcome.branch_deleted, outcome.dry_run) == (True, False)
    assert outcome.commit is not None
    assert outcome.commit.message == "settled"
    assert outcome.changes.counts()[("node", "Person", "insert")] == 1
    expected = {"ours": 40, "theirs": 50, "mapping": 50, "call": 41, "values": 99}[how]
    assert ages(graph) == {"Ada": expected, "Bob": 60, "Eve": 1}
    assert graph.branches.list() == ("main",)


FLIGHTS = """
node Flight { day: Date  number: String  seats: I32?  plan: Blob?  @key(day, number) }
node Crew { badge: I64 @key  name: String? }
node Day { day: Date @key }
"""
FLIGHT = (
    '{"type":"Flight","data":{"day":"2026-03-01","number":"LH1","seats":1,"plan":"base64:aGk="}}\n'
    '{"type":"Crew","data":{"badge":8000}}\n'
    '{"type":"Day","data":{"day":"2026-03-01"}}\n'
)


def test_an_answer_names_its_entity_by_a_key_as_its_types_have_it(new: Maker) -> None:
    graph = new(FLIGHTS, FLIGHT)
    graph.branches.create("other")
    fly = 'query q($n: I32) { update Flight set { seats: $n } where number = "LH1" }'
    graph.mutate(fly, {"n": 2})
    graph.mutate(fly, {"n": 3}, branch="other")
    graph.branches.merge("other", resolve={("Flight", '["2026-03-01", "LH1"]'): "theirs"})
    assert graph.entity("node", "Flight", '["2026-03-01","LH1"]').properties["seats"] == 3


@pytest.mark.parametrize(
    ("type_name", "key"),
    [
        ("Crew", 8000),
        ("Crew", np.int64(8000)),
        ("Day", date(2026, 3, 1)),
        ("Flight", (date(2026, 3, 1), "LH1")),
        ("Flight", ["2026-03-01", "LH1"]),
    ],
    ids=str,
)
def test_an_entity_is_found_by_its_key(new: Maker, type_name: str, key: object) -> None:
    graph = new(FLIGHTS, FLIGHT)
    found = graph.entity("node", type_name, key)  # type: ignore[arg-type]
    assert found.type == type_name
    (only,) = graph.history("node", type_name, key)  # type: ignore[arg-type]
    assert only.change.id == found.id
    with pytest.raises(og.NotFound):
        graph.entity("node", "Crew", 8001)


def test_a_blob_is_found_by_a_key_of_several_values(new: Maker) -> None:
    graph = new(FLIGHTS, FLIGHT)
    key = (date(2026, 3, 1), "LH1")
    assert graph.blob("node", "Flight", key, "plan").size == 2
    graph.put_blob("node", "Flight", key, "plan", b"new")
    assert graph.blob("node", "Flight", key, "plan").size == 3


def test_a_merge_refuses_answers_that_answer_nothing(new: Maker) -> None:
    graph = diverged(new)
    for resolve in (
        {("Person", "Bob"): "ours"},
        {("Persn", "Ada"): "ours"},
        {("Person", "Ada"): {"nothing": 1}},
        {("Person", "Ada"): {"age": "x"}},
        {("Person", "Ada"): 5},
        {"Ada": "ours"},
    ):
        with pytest.raises(og.BadRequest):
            graph.branches.merge("other", resolve=resolve)
    head = graph.commits.get("other").id
    with pytest.raises(og.PreconditionFailed):
        graph.branches.merge("other", resolve="ours", if_source=head, if_target=head)
    with pytest.raises(og.MergeConflicts):
        graph.branches.merge("other", resolve=lambda conflict: None)


def test_a_preview_lists_what_would_change(new: Maker) -> None:
    graph = people(new)
    graph.branches.create("other")
    graph.mutate(ADD, {"n": "Eve", "a": 1}, branch="other")
    graph.mutate(GONE, {"n": "Bob"}, branch="other")
    preview = graph.branches.merge("other", dry_run=True)
    assert (preview.kind, preview.dry_run, preview.commit) == ("fast_forward", True, None)
    listed = {(c.kind, c.type, c.id, c.op) for c in preview.changes}
    assert {("node", "Person", "Eve", "insert"), ("node", "Person", "Bob", "delete")} <= listed
    assert preview.to_json()["outcome"] == "fast_forward"
    assert names(graph) == ["Ada", "Bob"]
    assert graph.branches.merge("main", "other").kind == "already_up_to_date"


# ---- history


def test_points_in_time_are_read(new: Maker) -> None:
    graph = people(new)
    first = graph.commits.list()[0].id
    graph.mutate(ADD, {"n": "Eve", "a": 1})
    tag = graph.tags.create("v1", "main~1")
    assert (tag.name, tag.commit_id) == ("v1", first)
    assert graph.tags.get("v1") == tag
    assert graph.tags.list() == (tag,)
    for point in (first, first[:12], "v1", "main~1"):
        assert len(graph.query(NAMES, snapshot=point)) == 2
        assert graph.snapshot(commit=point).commit_id == first
    assert [c.id for c in graph.commits.list("v1")] == [c.id for c in graph.commits.list()[1:]]
    assert graph.commits.names() == {graph.commits.get("main").id: ("main",), first: ("v1",)}
    with pytest.raises(og.UnknownPoint) as unknown:
        graph.query(NAMES, snapshot="mian~1")
    assert unknown.value.name == "mian~1"
    with pytest.raises(og.UnknownPoint, match="did you mean 'v1'"):
        graph.query(NAMES, branch="v11")
    with pytest.raises(og.UnknownPoint):
        graph.tags.get("v2")
    with pytest.raises(og.AlreadyExists):
        graph.tags.create("v1", "main")
    graph.tags.delete("v1")
    assert graph.tags.list() == ()


def test_commits_are_listed_by_page_and_branch(new: Maker) -> None:
    graph = people(new)
    graph.branches.create("b")
    for number in range(3):
        graph.mutate(ADD, {"n": f"n{number}", "a": 1}, branch="b")
    every = graph.commits.list("b")
    assert len(every) == 5
    assert graph.commits.list("b", limit=2) == every[:2]
    assert graph.commits.list("b", limit=0) == ()
    assert len(graph.commits.list(all_branches=True)) == 5
    assert graph.commits.list(actor="nobody") == ()
    assert graph.commits.list("b~1") == every[1:]
    assert graph.commits.get(every[1].id) == every[1]
    with pytest.raises(og.NotFound):
        graph.commits.list("nowhere")


def test_changes_have_both_images(new: Maker) -> None:
    graph = people(new)
    done = graph.mutate(AGE, {"n": "Ada", "a": 37})
    assert done.commit is not None
    (change,) = graph.commits.changes(done.commit.id)
    assert (change.kind, change.type, change.id, change.op) == ("node", "Person", "Ada", "update")
    assert change.before is not None
    assert change.after is not None
    assert (change.before.properties["age"], change.after.properties["age"]) == (36, 37)
    assert not change.moved
    graph.load([{"edge": "Knows", "from": "Bob", "to": "Ada"}], "merge")
    changes = graph.diff("main~2", "main")
    assert changes.between == (graph.commits.get("main~2").id, graph.commits.get("main").id)
    assert changes.counts() == {("node", "Person", "update"): 1, ("edge", "Knows", "insert"): 1}
    edge = next(iter(graph.diff("main~1", "main", kinds=["edge"])))
    assert edge.after is not None
    assert edge.after.endpoints == ("Bob", "Ada")
    page = changes.page(1)
    assert len(page.changes) == 1
    assert len(changes.page(1, page.next_page_token).changes) == 1
    assert list(graph.diff("main", "main~2", ops=["insert"])) == []
    with pytest.raises(og.NotFound, match="Nothing"):
        graph.diff("main", "main", types=["Nothing"])
    with pytest.raises(og.NoChanges) as none:
        list(graph.commits.changes(graph.commits.list()[-1].id))
    assert none.value.reason == "parentless_commit"


def test_the_feed_goes_on_from_its_cursor(new: Maker, tmp_path: Path) -> None:
    graph = people(new)
    baseline = graph.changes.baseline(types=["Person"])
    assert [record["data"]["name"] for record in baseline] == ["Ada", "Bob"]
    assert baseline.to_file(tmp_path / "all.jsonl").nodes == {"Person": 2}
    assert (tmp_path / "all.jsonl").read_bytes().count(b"\n") == 2
    assert b"resume_cursor" in b"".join(baseline.lines())
    graph.mutate(ADD, {"n": "Eve", "a": 1}, message="she")
    page = graph.changes.poll(cursor=baseline.cursor, types=["Person"])
    (block,) = page.blocks
    assert (block.cause.message, block.cause.branch, page.caught_up) == ("she", None, True)
    assert [change.id for change in block.changes] == ["Eve"]
    assert graph.changes.poll(cursor=page.cursor, types=["Person"]).blocks == ()
    first = graph.changes.poll(start="beginning", limit=1)
    assert first.next_page_token is not None
    assert graph.changes.poll(page_token=first.next_page_token, limit=100).blocks
    for wrong in ({"cursor": "x"}, {"start": "x"}, {"start": "now", "cursor": "x"}):
        with pytest.raises(og.BadRequest):
            graph.changes.poll(**wrong)  # type: ignore[arg-type]


def test_the_feed_is_followed_as_commits_come(new: Maker) -> None:
    graph = people(new)
    seen: list[str] = []
    came = threading.Semaphore(0)

    def listen() -> None:
        for page in graph.changes.follow(start="beginning", kinds=["node"]):
            for block in page.blocks:
                seen.extend(change.id for change in block.changes)
                came.release()
            if "Fay" in seen:
                return

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert came.acquire(timeout=60)
    for name in ("Eve", "Fay"):
        graph.mutate(ADD, {"n": name, "a": 1})
        assert came.acquire(timeout=60)
    listener.join(60)
    assert not listener.is_alive()
    assert [name for name in seen if name in ("Ada", "Bob", "Eve", "Fay")] == [
        "Ada",
        "Bob",
        "Eve",
        "Fay",
    ]
    with pytest.raises(og.NotFound):
        next(graph.changes.follow("nowhere"))


def test_a_commit_is_reverted_and_a_point_restored(new: Maker) -> None:
    graph = people(new)
    graph.mutate(ADD, {"n": "Eve", "a": 1})
    graph.mutate(AGE, {"n": "Ada", "a": 99})
    preview = graph.revert("main", dry_run=True)
    assert (preview.kind, preview.dry_run) == ("reverted", True)
    assert [c.id for c in preview.changes] == ["Ada"]
    undone = graph.revert("main~1", message="no Eve")
    assert (undone.kind, undone.branch, len(undone.undone)) == ("reverted", "main", 1)
    assert undone.commit is not None
    assert undone.changes.counts() == {("node", "Person", "delete"): 1}
    assert graph.commits.list()[0].message == "no Eve"
    restored = graph.restore("main~3", types=["Person"])
    assert restored.kind == "restored"
    assert ages(graph) == {"Ada": 36, "Bob": 25}
    assert graph.restore("main").kind == "nothing_to_restore"
    with pytest.raises(og.NotRevertible):
        graph.revert(graph.commits.list()[-1].id)
    graph.mutate(AGE, {"n": "Bob", "a": 1})
    graph.mutate(AGE, {"n": "Bob", "a": 2})
    with pytest.raises(og.MergeConflicts) as open_:
        graph.revert("main~1")
    assert open_.value.of == "revert"
    assert graph.revert("main~1", resolve="theirs").commit is not None
    assert ages(graph)["Bob"] == 25


# ---- schema, export, blobs


def test_a_schema_is_read_planned_and_applied(new: Maker) -> None:
    graph = people(new)
    assert graph.schema.text == SCHEMA
    assert set(graph.schema.catalog.nodes) == {"Person", "City"}
    wider = SCHEMA.replace("node City {", "node City { size: I64?\n")
    plan = graph.schema.plan(wider)
    assert plan.supported
    assert [str(step) for step in plan.steps] == ["add property 'City.size' (I64?) on node 'City'"]
    with pytest.raises(og.BadRequest, match=r"the backfill of City.size does not give I64"):
        graph.schema.plan(wider, backfill={"City.size": "nonsense((("})
    before = graph.commits.list()[0].id
    done = graph.schema.apply(wider, message="size")
    assert (done.applied, done.steps) == (True, plan.steps)
    assert done.commit is not None
    assert done.commit.message == "size"
    assert done.graph_manifest_version == done.commit.manifest_version
    assert graph.schema.at(before).text == SCHEMA
    assert graph.schema.on("main").text == wider
    assert not graph.schema.apply(wider).applied
    wider = wider.replace("size: I64?", "size: I64?\nsign: String?")
    graph.schema.apply(wider, backfill={"City.sign": "upper(name)"})
    read = "query q() { match { $c: City } return { $c.sign } }"
    assert graph.query(read).rows == [{"c.sign": "OSLO"}]
    graph.branches.create("b")
    graph.schema.apply(
        wider.replace("size: I64?", "size: I64?\nnote: String?"),
        branch="b",
    )
    assert "note" in graph.branch("b").schema.text
    assert "note" not in graph.schema.text
    with pytest.raises(og.SchemaHeld):
        graph.schema.apply("node Person { name: String @key }", allow_data_loss=True)
    with pytest.raises(og.ParseError):
        graph.schema.apply("node {")
    with pytest.raises(og.MigrationUnsupported):
        graph.schema.apply(wider.replace("score: F64?", "score: String?"))


def test_an_export_loads_again(new: Maker, tmp_path: Path) -> None:
    graph = people(new)
    done = graph.export(tmp_path / "all.jsonl")
    assert done.nodes == {"City": 1, "Person": 2}
    assert done.edges == {"Knows": 1, "Lives": 0}
    assert done.commit_id == graph.commits.list()[0].id
    stream = io.BytesIO()
    graph.export(stream)
    assert stream.getvalue() == (tmp_path / "all.jsonl").read_bytes()
    assert b"".join(graph.export_lines()) == stream.getvalue()
    other = new(SCHEMA)
    assert other.load(tmp_path / "all.jsonl", "merge").total_entities == 4
    graph.export(f"{tmp_path}/folder/")
    assert sorted(p.name for p in (tmp_path / "folder").iterdir()) == [
        "edge-Knows.jsonl",
        "edge-Lives.jsonl",
        "node-City.jsonl",
        "node-Person.jsonl",
    ]
    assert (tmp_path / "folder" / "node-Person.jsonl").read_bytes().count(b"\n") == 2
    with pytest.raises(og.AlreadyExists):
        graph.export(f"{tmp_path}/folder/")
    graph.mutate(ADD, {"n": "Eve", "a": 1})
    old = io.BytesIO()
    assert graph.export(old, types=["Person"], snapshot="main~1").nodes == {"Person": 2}
    with pytest.raises(og.BadRequest, match="unknown export type 'X'"):
        graph.export(io.BytesIO(), types=["X"])
    with pytest.raises(og.NotFound):
        graph.export(io.BytesIO(), branch="nowhere")


def test_lines_of_an_export_are_those_of_the_moment_it_was_asked_for(new: Maker) -> None:
    graph = people(new)
    lines = graph.export_lines(types=["City"])
    graph.load(b'{"type":"City","data":{"name":"Rome"}}', "merge")
    assert b"".join(lines).count(b"\n") == 1
    with pytest.raises(og.BadRequest, match="unknown export type 'X'"):
        graph.export_lines(types=["X"])
    with pytest.raises(og.NotFound):
        graph.export_lines(branch="nowhere")
    for _ in range(20):
        graph.export_lines()  # nobody reads it, and no connection is held for it
    assert names(graph) == ["Ada", "Bob"]


def test_a_blob_is_read_in_parts(new: Maker) -> None:
    graph = people(new)
    cell = graph.blob("node", "Person", "Ada", "photo")
    assert (cell.kind, cell.size, cell.uri) == ("managed", 11, None)
    assert cell.commit_id == graph.commits.list()[0].id
    assert cell.etag
    assert (cell.read(), cell.read(6), cell.read(0, 5), cell.read(11)) == (
        b"hello world",
        b"world",
        b"hello",
        b"",
    )
    graph.mutate(GONE, {"n": "Ada"})
    assert cell.read(0, 1) == b"h"
    for call, kind in (
        (lambda: graph.blob("node", "Person", "Bob", "photo"), og.NotFound),
        (lambda: graph.blob("node", "Person", "Bob", "age"), og.BadRequest),
        (lambda: graph.blob("node", "Persn", "Bob", "photo"), og.BadRequest),
        (lambda: cell.read(12), og.BadRequest),
        (lambda: cell.read(0, 0), og.BadRequest),
    ):
        with pytest.raises(kind):
            call()


def test_an_entity_is_looked_at_through_time(new: Maker) -> None:
    graph = people(new)
    graph.mutate(AGE, {"n": "Ada", "a": 37}, message="birthday")
    view = graph.entity("node", "Person", "Ada")
    assert (view.type, view.id, view.image.properties["age"]) == ("Person", "Ada", 37)
    assert [(e.type, e.direction, e.count) for e in view.edges] == [("Knows", "out", 1)]
    assert view.commit_id == graph.commits.list()[0].id
    assert graph.entity("node", "Person", "Ada", snapshot="main~1").image.properties["age"] == 36
    revisions = list(graph.history("node", "Person", "Ada"))
    assert [(r.change.op, r.cause.message) for r in revisions] == [
        ("update", "birthday"),
        ("insert", None),
    ]
    older = graph.history("node", "Person", "Ada", before=revisions[0].cause.id)
    assert [r.change.op for r in older] == ["insert"]
    nobody = graph.history("node", "Person", "nobody")
    assert (list(nobody), nobody.unreadable) == ([], None)
    with pytest.raises(og.NotFound):
        graph.entity("node", "Person", "nobody")
    with pytest.raises(og.BadRequest, match="unknown node type"):
        graph.history("node", "Persn", "Ada")
    states = graph.indexes()
    assert {state.state for state in states} <= {"current", "behind", "missing", "pending"}
    assert states == graph.indexes(snapshot="main")


def test_a_blob_is_put_if_it_is_the_one_that_was_seen(new: Maker) -> None:
    graph = people(new)
    tag = graph.blob("node", "Person", "Ada", "photo").etag
    assert tag is not None
    done = graph.put_blob("node", "Person", "Ada", "photo", b"new", if_match=[tag], message="m")
    assert done.commit is not None
    assert done.commit.message == "m"
    assert graph.blob("node", "Person", "Ada", "photo").read() == b"new"
    with pytest.raises(og.PreconditionFailed) as lost:
        graph.put_blob("node", "Person", "Ada", "photo", b"x", if_match=[tag])
    assert (lost.value.branch, lost.value.expected) == ("main", tag)
    assert lost.value.actual == graph.blob("node", "Person", "Ada", "photo").etag
    with pytest.raises(og.NotFound):
        graph.put_blob("node", "Person", "nobody", "photo", b"x")


def test_a_merge_once_and_a_transaction_once_are_done_once(new: Maker) -> None:
    graph = people(new)
    graph.branches.create("b")
    graph.mutate(ADD, {"n": "Eve", "a": 1}, branch="b")
    first = graph.branches.merge("b", once="merge b")
    again = graph.branches.merge("b", once="merge b")
    assert (first.repeated, again.repeated) == (False, True)
    assert first.commit is not None
    assert again.commit is not None
    assert first.commit.id == again.commit.id
    for _ in range(2):
        with graph.transaction(once="one block") as block:
            block.mutate(ADD, {"n": "Fay", "a": 1})
    assert names(graph) == ["Ada", "Bob", "Eve", "Fay"]
    assert graph.branches.list() == ("b", "main")


def test_a_graph_that_was_closed_answers_nothing(new: Maker) -> None:
    graph = people(new)
    with graph as same:
        assert same is graph
        graph.refresh()
    graph.close()
    for call in (lambda: graph.query(NAMES), lambda: graph.branches.list(), graph.snapshot):
        verb = "connect" if graph.uri.startswith("http") else "open"
        with pytest.raises(og.GraphClosed, match=rf"again: omnigraph\.{verb}\("):
            call()
