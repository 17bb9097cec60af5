"""`upsert`: the entity of a key gets the given properties and keeps the others."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.exec.mutate import run as mutations
from omnigraph.graph import Graph
from omnigraph.language.query.format import format_query_text
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan.compile import compile_query
from omnigraph.plan.explain import explain
from tests.exec.town import CITY, PERSON, do, rows

ITEM = "node Item { code: String @key, size: I32?, label: String }"
PARAMS = "$c: String, $s: I32?, $l: String"
STATEMENTS = {
    "upsert size": "upsert Item { code: $c, size: $s }",
    "upsert label": "upsert Item { code: $c, label: $l }",
    "upsert key": "upsert Item { code: $c }",
    "insert": "insert Item { code: $c, label: $l }",
    "update": "update Item set { size: $s } where code = $c",
}
steps = st.tuples(
    st.lists(st.sampled_from(sorted(STATEMENTS)), min_size=1, max_size=3),
    st.sampled_from("abc"),
    st.none() | st.integers(0, 9),
    st.sampled_from("xy"),
)
Row = dict[str, Any]


def applied(model: dict[str, Row], step: tuple[list[str], str, int | None, str]) -> dict[str, Row]:
    names, code, size, label = step
    after = {key: dict(row) for key, row in model.items()}
    for name in names:
        match name:
            case "insert":
                after[code] = {"size": None, "label": label}
            case "update":
                if code in after:
                    after[code]["size"] = size
            case _:
                row = after.setdefault(code, {"size": None, "label": None})
                if name == "upsert size":
                    row["size"] = size
                if name == "upsert label":
                    row["label"] = label
    return after


@settings(max_examples=15, deadline=None)
@given(history=st.lists(steps, min_size=1, max_size=6))
def test_upserts_do_what_a_model_of_dicts_says(
    history: list[tuple[list[str], str, int | None, str]],
) -> None:
    with tempfile.TemporaryDirectory() as folder, og.init(Path(folder) / "g", ITEM) as graph:
        model: dict[str, Row] = {}
        for step in history:
            names, code, size, label = step
            text = f"query q({PARAMS}) {{ {' '.join(STATEMENTS[name] for name in names)} }}"
            after = applied(model, step)
            params = {"c": code, "s": size, "l": label}
            if any(row["label"] is None for row in after.values()):
                with pytest.raises(og.ConstraintViolated, match=r"Item.label is non-nullable"):
                    graph.mutate(text, params)
                continue
            graph.mutate(text, params)
            model = after
            ask = "query q() { match { $i: Item } return { $i.code, $i.size, $i.label } }"
            stored = {
                row["i.code"]: {"size": row["i.size"], "label": row["i.label"]}
                for row in graph.query(ask).rows
            }
            assert stored == model


def test_given_is_set_and_the_rest_stays(people: Graph) -> None:
    do(people, 'insert Person { name: "Ada", age: 36, email: "a@b", photo: "base64:AAAA" }')
    done = do(people, 'upsert Person { name: "Ada", age: 37 }')
    assert done.affected_nodes == 1
    assert done.commit is not None
    assert done.commit.counts[PERSON].updated == 1
    ada = rows(people, PERSON)["Ada"]
    assert (ada["age"], ada["email"]) == (37, "a@b")
    people.mutate('query q($a: I32?) { upsert Person { name: "Ada", age: $a } }', {"a": None})
    assert rows(people, PERSON)["Ada"].get("age") is None
    assert people.blob("node", "Person", "Ada", "photo").read() == b"\0\0\0"


def test_a_key_of_several_properties_names_one_entity(people: Graph) -> None:
    do(people, 'insert City { country: "NO", name: "Oslo", zip: 1 }')
    do(people, 'upsert City { country: "NO", name: "Oslo", zip: 2 }')
    do(people, 'upsert City { country: "NO", name: "Bergen" }')
    assert {row["name"]: row.get("zip") for row in rows(people, CITY).values()} == {
        "Oslo": 2,
        "Bergen": None,
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('upsert Note { text: "x" }', "Note has no @key, so upsert cannot know"),
        ("upsert Person { age: 3 }", "T12: upsert of Person needs its @key property 'name'"),
        ("upsert Person { }", "T10: no property of Person is assigned"),
        ('upsert Person { name: "a", name: "b" }', "T13"),
        ('upsert Person { name: "a", agee: 3 }', "T11"),
        ('upsert Knows { from: "a", to: "b" }', "Knows has no @key"),
    ],
)
def test_what_an_upsert_cannot_do_is_said_before_it_runs(
    people: Graph, body: str, message: str
) -> None:
    with pytest.raises(og.TypeCheckError, match=message):
        people.mutate(f"query q() {{ {body} }}")


def test_it_does_not_mix_with_deletes(people: Graph) -> None:
    with pytest.raises(og.ParseError, match="mixes inserts/updates and deletes"):
        do(people, 'upsert Person { name: "a" } delete Person where name = "b"')


def test_a_null_key_and_a_broken_rule_are_refused(people: Graph) -> None:
    with pytest.raises(og.ConstraintViolated, match="@key property 'name' cannot contain null"):
        people.mutate("query q($n: String?) { upsert Person { name: $n } }", {"n": None})
    do(people, 'insert Person { name: "Ada", email: "a@b" }')
    with pytest.raises(og.ConstraintViolated, match="@unique violation"):
        do(people, 'upsert Person { name: "Bob", email: "a@b" }')


def test_upserts_that_lost_a_race_keep_what_the_other_set(
    people: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(people, 'insert Person { name: "Ada", age: 1 }')
    other = og.open(people.uri)
    stage = mutations.Staging.stage

    def stage_late(staging: mutations.Staging) -> None:
        stage(staging)
        monkeypatch.setattr(mutations.Staging, "stage", stage)
        do(other, 'upsert Person { name: "Ada", age: 2 }')

    monkeypatch.setattr(mutations.Staging, "stage", stage_late)
    do(people, 'upsert Person { name: "Ada", score: 0.5 }')
    ada = rows(people, PERSON)["Ada"]
    assert (ada["age"], ada["score"]) == (2, 0.5)


def test_the_word_stays_free_for_names(tmp_path: Path) -> None:
    schema = """
    node Person { name: String @key, upsert: I32? }
    edge Upsert: Person -> Person { upsert: I32? }
    """
    graph = og.init(tmp_path / "g", schema)
    graph.mutate(
        """query upsert($upsert: I32) {
          insert Person { name: "a", upsert: $upsert }
          upsert Person { name: "b", upsert: 2 }
          insert Upsert { from: "a", to: "b", upsert: 3 }
          update Person set { upsert: 4 } where upsert = $upsert
        }""",
        {"upsert": 1},
    )
    answer = graph.query(
        """query upsert() {
          match { $upsert: Person { upsert: 4 }  $upsert upsert $b  $upsert.upsert > 1 }
          return { $upsert.upsert as upsert, $b.upsert as b }
          order { upsert }
        }"""
    )
    assert answer.rows == [{"upsert": 4, "b": 2}]


def test_it_is_laid_out_and_explained(people: Graph) -> None:
    text = 'query q($a: I32) { upsert Person { name: "a", age: $a } }\n'
    assert format_query_text('query q($a:I32){upsert Person{name:"a",age:$a}}') == text
    parse_queries(text)
    plan = compile_query(text, people._schemas.current().catalog, None)
    assert 'patch by (name) node:Person set {name: String = "a"' in explain(plan)
