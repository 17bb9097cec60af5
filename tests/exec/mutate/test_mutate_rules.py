"""Every rule on insert, on update, against committed rows and across versions of them."""

from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.protocol.intent import WriterKind
from tests.exec.town import CITY, KNOWS, LIVES, PERSON, WORKS_AT, do, everything, pairs, rows

OSLO, ROME, BONN = '["NO","Oslo"]', '["IT","Rome"]', '["DE","Bonn"]'


@pytest.fixture
def town(people: Graph) -> Graph:
    do(
        people,
        """
        insert Person { name: "Ada", email: "ada@x", first: "Ada", last: "L", age: 36 }
        insert Person { name: "Bob", email: "bob@x", first: "Bob", last: "L" }
        insert Person { name: "Cid" }
        insert Company { name: "Acme" }
        insert Company { name: "Bolt" }
        insert City { country: "NO", name: "Oslo" }
        insert City { country: "IT", name: "Rome" }
        insert City { country: "DE", name: "Bonn" }
        """,
    )
    return people


def refused(graph: Graph, body: str, **params: Any) -> list[str]:
    """The texts of a refusal, after which nothing has changed."""
    before, commits = everything(graph), graph.commits.list()
    with pytest.raises(og.ConstraintViolated) as caught:
        do(graph, body, **params)
    assert (everything(graph), graph.commits.list()) == (before, commits)
    assert all(violation.type_name for violation in caught.value.violations)
    return [violation.text for violation in caught.value.violations]


# ---- rows


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        ("age: $v", "@range violation on Person.age: value 200 > max 150"),
        ("score: $v", "@range violation on Person.score: value 200.0 > max 1.5"),
    ],
)
@pytest.mark.parametrize(
    "statement",
    [
        'insert Person {{ name: "New", {} }}',
        'insert Person {{ name: "Ada", {} }}',
        'update Person set {{ {} }} where name = "Ada"',
    ],
)
def test_range(town: Graph, statement: str, sets: str, text: str) -> None:
    assert refused(town, statement.format(sets), v=200) == [text]


def test_range_below(town: Graph) -> None:
    assert refused(town, 'update Person set { age: $v } where name = "Ada"', v=-1) == [
        "@range violation on Person.age: value -1 < min 0"
    ]
    do(town, 'update Person set { age: 0 } where name = "Ada"')
    do(town, 'update Person set { age: 150 } where name = "Ada"')


@pytest.mark.parametrize(
    "statement",
    [
        'insert Person { name: "New", code: "x1" }',
        'update Person set { code: "x1" } where id = "Ada"',
    ],
)
def test_check(town: Graph, statement: str) -> None:
    assert refused(town, statement) == [
        "@check violation on Person.code: value 'x1' does not match pattern '^[A-Z]+$'"
    ]
    do(town, statement.replace("x1", "OK"))


def test_enum_on_update(town: Graph) -> None:
    assert refused(town, 'update Person set { mood: $m } where name = "Ada"', m="sad") == [
        "invalid enum value 'sad' for Person.mood (expected: calm, cross)"
    ]


def test_a_required_property_cannot_be_null(town: Graph) -> None:
    (text,) = refused(town, "insert Note { text: $t }", t=None)
    assert "non-nullable" in text
    do(town, 'insert Note { text: "x" }')
    (text,) = refused(
        town, "update Note set { text: $t } where text = 'x'".replace("'", '"'), t=None
    )
    assert text == "Note.text is non-nullable and has no value"


def test_an_end_cannot_be_null(town: Graph) -> None:
    assert refused(town, 'insert Knows { from: "Ada", to: $t }', t=None) == [
        "Knows.to is non-nullable and has no value"
    ]


def test_a_key_cannot_be_null(town: Graph) -> None:
    assert refused(town, "insert Company { name: $t }", t=None) == [
        "insert @key property 'name' cannot contain null"
    ]
    assert refused(town, 'insert City { country: "NO", name: $t }', t=None) == [
        "insert @key property 'name' cannot contain null"
    ]


def test_an_embedded_vector_is_not_computed_so_it_must_be_given(tmp_path: object) -> None:
    schema = 'node Doc {\n  t: String @key\n  v: Vector(2) @embed("t")\n}'
    graph = og.init(f"{tmp_path}/g", schema=schema)
    with pytest.raises(og.ConstraintViolated, match=r"Doc\.v is non-nullable"):
        do(graph, 'insert Doc { t: "x" }')
    do(graph, 'insert Doc { t: "x", v: [1, 2] }')


def test_all_that_is_wrong_is_told_at_once(town: Graph) -> None:
    body = " ".join(f'insert Person {{ name: "n{n}", age: 200, code: "x" }}' for n in range(20))
    with pytest.raises(og.ConstraintViolated) as caught:
        do(town, body)
    assert (caught.value.total, len(caught.value.violations)) == (40, 10)
    assert str(caught.value) == (
        "20 rows: @range violation on Person.age: value 200 > max 150; first: id 'n0'; "
        "20 rows: @check violation on Person.code: value 'x' does not match pattern '^[A-Z]+$'; "
        "first: id 'n0'; correct the data and write again"
    )


def test_what_an_update_does_not_touch_is_still_checked_as_part_of_the_row(town: Graph) -> None:
    do(town, 'update Person set { age: 40 } where name = "Ada"')
    assert rows(town, PERSON)["Ada"]["email"] == "ada@x"


# ---- unique


@pytest.mark.parametrize(
    "statement",
    [
        'insert Person { name: "New", email: "ada@x" }',
        'insert Person { name: "Cid", email: "ada@x" }',
        'update Person set { email: "ada@x" } where name = "Cid"',
    ],
)
def test_unique_against_committed_rows(town: Graph, statement: str) -> None:
    (text,) = refused(town, statement)
    assert text.startswith("@unique violation on Person.email: value 'ada@x' held by 'Ada' and '")


def test_unique_within_one_query(town: Graph) -> None:
    body = 'insert Person { name: "N1", email: "n" } insert Person { name: "N2", email: "n" }'
    assert refused(town, body) == [
        "@unique violation on Person.email: value 'n' held by 'N1' and 'N2'"
    ]
    assert refused(town, 'update Person set { email: "n" } where name >= "Bob"') == [
        "@unique violation on Person.email: value 'n' held by 'Bob' and 'Cid'"
    ]


def test_unique_looks_at_the_final_state(town: Graph) -> None:
    """Two people swap their addresses: each value is held by another committed row meanwhile."""
    do(
        town,
        """
        update Person set { email: "bob@x" } where name = "Ada"
        update Person set { email: "ada@x" } where name = "Bob"
        """,
    )
    assert rows(town, PERSON)["Ada"]["email"] == "bob@x"
    do(town, 'insert Person { name: "Ada" } insert Person { name: "New", email: "bob@x" }')
    assert rows(town, PERSON)["New"]["email"] == "bob@x"


def test_unique_across_versions(town: Graph) -> None:
    """A value is free again once its holder lost it, and taken once another has it."""
    do(town, 'update Person set { email: "ada@y" } where name = "Ada"')
    do(town, 'update Person set { email: "ada@x" } where name = "Bob"')
    refused(town, 'insert Person { name: "New", email: "ada@x" }')
    do(town, 'delete Person where name = "Bob"')
    do(town, 'insert Person { name: "New", email: "ada@x" }')
    refused(town, 'update Person set { email: "ada@x" } where name = "Ada"')


def test_unique_exempts_tuples_with_a_null(town: Graph) -> None:
    do(
        town,
        """
        insert Person { name: "N1", first: "Ada" }
        insert Person { name: "N2", first: "Ada" }
        insert Person { name: "N3" } insert Person { name: "N4" }
        """,
    )
    assert refused(town, 'update Person set { last: "L" } where name = "N1"') == [
        "@unique violation on Person.(first, last): value '(Ada, L)' held by 'Ada' and 'N1'"
    ]
    do(town, 'update Person set { last: "M" } where name = "N1"')


def test_unique_ends_of_an_edge(town: Graph) -> None:
    do(town, 'insert Knows { from: "Ada", to: "Bob" } insert Knows { from: "Bob", to: "Ada" }')
    (text,) = refused(town, 'insert Knows { from: "Ada", to: "Bob" }')
    assert text.startswith("@unique violation on Knows.(src, dst): value '(Ada, Bob)' held by '")
    refused(town, 'insert Knows { from: "Cid", to: "Bob" } insert Knows { from: "Cid", to: "Bob" }')
    do(town, 'delete Knows where from = "Ada"')
    do(town, 'insert Knows { from: "Ada", to: "Bob" }')
    do(town, 'update Knows set { weight: 1 } where from = "Ada"')


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("I32", "5", "6"),
        ("U64", "5", "6"),
        ("F64", "0.5", "0.25"),
        ("F32", "0.1", "0.2"),
        ("F64", "0.0", "1.0"),
        ("Bool", "true", "false"),
        ("Date", 'date("2020-01-01")', 'date("1960-01-01")'),
        ("DateTime", 'datetime("2020-01-01T00:00:00.001Z")', 'datetime("2020-01-01T00:00:00Z")'),
        ("enum(a, b)", '"a"', '"b"'),
        ("String", '"it\'s"', '""'),
    ],
)
def test_unique_for_every_type(tmp_path: object, kind: str, one: str, other: str) -> None:
    graph = og.init(
        f"{tmp_path}/g", schema=f"node T {{\n  k: String @key\n  v: {kind}? @unique\n}}"
    )
    do(graph, f'insert T {{ k: "a", v: {one} }} insert T {{ k: "b", v: {other} }}')
    do(graph, 'insert T { k: "c" } insert T { k: "d" }')
    with pytest.raises(og.ConstraintViolated, match=r"@unique violation on T\.v"):
        do(graph, f'insert T {{ k: "c", v: {one} }}')
    with pytest.raises(og.ConstraintViolated, match="held by 'b' and 'd'"):
        do(graph, f'update T set {{ v: {other} }} where k = "d"')


# ---- endpoints


def test_an_end_that_is_not_there(town: Graph) -> None:
    assert refused(town, 'insert WorksAt { from: "Zoe", to: "Acme" }') == [
        "src 'Zoe' not found in Person"
    ]
    assert refused(town, 'insert WorksAt { from: "Ada", to: "Ada" }') == [
        "dst 'Ada' not found in Company"
    ]


def test_an_end_that_was_deleted_is_not_there(town: Graph) -> None:
    do(town, 'insert Knows { from: "Ada", to: "Bob" }')
    do(town, 'delete Person where name = "Bob"')
    assert refused(town, 'insert Knows { from: "Ada", to: "Bob" }') == [
        "dst 'Bob' not found in Person"
    ]
    do(town, 'insert Person { name: "Bob" } insert Knows { from: "Ada", to: "Bob" }')


# ---- cardinality


def test_too_many_edges_of_one_source(town: Graph) -> None:
    text = "@card violation on edge WorksAt: source 'Ada' has 2 edges (max 1)"
    twice = 'insert WorksAt { from: "Ada", to: "Acme" } insert WorksAt { from: "Ada", to: "Bolt" }'
    assert refused(town, twice) == [text]
    do(town, 'insert WorksAt { from: "Ada", to: "Acme" }')
    assert refused(town, 'insert WorksAt { from: "Ada", to: "Bolt" }') == [text]
    do(town, 'insert WorksAt { from: "Bob", to: "Bolt" }')
    do(town, 'delete WorksAt where from = "Ada"')
    do(town, 'insert WorksAt { from: "Ada", to: "Bolt" }')
    do(town, 'update WorksAt set { title: "x" } where from = "Ada"')
    assert pairs(town, WORKS_AT) == [("Ada", "Bolt"), ("Bob", "Bolt")]


def test_the_last_edge_of_a_source_that_needs_one_stays(town: Graph) -> None:
    do(
        town,
        """
        insert Lives { from: "Ada", to: $oslo } insert Lives { from: "Ada", to: $rome }
        insert Lives { from: "Bob", to: $rome }
        """,
        oslo=OSLO,
        rome=ROME,
    )
    assert refused(town, "delete Lives where to = $rome", rome=ROME) == [
        "@card violation on edge Lives: source 'Bob' has 0 edges (min 1)"
    ]
    assert refused(town, 'delete City where name = "Rome"') == [
        "@card violation on edge Lives: source 'Bob' has 0 edges (min 1)"
    ]
    assert refused(town, 'insert Lives { from: "Ada", to: $bonn }', bonn=BONN) == [
        "@card violation on edge Lives: source 'Ada' has 3 edges (max 2)"
    ]
    done = do(town, "delete Lives where to = $oslo", oslo=OSLO)
    assert done.affected_edges == 1


def test_a_source_that_goes_itself_needs_no_edge(town: Graph) -> None:
    do(town, 'insert Lives { from: "Bob", to: $rome }', rome=ROME)
    done = do(town, 'delete Person where name = "Bob"')
    assert (done.affected_nodes, done.affected_edges) == (1, 1)
    assert rows(town, LIVES) == {}
    do(town, 'delete City where name = "Rome"')
    assert ROME not in rows(town, CITY)


def test_a_source_and_the_city_go_together(town: Graph) -> None:
    do(town, 'insert Lives { from: "Bob", to: $rome }', rome=ROME)
    done = do(town, 'delete City where name = "Rome" delete Person where name = "Bob"')
    assert (done.affected_nodes, done.affected_edges) == (2, 1)


def test_a_node_that_never_had_an_edge_is_not_asked_for_one(town: Graph) -> None:
    do(town, 'insert Person { name: "New" }')
    do(town, 'update Person set { age: 3 } where name = "New"')


# ---- what validation looks at


def test_a_new_edge_is_checked_by_lookups_alone(
    town: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters: list[str | None] = []
    original = TableReader.rows

    def watched(self: TableReader, columns: Any = None, **options: Any) -> Any:
        filters.append(options.get("filter"))
        return original(self, columns, **options)

    monkeypatch.setattr(TableReader, "rows", watched)
    monkeypatch.setattr(TableReader, "batches", None)
    do(town, 'insert Knows { from: "Ada", to: "Bob" } insert WorksAt { from: "Ada", to: "Acme" }')
    do(town, 'insert Person { name: "New", email: "n", first: "N", last: "N" }')
    do(town, 'delete Person where name = "Ada"')
    assert filters
    assert None not in filters
    assert all("=" in text or " IN " in text for text in filters if text)
    filters.clear()
    do(town, 'delete Knows where from = "Bob" delete WorksAt where to in ["Acme", "x"]')
    assert filters == ["(`src` = 'Bob')", "(`dst` IN ('Acme', 'x'))"]


def test_a_table_that_validation_read_is_a_condition_of_the_commit(town: Graph) -> None:
    write = town._store.begin(kind=WriterKind.MUTATION)
    write.read(PERSON)
    write.append(KNOWS, town._store.reader(town.snapshot(), KNOWS).rows())
    do(town, 'insert Person { name: "New" }')
    with pytest.raises(og.VersionMismatch):
        town._store.commit(write)
