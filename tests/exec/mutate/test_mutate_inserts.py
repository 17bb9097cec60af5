"""Inserting: nodes with and without key, edges, values of every type."""

import base64
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from tests.exec.town import (
    CITY,
    COMPANY,
    KNOWS,
    MENTIONS,
    NOTE,
    PERSON,
    READING,
    WORKS_AT,
    blobs,
    do,
    pairs,
    rows,
)

HIRE = """
query hire($name: String, $age: I32?, $co: String)
  @description("create a person and link an employer") {
  insert Person { name: $name, age: $age }
  insert WorksAt { from: $name, to: $co, title: "Engineer" }
}
"""


def test_the_result_tells_what_was_done(people: Graph) -> None:
    do(people, 'insert Company { name: "Acme" }')
    done = people.mutate(HIRE, {"name": "Ada", "age": 36, "co": "Acme"}, actor="act-me")
    assert (done.branch, done.query_name, done.actor_id) == ("main", "hire", "act-me")
    assert (done.affected_nodes, done.affected_edges) == (1, 1)
    assert done.commit == people.commits.list()[0]
    assert done.commit is not None
    assert done.commit.actor == "act-me"
    assert rows(people, PERSON) == {"Ada": {"name": "Ada", "age": 36}}
    assert list(rows(people, WORKS_AT).values()) == [
        {"src": "Ada", "dst": "Acme", "title": "Engineer"}
    ]


def test_one_query_is_one_commit(people: Graph) -> None:
    before = people.commits.list()
    do(
        people,
        'insert Company { name: "A" } insert Company { name: "B" } insert Note { text: "x" }',
    )
    assert len(people.commits.list()) == len(before) + 1


def test_a_query_is_found_by_name_in_a_text_or_a_file(people: Graph, tmp_path: Path) -> None:
    text = """
    query a() { insert Company { name: "A" } }
    query b() { insert Company { name: "B" } }
    """
    assert people.mutate(text, name="b").query_name == "b"
    assert list(rows(people, COMPANY)) == ["B"]
    with pytest.raises(og.BadRequest, match=r"multiple queries; name one with name=.*first word: "):
        people.mutate(text)
    file = tmp_path / "all.gq"
    file.write_text(text)
    assert people.mutate(file, name="a").affected_nodes == 1
    with pytest.raises(og.NotFound, match="query file"):
        people.mutate(tmp_path / "none.gq")


def test_a_keyed_insert_replaces_the_node_whole(people: Graph) -> None:
    do(people, 'insert Person { name: "Ada", age: 36, email: "a@b", tags: ["x"] }')
    done = do(people, 'insert Person { name: "Ada", score: 1.0 }')
    assert done.affected_nodes == 1
    assert rows(people, PERSON) == {"Ada": {"name": "Ada", "score": 1.0}}


def test_a_keyed_insert_that_changes_no_value_still_commits(people: Graph) -> None:
    first = do(people, 'insert Company { name: "A" }')
    second = do(people, 'insert Company { name: "A" }')
    assert first.commit is not None
    assert second.commit is not None
    assert second.commit.parent == first.commit.id
    assert list(rows(people, COMPANY)) == ["A"]


def test_new_and_known_keys_in_one_query(people: Graph) -> None:
    do(people, 'insert Company { name: "A", size: 1 }')
    do(people, 'insert Company { name: "A", size: 2 } insert Company { name: "B", size: 3 }')
    assert rows(people, COMPANY) == {
        "A": {"name": "A", "size": 2},
        "B": {"name": "B", "size": 3},
    }


def test_the_last_write_to_an_id_wins_and_it_counts_once(people: Graph) -> None:
    done = do(people, 'insert Company { name: "A", size: 1 } insert Company { name: "A" }')
    assert done.affected_nodes == 1
    assert rows(people, COMPANY) == {"A": {"name": "A"}}


def test_a_node_without_key_is_new_each_time(people: Graph) -> None:
    do(people, 'insert Note { text: "x" } insert Note { text: "x" }')
    do(people, 'insert Note { text: "x" }')
    found = rows(people, NOTE)
    assert [row["text"] for row in found.values()] == ["x"] * 3
    assert all(len(entity_id) == 26 for entity_id in found)


def test_a_composite_key_makes_the_id_in_its_own_order(people: Graph) -> None:
    do(people, 'insert City { name: "Oslo", country: "NO", zip: 1 }')
    do(people, 'insert City { country: "NO", name: "Oslo", zip: 2 }')
    assert rows(people, CITY) == {'["NO","Oslo"]': {"country": "NO", "name": "Oslo", "zip": 2}}


@pytest.mark.parametrize(("value", "entity_id"), [(1.5, "1.5"), (2.0, "2"), (-0.0, "0")])
def test_a_float_key_has_one_text(people: Graph, value: float, entity_id: str) -> None:
    do(people, "insert Reading { at: $at, value: 1.0 }", at=value)
    do(people, "insert Reading { at: $at, value: 2.0 }", at=value)
    assert rows(people, READING) == {entity_id: {"at": value, "value": 2.0}}


def test_an_empty_key_is_a_key(people: Graph) -> None:
    do(people, 'insert Company { name: "" }')
    assert rows(people, COMPANY) == {"": {"name": ""}}


@pytest.mark.parametrize("name", ["O'Hara", "a`b", 'q"uo', "\\", "ütf 𝄞", "x\ny", "'; --"])
def test_any_text_is_a_key(people: Graph, name: str) -> None:
    do(people, "insert Person { name: $n } insert Knows { from: $n, to: $n }", n=name)
    do(people, "insert Person { name: $n, age: 3 }", n=name)
    assert rows(people, PERSON) == {name: {"name": name, "age": 3}}
    assert do(people, "update Person set { age: 4 } where name = $n", n=name).affected_nodes == 1
    done = do(people, "delete Person where id = $n", n=name)
    assert (done.affected_nodes, done.affected_edges) == (1, 1)


# ---- edges


def test_ends_may_be_inserted_in_the_same_query_before_or_after(people: Graph) -> None:
    do(
        people,
        """
        insert Person { name: "A" }
        insert Knows { from: "A", to: "B" }
        insert Person { name: "B" }
        """,
    )
    assert pairs(people, KNOWS) == [("A", "B")]


def test_the_same_pair_twice_makes_two_edges(people: Graph) -> None:
    do(people, 'insert Person { name: "A" } insert Note { text: "x" }')
    (note,) = rows(people, NOTE)
    mention = "insert Mentions { from: $n, to: 'A', line: 1 }".replace("'", '"')
    do(people, mention, n=note)
    do(people, mention + mention, n=note)
    assert pairs(people, MENTIONS) == [(note, "A")] * 3


def test_a_self_edge_is_allowed(people: Graph) -> None:
    do(people, 'insert Person { name: "A" } insert Knows { from: "A", to: "A" }')
    assert pairs(people, KNOWS) == [("A", "A")]


# ---- values


def test_values_of_every_type(people: Graph) -> None:
    declared = (
        "$age: I32, $score: F64, $height: F32, $count: U64, $tags: [String], $marks: [I32], "
        "$place: Vector(3), $born: Date, $seen: DateTime, $active: Bool, $mood: String"
    )
    sets = ", ".join(
        f"{part.split(':')[0][1:]}: {part.split(':')[0]}"
        for part in declared.replace("Vector(3)", "V").split(", ")
    )
    people.mutate(
        f'query q({declared}) {{ insert Person {{ name: "A", {sets} }} }}',
        {
            "age": 3,
            "score": 0.1,
            "height": 1.75,
            "count": "18",
            "tags": ["x", ""],
            "marks": [],
            "place": [1, 2.5, -3],
            "born": "2020-02-29",
            "seen": "2024-01-31T10:00:00.5Z",
            "active": False,
            "mood": "calm",
        },
    )
    assert rows(people, PERSON)["A"] == {
        "name": "A",
        "age": 3,
        "score": 0.1,
        "height": 1.75,
        "count": 18,
        "tags": ["x", ""],
        "marks": [],
        "place": [1.0, 2.5, -3.0],
        "born": date(2020, 2, 29),
        "seen": datetime(2024, 1, 31, 10, 0, 0, 500_000, tzinfo=UTC),
        "active": False,
        "mood": "calm",
    }


def test_literals_of_every_type(people: Graph) -> None:
    do(
        people,
        """insert Person { name: "A", age: 3, score: 1, height: 2, count: 18, tags: ["x"]
             marks: [1, 2], place: [1, 2, 3], born: date("2020-02-29")
             seen: datetime("2024-01-31T10:00:00Z"), active: true, mood: "cross" }""",
    )
    row = rows(people, PERSON)["A"]
    assert (row["score"], row["height"], row["count"]) == (1.0, 2.0, 18)
    assert row["place"] == [1.0, 2.0, 3.0]
    assert row["seen"] == datetime(2024, 1, 31, 10, tzinfo=UTC)


def test_now_is_one_moment_for_the_whole_request(people: Graph) -> None:
    before = datetime.now(UTC)
    do(people, 'insert Person { name: "A", seen: now() } insert Person { name: "B", seen: now() }')
    seen = {row["seen"] for row in rows(people, PERSON).values()}
    assert len(seen) == 1
    (moment,) = seen
    assert before.replace(microsecond=0) <= moment <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("column", "value", "stored"),
    [("age", 7.0, 7), ("score", 1, 1.0), ("height", 16_777_216, 16_777_216.0), ("count", 5, 5)],
)
def test_a_number_that_fits_exactly_changes_its_type(
    people: Graph, column: str, value: float, stored: float
) -> None:
    do(people, f'insert Person {{ name: "A", {column}: $v }}', v=value)
    assert rows(people, PERSON)["A"][column] == stored


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("age", 2**31),
        ("age", 1.5),
        ("count", -1),
        ("height", 16_777_217),
        ("height", 1e300),
        ("score", 2**53 + 1),
        ("marks", [2**31]),
    ],
)
def test_a_number_that_does_not_fit_is_refused(people: Graph, column: str, value: Any) -> None:
    with pytest.raises(og.BadRequest, match=rf"Person.{column} has type .* does not fit"):
        do(people, f'insert Person {{ name: "A", {column}: $v }}', v=value)
    assert rows(people, PERSON) == {}


def test_an_enum_parameter_is_checked_when_it_comes(people: Graph) -> None:
    with pytest.raises(og.ConstraintViolated) as caught:
        do(people, 'insert Person { name: "A", mood: $m }', m="sad")
    (violation,) = caught.value.violations
    assert violation.text == "invalid enum value 'sad' for Person.mood (expected: calm, cross)"
    assert (violation.rule, violation.id, violation.value) == ("enum", "A", "sad")


def test_a_null_parameter_leaves_a_property_without_value(people: Graph) -> None:
    people.mutate(
        'query q($a: I32?) { insert Person { name: "A", age: $a } }',
    )
    assert rows(people, PERSON) == {"A": {"name": "A"}}


def test_text_that_utf8_cannot_write_is_refused(people: Graph) -> None:
    with pytest.raises(og.BadRequest, match="param 'n': the text cannot be written as UTF-8"):
        do(people, "insert Company { name: $n }", n="\ud800")


# ---- blobs


@pytest.mark.parametrize("data", [b"", b"hello", bytes(range(256)) * 1000])
def test_a_blob_keeps_its_bytes_also_when_the_node_is_updated(people: Graph, data: bytes) -> None:
    text = "base64:" + base64.b64encode(data).decode()
    do(people, 'insert Person { name: "A", photo: $p } insert Person { name: "B" }', p=text)
    assert blobs(people) == {"A": data, "B": None}
    do(people, "update Person set { age: 3 } where active is null")
    assert blobs(people) == {"A": data, "B": None}
    people.mutate('query q($p: Blob?) { update Person set { photo: $p } where name = "A" }')
    assert blobs(people) == {"A": None, "B": None}


def test_a_blob_literal(people: Graph) -> None:
    do(people, 'insert Person { name: "A", photo: "base64:aGk=" }')
    assert blobs(people) == {"A": b"hi"}


@pytest.mark.parametrize("address", ["s3://bucket/x", "file:///etc/passwd", "/etc/passwd", ""])
def test_an_external_address_is_not_allowed(people: Graph, address: str) -> None:
    with pytest.raises(og.ExternalBlobDenied, match="is not allowed; send the bytes") as told:
        do(people, 'insert Person { name: "A", photo: $p }', p=address)
    assert told.value.uri == address
    assert rows(people, PERSON) == {}


def test_an_address_below_an_allowed_base_is_copied_in(people: Graph, tmp_path: Path) -> None:
    (tmp_path / "photos" / "new").mkdir(parents=True)
    file = tmp_path / "photos" / "new" / "a b.png"
    file.write_bytes(b"picture")
    graph = og.open(people.uri, external_blobs=[f"file://{tmp_path}/photos"])
    do(graph, 'insert Person { name: "A", photo: $p }', p=f"file://{file}")
    do(
        graph,
        'insert Person { name: "B" } update Person set { photo: $p } where name = "B"',
        p=f"file://{file}",
    )
    file.unlink()
    assert blobs(people) == {"A": b"picture", "B": b"picture"}
    with pytest.raises(og.ExternalBlobUnreadable) as told:
        do(graph, 'insert Person { name: "C", photo: $p }', p=f"file://{file}")
    assert "No such file" in told.value.reason
    assert set(rows(people, PERSON)) == {"A", "B"}


def test_damaged_base64_is_refused(people: Graph) -> None:
    with pytest.raises(og.BadRequest, match="base64 is damaged"):
        do(people, 'insert Person { name: "A", photo: "base64:a*" }')


# ---- refusals


def test_a_read_is_refused(people: Graph) -> None:
    with pytest.raises(og.BadRequest, match="'who' is a read — use omnigraph query who"):
        people.mutate("query who() { match { $p: Person } return { $p.name } }")


def test_a_read_only_graph_refuses(people: Graph) -> None:
    with pytest.raises(og.BadRequest, match="open read-only"):
        do(og.open(people.uri, read_only=True), 'insert Company { name: "A" }')


def test_an_unknown_branch_is_not_found(people: Graph) -> None:
    with pytest.raises(og.NotFound, match="branch 'nope'"):
        do(people, 'insert Company { name: "A" }', branch="nope")


@pytest.mark.parametrize(
    "body",
    [
        'insert Company { name: "A" } delete Company where name = "B"',
        'delete Company where name = "B" update Company set { size: 1 } where name = "A"',
    ],
)
def test_d2_mixed_statements_are_refused_before_any_io(people: Graph, body: str) -> None:
    before = people.stats().calls_total
    with pytest.raises(og.ParseError) as caught:
        do(people, body)
    assert "mutation 'q' on the same query mixes inserts/updates and deletes" in str(caught.value)
    assert people.stats().calls_total == before


def test_a_missing_parameter_is_refused_before_any_io(people: Graph) -> None:
    before = people.stats().calls_total
    with pytest.raises(og.BadRequest, match="parameter 'n' not provided"):
        people.mutate("query q($n: String) { insert Company { name: $n } }")
    assert people.stats().calls_total == before
