"""Schema changes that set rules or ask for values: the data is looked at first."""

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.exec.schema import conform
from omnigraph.exec.schema.backfill import Filling
from omnigraph.graph import Graph
from omnigraph.types import TableKey
from tests.exec.evolving import SCHEMA, ask, data_files, dump, evolving, head, of_type


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return evolving(tmp_path / "g")


def kinds(steps: Any) -> list[str]:
    return [step.to_json()["kind"] for step in steps]


def with_(*lines: str, drop: str = "") -> str:
    """The schema with more in the body of Person."""
    text = SCHEMA.replace(drop, "")
    return text.replace("node Person {", "node Person {\n" + "\n".join(lines))


# Constraints that come


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        ("@range(age, 0..150)", 'insert Person { name: "D", age: 151 }'),
        ('@check(nick, "^[A-Z]$")', 'insert Person { name: "D", nick: "ab" }'),
        ("@unique(age)", 'insert Person { name: "D", age: 7 }'),
        ("@unique(age, mood)", 'insert Person { name: "D", age: 36, mood: "calm" }'),
    ],
)
def test_a_rule_that_the_data_keeps_is_set(graph: Graph, rule: str, bad: str) -> None:
    files = data_files(graph, "node:Person")
    done = graph.schema.apply(with_(rule))
    assert kinds(done.steps) == ["add_constraint"]
    assert data_files(graph, "node:Person") == files
    with pytest.raises(og.ConstraintViolated):
        graph.mutate(f"query m() {{ {bad} }}")
    graph.mutate('query m() { insert Person { name: "E", age: 9, nick: "E" } }')


@pytest.mark.parametrize(
    ("rule", "ids"),
    [
        ("@range(age, 8..)", {"Bob"}),
        ('@check(name, "^A")', {"Bob", "Cy"}),
        ("@unique(nick)", {"Cy"}),
    ],
)
def test_a_rule_that_the_data_breaks_is_refused_with_the_rows(
    graph: Graph, rule: str, ids: set[str]
) -> None:
    graph.mutate('query m() { update Person set { nick: "A" } where name = "Cy" }')
    before, at = dump(graph), head(graph)
    plan = graph.schema.plan(with_(rule))
    assert plan.supported, "whether the data keeps it is seen when it is applied"
    with pytest.raises(og.ConstraintViolated) as refused:
        graph.schema.apply(with_(rule))
    assert {violation.id for violation in refused.value.violations} == ids
    assert refused.value.total == len(ids)
    assert (dump(graph), head(graph), graph.schema.text) == (before, at, SCHEMA)


def test_every_broken_rule_is_told_at_once(graph: Graph) -> None:
    text = with_("@range(age, 8..30)", '@check(name, "^Z")').replace(
        "edge LivesIn: Person -> City", "edge LivesIn: Person -> City @card(2..)"
    )
    with pytest.raises(og.ConstraintViolated) as refused:
        graph.schema.apply(text)
    found = [(v.rule, v.id) for v in refused.value.violations]
    assert sorted(found) == [
        ("cardinality", "Ada"),
        ("check", "Ada"),
        ("check", "Bob"),
        ("check", "Cy"),
        ("range", "Ada"),
        ("range", "Bob"),
    ]


def test_cardinality_changes_when_the_edges_fit(graph: Graph) -> None:
    text = SCHEMA.replace("-> Person {", "-> Person @card(0..1) {")
    done = graph.schema.apply(text)
    assert [step.to_json() for step in done.steps] == [
        {
            "kind": "update_cardinality",
            "type_kind": "edge",
            "type_name": "Knows",
            "from": "0..",
            "to": "0..1",
        }
    ]
    with pytest.raises(og.ConstraintViolated, match="max 1"):
        graph.mutate('query m() { insert Knows { from: "Ada", to: "Cy" } }')
    graph.schema.apply(SCHEMA)
    graph.mutate('query m() { insert Knows { from: "Ada", to: "Cy" } }')


def test_rules_follow_a_rename_and_are_not_asked_again(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.schema.apply(with_("@range(age, 0..99)", "@unique(age)", '@check(nick, "A")'))
    looked: list[object] = []
    monkeypatch.setattr(conform._RulesCheck, "violations", lambda *_: looked.append(_))
    text = with_("@range(years, 0..99)", "@unique(years)", '@check(nick, "A")')
    text = text.replace("age: I32?", 'years: I32? @rename_from("age")')
    done = graph.schema.apply(
        text.replace("node Person {", 'node Human @rename_from("Person") {')
        .replace("Person ->", "Human ->")
        .replace("-> Person", "-> Human")
    )
    assert kinds(done.steps) == ["rename_type", "rename_property"]
    assert looked == []


def test_a_large_table_is_looked_at_in_buckets(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = [{"type": "Person", "data": {"name": f"p{i}", "age": i}} for i in range(500)]
    graph.load([*people, {"type": "Person", "data": {"name": "twin", "age": 250}}], "append")
    monkeypatch.setattr(conform, "bucket_count", lambda _: 7)
    with pytest.raises(og.ConstraintViolated) as refused:
        graph.schema.apply(with_("@unique(age)"))
    assert {v.value for v in refused.value.violations} == {"7", "36", "250"}


# Constraints that go


def test_rules_that_go_are_not_asked_any_more(graph: Graph) -> None:
    graph.schema.apply(with_("@range(age, 0..99)", "@unique(age)", '@check(nick, "A")'))
    done = graph.schema.apply(SCHEMA)
    assert kinds(done.steps) == ["drop_constraint"] * 3
    graph.mutate('query m() { insert Person { name: "D", age: 7, nick: "x" } }')
    graph.mutate('query m() { insert Person { name: "E", age: 700 } }')


def test_a_property_goes_with_its_rules(graph: Graph) -> None:
    graph.schema.apply(with_("@range(age, 0..99)", "@unique(age)", "@index(age)"))
    done = graph.schema.apply(SCHEMA.replace("  age: I32?\n", ""))
    assert kinds(done.steps) == ["drop_property", *["drop_constraint"] * 3]
    assert "age" not in of_type(dump(graph), "Person")["Ada"]


def test_an_index_that_goes_is_removed(graph: Graph) -> None:
    def indexed() -> set[str]:
        reader = graph._store.reader(graph.snapshot(), TableKey("node:Person"))
        return {index.column for index in reader.indexes()}

    graph.schema.apply(with_("@index(age, nick)"))
    assert indexed() == {"age", "nick"}
    graph.schema.apply(with_("@index(nick)"))
    assert indexed() == {"nick"}
    graph.schema.apply(SCHEMA.replace("nick: String?", 'nock: String? @rename_from("nick")'))
    assert indexed() == set()
    assert ask(graph, '$p: Person { nock: "A" }', "$p.name") == ["Ada"]


def test_a_key_neither_comes_nor_goes(graph: Graph) -> None:
    for text in (SCHEMA.replace("name: String @key  size", "name: String  size"),):
        with pytest.raises(og.MigrationUnsupported, match="@key"):
            graph.schema.apply(text)


# Values for what comes


@pytest.mark.parametrize(
    ("declared", "expression", "expected"),
    [
        ('x: String @backfill("it\'s")', None, ["it's"] * 3),
        ("x: Bool @backfill(true)", None, [True] * 3),
        ("x: U32 @backfill(7)", None, [7] * 3),
        ("x: F32 @backfill(0.5)", None, [0.5] * 3),
        ("x: F64? @backfill(2)", None, [2.0] * 3),
        ('x: Date @backfill("1970-01-03")', None, [2] * 3),
        ('x: DateTime @backfill("1970-01-01T00:00:01Z")', None, [1000] * 3),
        ("x: enum(a, b) @backfill(b)", None, ["b"] * 3),
        ("x: String", "name || '@' || coalesce(age, 0)", ["Ada@36", "Bob@7", "Cy@0"]),
        ("x: I64?", "age * 2", [72, 14, None]),
        ("x: [I32]", "make_array(1, coalesce(age, 0))", [[1, 36], [1, 7], [1, 0]]),
        (
            "x: Vector(2)",
            "make_array(0.5, coalesce(age, 0))",
            [[0.5, 36.0], [0.5, 7.0], [0.5, 0.0]],
        ),
        ("x: String", "id", ["Ada", "Bob", "Cy"]),
    ],
)
def test_rows_that_are_there_get_a_value(
    graph: Graph, declared: str, expression: str | None, expected: list[Any]
) -> None:
    before, at = dump(graph), head(graph)
    files = data_files(graph, "node:Person")
    given = None if expression is None else {"Person.x": expression}
    done = graph.schema.apply(with_(declared), backfill=given)
    assert kinds(done.steps) == ["add_property"]
    assert "backfill" in done.steps[0].to_json()
    people = of_type(dump(graph), "Person")
    assert [people[name]["x"] for name in ("Ada", "Bob", "Cy")] == expected
    assert {name: {**row, "x": 0} for name, row in people.items()} == {
        name: {**row, "x": 0} for name, row in of_type(before, "Person").items()
    }
    assert data_files(graph, "node:Person") > files, "rows were written again"
    assert dump(graph, at) == before
    assert done.commit is not None
    changes = list(graph.commits.changes(done.commit.id))
    assert len(changes) == sum(value is not None for value in expected)
    assert {change.op for change in changes} == {"update"}
    assert not graph.schema.apply(with_(declared)).applied, "a hint may stay"


def test_a_backfill_uses_the_names_after_the_change(graph: Graph) -> None:
    text = SCHEMA.replace(
        "age: I32?", 'years: I32? @rename_from("age")  old: Bool  note: String?  label: String'
    ).replace("  nick: String?\n", "")
    given = {"Person.old": "coalesce(years, 0) > 30", "Person.label": "name || '.'"}
    graph.schema.apply(text, backfill=given)
    assert ask(graph, "$p: Person  $p.old = true", "$p.label") == ["Ada."]
    store = graph._store
    names = store.reader(graph.snapshot(), TableKey("node:Person")).schema.names
    ordered = sorted(graph.schema.catalog.nodes["Person"].properties, key=lambda prop: prop.id)
    assert names == ["id", *(prop.name for prop in ordered)]
    graph.load([{"type": "Person", "data": {"name": "D", "old": True, "label": "d"}}], "append")
    graph.mutate('query m() { insert Person { name: "E", old: false, label: "e" } }')
    with pytest.raises(og.OmnigraphError):
        graph.mutate('query m() { insert Person { name: "F" } }')
    assert len(of_type(dump(og.open(graph.uri)), "Person")) == 5


def test_rows_that_break_a_new_rule_are_named_in_the_message(graph: Graph) -> None:
    with pytest.raises(og.ConstraintViolated) as refused:
        graph.schema.apply(with_("x: I32"), backfill={"Person.x": "nullif(1, 1)"})
    said = [f"Person.x is non-nullable and has no value (id '{id}')" for id in ("Ada", "Bob", "Cy")]
    assert str(refused.value).split("; ")[:3] == said


def test_an_edge_is_filled_from_its_ends(graph: Graph) -> None:
    text = SCHEMA.replace("{ since: Date? }", "{ since: Date?  pair: String }")
    graph.schema.apply(text, backfill={"Knows.pair": "src || '>' || dst"})
    assert {row["pair"] for row in of_type(dump(graph), "Knows").values()} == {"Ada>Bob", "Bob>Cy"}


def test_an_empty_table_needs_no_values_but_a_sound_expression(graph: Graph) -> None:
    graph.schema.apply(SCHEMA + "node Team { name: String @key }")
    text = SCHEMA + "node Team { name: String @key  n: I32 }"
    with pytest.raises(og.BadRequest, match="nope"):
        graph.schema.apply(text, backfill={"Team.n": "nope"})
    graph.schema.apply(text, backfill={"Team.n": "1"})
    graph.mutate('query m() { insert Team { name: "T", n: 2 } }')
    assert of_type(dump(graph), "Team") == {"T": {"name": "T", "n": 2}}


@pytest.mark.parametrize("expression", ["nonsense(((", "age + 1", "random()"])
def test_a_plan_refuses_the_backfill_that_an_apply_refuses(graph: Graph, expression: str) -> None:
    text = SCHEMA.replace("age: I32?", "x: I32")  # age is dropped
    given = {"Person.x": expression}
    with pytest.raises(og.BadRequest) as applied:
        graph.schema.apply(text, backfill=given)
    with pytest.raises(og.BadRequest) as planned:
        graph.schema.plan(text, backfill=given)
    assert str(planned.value) == str(applied.value)
    assert "the backfill of Person.x does not give I32" in str(planned.value)
    assert graph.schema.plan(text, backfill={"Person.x": "length(name)"}).supported


def test_a_property_that_becomes_required_is_told_the_way_there(graph: Graph) -> None:
    with pytest.raises(og.MigrationUnsupported) as refused:
        graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32"))
    assert "the backfill coalesce(age, …), then drop this one" in str(refused.value)
    both = SCHEMA.replace("age: I32?", "age: I32?  years: I32")
    graph.schema.apply(both, backfill={"Person.years": "coalesce(age, 0)"})
    graph.schema.apply(SCHEMA.replace("age: I32?", "years: I32"))
    assert all(isinstance(row["years"], int) for row in of_type(dump(graph), "Person").values())


def test_an_interface_brings_a_required_property_with_its_value(tmp_path: Path) -> None:
    text = "interface Named { name: String @key } node A implements Named {}"
    graph = og.init(tmp_path / "g", text)
    graph.load([{"type": "A", "data": {"name": "x"}}], "append")
    graph.schema.apply(text.replace("@key }", "@key  rank: I32 @backfill(3) }"))
    assert of_type(dump(graph), "A") == {"x": {"name": "x", "rank": 3}}


@pytest.mark.parametrize(
    ("declared", "given", "error", "message"),
    [
        ("x: String", {}, og.MigrationUnsupported, r"^\[OG-MF-103\]"),
        ("x: I32", {"Person.x": "name"}, og.BadRequest, "does not give I32: name"),
        ("x: I32", {"Person.x": "name +"}, og.BadRequest, "does not give I32"),
        ("x: I32", {"Person.x": "age"}, og.ConstraintViolated, "x is non-nullable"),
        ("x: enum(a)", {"Person.x": "name"}, og.ConstraintViolated, "invalid enum value 'Ada'"),
        ("x: I32 @unique", {"Person.x": "1"}, og.ConstraintViolated, "@unique violation"),
        ("x: I32 @range(x, 5..)", {"Person.x": "1"}, og.ConstraintViolated, "min 5"),
        ("x: I32?", {"Person.age": "1"}, og.BadRequest, "does not add; name an added"),
        ("area: I32", {"Person.aera": "1"}, og.BadRequest, "did you mean 'Person.area'"),
        ("x: I32 @backfill(true)", {}, og.ParseError, "one value of type I32"),
        ("x: enum(a) @backfill(b)", {}, og.ParseError, "one value of type"),
        ("x: [I32] @backfill(1)", {}, og.ParseError, "not supported on"),
    ],
)
def test_a_backfill_that_does_not_fit_changes_nothing(
    graph: Graph, declared: str, given: dict[str, str], error: type[Exception], message: str
) -> None:
    before, at = dump(graph), head(graph)
    with pytest.raises(error, match=message):
        graph.schema.apply(with_(declared), backfill=given)
    assert (dump(graph), head(graph), graph.schema.text) == (before, at, SCHEMA)


@pytest.mark.parametrize(
    ("declared", "expression", "reason"),
    [
        ("x: I32?", "2.5", "must be an integer, not 2.5"),
        ("x: I32?", "cast(2.5 as decimal(4, 2))", "must be an integer"),
        ("x: I32?", "3000000000", "must lie between"),
        ("x: U32?", "-1", "must lie between"),
        ("x: F64?", "sqrt(-1.0)", "must be a finite number"),
        ("x: F64?", "1.0 / 0.0", "must be a finite number"),
        ("x: F32?", "1e39", "must be a finite number"),
        ("x: [F64]?", "make_array(0.5, -1.0 / 0.0)", "must be a finite number"),
        ("x: Vector(2)?", "make_array(0.5, sqrt(-1.0))", "must be a finite number"),
        ("x: Vector(2)?", "make_array(0.5)", "needs 2 numbers, not 1"),
        ("x: String?", "age", "must be a string, not an integer"),
        ("x: Bool?", "1", "must be a boolean"),
        ("x: Date?", "3000000", "outside the years 1 to 9999"),
        ("x: Date?", "'2024-02-30'", "is not a date"),
        ("x: Date?", "arrow_cast(3000000, 'Date32')", "outside the years 1 to 9999"),
        ("x: DateTime?", "'9999-12-31T23:59:59-14:00'", "outside the years 1 to 9999"),
        ("x: DateTime?", "253402300800000", "outside the years 1 to 9999"),
        (
            "x: DateTime?",
            "arrow_cast(253402300800, 'Timestamp(Second, None)')",
            "outside the years 1 to 9999",
        ),
        ("x: [Date]?", "make_array(3000000)", "outside the years 1 to 9999"),
    ],
)
def test_a_backfill_is_held_to_the_rules_of_a_value(
    graph: Graph, declared: str, expression: str, reason: str
) -> None:
    before, at = dump(graph), head(graph)
    with pytest.raises(og.BadRequest) as refused:
        graph.schema.apply(with_(declared), backfill={"Person.x": expression})
    assert "the backfill of Person.x does not give" in str(refused.value)
    assert "'Ada'" in str(refused.value), "the row is named"
    assert reason in str(refused.value)
    assert (dump(graph), head(graph), graph.schema.text) == (before, at, SCHEMA)


def test_a_backfill_may_give_what_a_load_may_bring(graph: Graph) -> None:
    declared = "a: I32  b: F64  c: DateTime  d: Date  e: [Date]  f: I64  g: F64"
    given = {
        "Person.a": "2.0",
        "Person.b": "cast(2.5 as decimal(4, 2))",
        "Person.c": "to_timestamp('2024-01-31T10:00:00')",
        "Person.d": "arrow_cast(19000, 'Date32')",
        "Person.e": "make_array('2024-01-31')",
        "Person.f": "cast(7 as decimal(4, 0))",
        "Person.g": "-0.0",
    }
    graph.schema.apply(with_(declared), backfill=given)
    ada = of_type(dump(graph), "Person")["Ada"]
    assert [ada[name] for name in "abcdef"] == [2, 2.5, 1_706_695_200_000, 19_000, [19_753], 7]
    assert str(ada["g"]) == "0.0"


@pytest.mark.parametrize("spelled", ["now()", "NOW( )", "current_timestamp"])
def test_now_is_one_moment_for_every_row_of_every_batch_of_a_backfill(
    graph: Graph, spelled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Filling.values

    def one_by_one(self: Filling, batch: pa.RecordBatch) -> pa.RecordBatch:
        parts = [whole(self, batch.slice(row, 1)) for row in range(batch.num_rows)]
        return pa.concat_batches(parts) if parts else whole(self, batch)

    monkeypatch.setattr(Filling, "values", one_by_one)
    text = SCHEMA.replace("{ since: Date? }", "{ since: Date?  at: DateTime }")
    declared = "  at: DateTime  later: DateTime?  said: String?  born: Date\n"
    text = text.replace("  nick: String?\n", f"  nick: String?\n{declared}")
    given = {
        "Person.at": spelled,
        "Person.later": f"{spelled} + interval '1 day'",
        "Person.said": f"'{spelled}'",
        "Person.born": "current_date",
        "Knows.at": spelled,
    }
    first = time.time_ns() // 1_000_000
    graph.schema.apply(text, backfill=given)
    people, friends = (of_type(dump(graph), name).values() for name in ("Person", "Knows"))
    moments = {row["at"] for row in (*people, *friends)}
    (moment,) = moments
    assert first <= moment <= time.time_ns() // 1_000_000
    assert {row["later"] for row in people} == {moment + 86_400_000}
    assert {row["said"] for row in people} == {spelled}
    assert {row["born"] for row in people} == {moment // 86_400_000}


@pytest.mark.parametrize("expression", ["random()", "UUID()", "1 + random( )"])
def test_a_backfill_that_differs_each_time_is_refused(graph: Graph, expression: str) -> None:
    with pytest.raises(og.BadRequest, match="another value each time"):
        graph.schema.apply(with_("x: String?"), backfill={"Person.x": expression})


# Drops that lose data


def files_with(root: str, text: bytes) -> list[Path]:
    return [p for p in Path(root).rglob("*") if p.is_file() and text in p.read_bytes()]


def test_hard_drops_are_not_reachable_and_leave_no_bytes(graph: Graph) -> None:
    graph.mutate('query m() { update Person set { nick: "SECRET-NICK" } where name = "Ada" }')
    graph.mutate('query m() { insert City { name: "SECRET-CITY" } }')
    old = og.open(graph.uri, read_only=True)
    at, people = head(graph), of_type(dump(graph), "Person")
    assert ask(graph, "$p: Person", "$p.nick", at) == [None, None, "SECRET-NICK"]
    assert files_with(graph.uri, b"SECRET-")
    text = (
        SCHEMA.replace("  nick: String?\n", "")
        .replace("node City { name: String @key  size: I64? }", "")
        .replace("edge LivesIn: Person -> City", "")
    )
    done = graph.schema.apply(text, allow_data_loss=True)
    assert {step.to_json()["mode"] for step in done.steps} == {"hard"}
    assert files_with(graph.uri, b"SECRET-") == []
    for row in people.values():
        del row["nick"]
    for each in (graph, old, og.open(graph.uri)):
        assert of_type(dump(each), "Person") == people
        for match, returned in (("$p: Person", "$p.nick"), ("$c: City", "$c.name")):
            with pytest.raises(og.Reclaimed):
                ask(each, match, returned, at)
    graph.mutate('query m() { insert Person { name: "D" } }')
    assert ask(graph, "$a: Person  $a knows $b", "$b.name") == ["Bob", "Cy"]


def test_a_soft_change_with_data_loss_allowed_reclaims_nothing(graph: Graph) -> None:
    before, at = dump(graph), head(graph)
    graph.schema.apply(with_("x: I32?"), allow_data_loss=True)
    assert dump(graph, at) == before
