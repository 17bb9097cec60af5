"""Schema changes that set rules or ask for values: the data is looked at first."""

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.exec.schema import conform
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
        ("x: I32?", {"Person.y": "1"}, og.BadRequest, "does not add"),
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
