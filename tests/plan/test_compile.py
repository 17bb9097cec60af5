"""Compiling by name, and remembering what was compiled."""

import pytest

from omnigraph.catalog.accept import accept
from omnigraph.errors import BadRequest, ParseError, SourceError, TypeCheckError
from omnigraph.plan import compile as compiling
from omnigraph.plan.compile import compile_query

SCHEMA = accept("node Person { name: String @key  age: I32?  joined: Date? }")
ONE = "query one() { match { $p: Person } return { $p.name } }"
TWO = ONE + " query two() { match { $p: Person } return { $p.age } }"


def test_the_only_query_needs_no_name() -> None:
    assert compile_query(ONE, SCHEMA).name == "one"


def test_a_name_chooses_among_several() -> None:
    assert compile_query(TWO, SCHEMA, "two").name == "two"


def test_of_several_queries_one_is_named() -> None:
    with pytest.raises(BadRequest, match=r"multiple queries; name one with name=.*: one, two"):
        compile_query(TWO, SCHEMA)


@pytest.mark.parametrize("text", ["", "// nothing"])
def test_a_text_without_a_query_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="query file contains no query; write query name"):
        compile_query(text, SCHEMA)


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(BadRequest, match="query 'three' not found; the file has one, two"):
        compile_query(TWO, SCHEMA, "three")
    with pytest.raises(BadRequest, match=r"query 'twoo' not found; did you mean 'two'\?"):
        compile_query(TWO, SCHEMA, "twoo")


@pytest.mark.parametrize(
    ("text", "help"),
    [
        ("query q() { match { $p: Person  $p.joined > 2024-01-31 } return { $p } }", "a date as"),
        ("query q() { match { $p: Person } return { $p.name group by $p.name } }", "grouped by"),
        ("MATCH (p:Person) RETURN p", "a query has a name"),
    ],
)
def test_what_other_languages_write_is_helped(text: str, help: str) -> None:
    with pytest.raises(SourceError) as refused:
        compile_query(text, SCHEMA)
    assert help in str(refused.value)


PARTS = accept(
    "node Part { sku: String @key  v: Vector(2)? } edge Contains: Part -> Part { n: I32 }"
)


@pytest.mark.parametrize("column", ["$k.n", "$k.*", "$k", "count($k)", "$n.sku"])
def test_a_step_of_a_walk_outside_its_where_is_told_how_to_get_at_it(column: str) -> None:
    walk = "$path = $b $k:contains* $c via $n where $n.sku != $skip"
    text = f"query q($skip: String) {{ match {{ $b: Part  {walk} }} return {{ {column} }} }}"
    with pytest.raises(TypeCheckError, match="is not bound") as refused:
        compile_query(text, PARTS)
    assert (
        "only in its where; name the walk, $path = …, and return edges($path)" in refused.value.hint
    )


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("match { $e: Event  $e.ends - $e.at > 2h } return { $e.no }", "$a.at > $b.at + 2h"),
        ("match { $e: Event  $e.at > $when } return { $e.no }", "query name($when: …)"),
        ("match { $e: Event } return { $e.no } limit $n", "query name($n: I64)"),
        ("match { $e: Event } return { $e.no as name } order { $name }", "without $: name"),
        (
            "match { $e: Event  $e leads $f } with { $e, count($f) as n } order { $e.no } "
            "match { $e leads $g } return { $g.no }",
            "columns of return or with",
        ),
    ],
)
def test_a_query_that_is_nearly_right_is_told_what_to_write(body: str, hint: str) -> None:
    events = accept(
        "node Event { no: String @key  at: DateTime  ends: DateTime } edge Leads: Event -> Event"
    )
    with pytest.raises(TypeCheckError) as refused:
        compile_query(f"query q() {{ {body} }}", events)
    assert hint in refused.value.hint


def test_nearest_of_two_nodes_is_told_how_to_compare_their_vectors() -> None:
    rank = "order { nearest($a.v, $b.v) } limit 3"
    text = f"query q() {{ match {{ $a: Part  $b: Part }} return {{ $a }} {rank} }}"
    with pytest.raises(TypeCheckError, match="T15") as refused:
        compile_query(text, PARTS)
    assert "it is a parameter or a constant" in refused.value.hint
    assert "cosine(a, b)" in refused.value.hint


def test_of_two_queries_with_one_name_the_first_runs() -> None:
    text = ONE + ' query one() { match { $p: Person { name: "x" } } return { $p } }'

    assert compile_query(text, SCHEMA, "one").columns[0].name == "p.name"


def test_a_fault_in_another_query_does_not_stop_the_named_one() -> None:
    text = ONE + " query bad() { match { $p: Robot } return { $p } }"

    assert compile_query(text, SCHEMA, "one").name == "one"
    with pytest.raises(TypeCheckError):
        compile_query(text, SCHEMA, "bad")


def test_a_plan_is_remembered_by_text_name_and_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = list[tuple[str, str | None]]()
    really = compiling._compile

    def counted(text: str, catalog: compiling.Catalog, name: str | None) -> compiling.Plan:
        compiled.append((text, name))
        return really(text, catalog, name)

    monkeypatch.setattr(compiling, "_compile", counted)
    text = TWO + " // counted"
    first = compile_query(text, SCHEMA, "one")
    assert compile_query(text, SCHEMA, "one") is first
    assert len(compiled) == 1

    compile_query(text, SCHEMA, "two")
    other = accept("node Person { name: String @key  age: I64? }")
    assert compile_query(text, other, "two") != compile_query(text, SCHEMA, "two")
    assert len(compiled) == 3


def test_a_failure_is_not_remembered() -> None:
    for _ in range(2):
        with pytest.raises(ParseError):
            compile_query("query", SCHEMA)


def test_memory_of_plans_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling._plans, "weight_max", 4 * compiling._TEXT_LEAST)
    for number in range(20):
        compile_query(f"{ONE} // {number}", SCHEMA)

    assert len(compiling._plans) == 4
