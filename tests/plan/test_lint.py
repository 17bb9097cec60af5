"""Lint: the report of a query file."""

import pytest

from omnigraph.catalog.accept import accept
from omnigraph.plan.lint import lint

SCHEMA = accept(
    """
    node Person {
      name: String @key  age: I32?  city: String?  tags: [String]?  score: F64?
      bio: String?  vec: Vector(2)? @embed(bio)  id64: U64?  day: Date?  at: DateTime?  ok: Bool?
    }
    node Company { name: String @key }
    edge WorksAt: Person -> Company { title: String }
    edge Knows: Person -> Person
    """
)


def operation(text: str) -> dict[str, object]:
    (result,) = lint(text, SCHEMA).results
    assert result.error is None, result.error
    assert result.operation is not None
    return result.operation.to_json()


def facts(*tables: str) -> list[dict[str, str]]:
    return [dict(zip(("kind", "type_name"), table.split(":"), strict=True)) for table in tables]


def test_a_file_that_does_not_parse_is_one_finding() -> None:
    report = lint("query q() {", SCHEMA)

    assert report.to_json() == {
        "status": "error",
        "queries_processed": 0,
        "errors": 1,
        "warnings": 0,
        "infos": 0,
        "results": [],
        "findings": [
            {
                "severity": "error",
                "code": "Q000",
                "message": "parse error: unexpected end of the text; "
                "expected 'delete', 'insert', 'match', 'update' or 'upsert'",
            }
        ],
    }


def test_each_query_has_its_own_result() -> None:
    text = """
    query good() { match { $p: Person } return { $p.name } }
    query bad() { match { $p: Robot } return { $p } }
    """
    report = lint(text, SCHEMA).to_json()

    assert (report["status"], report["errors"], report["queries_processed"]) == ("error", 1, 2)
    good, bad = report["results"]
    assert (good["name"], good["kind"], good["status"]) == ("good", "read", "ok")
    assert "error" not in good
    assert bad["error"] == "type error: T1: unknown node type 'Robot'"
    assert (bad["line"], bad["column"]) == (3, 31)
    assert "operation" not in bad


def test_a_mutation_without_parameters_is_doubted() -> None:
    report = lint('query m() { insert Company { name: "Acme" } }', SCHEMA)

    (result,) = report.results
    assert result.to_json()["warnings"] == [
        "mutation declares no params; hardcoded mutations are easy to miss"
    ]
    assert (report.errors, report.warnings) == (0, 1)


def test_a_property_that_no_update_sets_is_found() -> None:
    text = """
    query a($n: String) { update Person set { age: 3, city: "x", tags: [] } where name = $n }
    query b($n: String) { update Person set { score: 1.5, bio: "b", id64: 1 } where name = $n }
    """
    findings = [finding.to_json() for finding in lint(text, SCHEMA).findings]

    assert [finding["property"] for finding in findings] == ["day", "at", "ok"]
    assert findings[0] == {
        "severity": "warning",
        "code": "L201",
        "message": "Person.day exists in schema but no update query sets it",
        "type_name": "Person",
        "property": "day",
        "query_names": ["a", "b"],
    }


def test_types_without_updates_are_left_in_peace() -> None:
    assert lint("query m($n: String) { insert Person { name: $n } }", SCHEMA).findings == ()


def test_columns_and_queries_with_one_name_are_doubted() -> None:
    text = "query q() { match { $p: Person } return { $p.name, $p.name } } " * 2
    report = lint(text, SCHEMA)

    assert "column 'p.name' is returned 2 times" in report.results[0].warnings[0]
    assert [finding.code for finding in report.findings] == ["L202"]
    assert report.errors == 0


def test_a_read_names_what_it_reads_and_returns() -> None:
    text = """query q($v: I32) {
      match { $p: Person  $p worksAt $c  not { $p knows $_ } }
      return { $p, $p.name, $p.age, $p.tags, $p.vec, $p.id64 as big, $p.day, $p.at, $p.ok, $v,
               nearest($p.vec, [1, 0]) as far, 1, now() as at2, $c.id } limit 3 }"""

    assert operation(text) == {
        "result": [
            {"name": "p", "kind": "object", "nullable": False},
            {"name": "name", "kind": "string", "nullable": False},
            {"name": "age", "kind": "int", "nullable": True},
            {"name": "tags", "kind": "list", "item_kind": "string", "nullable": True},
            {"name": "vec", "kind": "vector", "vector_dim": 2, "nullable": True},
            {"name": "big", "kind": "bigint", "nullable": True},
            {"name": "day", "kind": "date", "nullable": True},
            {"name": "at", "kind": "datetime", "nullable": True},
            {"name": "ok", "kind": "bool", "nullable": True},
            {"name": "v", "kind": "int", "nullable": False},
            {"name": "far", "kind": "float", "nullable": True},
            {"name": "literal", "kind": "bigint", "nullable": False},
            {"name": "at2", "kind": "datetime", "nullable": False},
            {"name": "id", "kind": "string", "nullable": False},
        ],
        "reads": facts("edge:Knows", "edge:WorksAt", "node:Company", "node:Person"),
        "writes": [],
    }


def test_aggregates_are_called_by_their_function() -> None:
    text = """query q() { match { $p: Person }
              return { count($p), sum($p.age), min($p.name), avg($p.score) as a } }"""

    assert operation(text)["result"] == [
        {"name": "count", "kind": "bigint", "nullable": False},
        {"name": "sum", "kind": "bigint", "nullable": True},
        {"name": "min", "kind": "string", "nullable": True},
        {"name": "a", "kind": "float", "nullable": True},
    ]


def test_what_an_optional_block_binds_may_be_null() -> None:
    text = """query q() { match { $p: Person  optional { $p worksAt $c } }
              return { $c, $c.name } }"""

    assert [field["nullable"] for field in operation(text)["result"]] == [True, True]


def test_an_edge_insert_reads_both_ends() -> None:
    text = """query m($a: String, $b: String) { insert WorksAt { from: $a, to: $b, title: "x" } }"""

    assert operation(text) == {
        "result": [],
        "reads": facts("edge:WorksAt", "node:Company", "node:Person"),
        "writes": facts("edge:WorksAt"),
    }


def test_a_node_delete_writes_the_edges_that_go_with_it() -> None:
    assert operation("query m($a: String) { delete Person where name = $a }") == {
        "result": [],
        "reads": facts("node:Person"),
        "writes": facts("edge:Knows", "edge:WorksAt", "node:Person"),
    }


def test_a_value_that_an_enum_lacks_is_an_error_and_beside_an_order_a_warning() -> None:
    schema = accept("node T { k: String @key  state: enum(open, closed)? }")
    for where in ('"opne" = $t.state', '$t.state != "opne"', '$t.state in ["open", "opne"]'):
        (result,) = lint(
            f"query q() {{ match {{ $t: T  {where} }} return {{ $t }} }}", schema
        ).results
        assert result.error is not None
        assert result.error.code == "T3"
        assert "did you mean 'open'? use one of closed, open" in str(result.error)
    text = 'query q() { match { $t: T  $t.state < "opne" } return { $t } }'
    (result,) = lint(text, schema).results
    assert result.warnings == ("'opne' is no value of state: did you mean 'open'?",)


def test_a_comparison_with_null_is_doubted() -> None:
    for written, advised in (
        ("$p.age = null", "write is null"),
        ("null = $p.age", "write is null"),
        ("$p.age != null", "write is not null"),
    ):
        text = f"query q() {{ match {{ $p: Person  {written} }} return {{ $p }} }}"
        (result,) = lint(text, SCHEMA).results
        assert result.warnings == (f"a comparison with null is never true: {advised}",)
    text = "query q($n: I32?) { match { $p: Person  $p.age is null  $p.age = $n } return { $p } }"
    assert lint(text, SCHEMA).warnings == 0


@pytest.mark.parametrize(
    "body",
    [
        "match { $p: Person { city: oslo } } return { $p }",
        "match { $p: Person  $p.city = oslo } return { $p }",
        "match { $p: Person } return { oslo }",
    ],
)
def test_a_text_without_quotes_is_told_of_them(body: str) -> None:
    (result,) = lint(f"query q() {{ {body} }}", SCHEMA).results
    assert result.error is not None
    assert result.error.hint == "a variable is written $oslo, a text in quotes"


def test_distinct_inside_the_braces_is_told_where_it_stands() -> None:
    text = "query q() { match { $p: Person } return { distinct $p.name } }"
    (result,) = lint(text, SCHEMA).results
    assert result.error is not None
    assert "return distinct { … }" in result.error.hint


def test_every_property_and_expressions_are_described() -> None:
    text = """query q() { match { $c: Company  $p worksAt $c }
      return { $c.*, $p.age + 1 as next, lower($p.name), $p.age > 3 as old } }"""
    assert operation(text)["result"] == [
        {"name": "name", "kind": "string", "nullable": False},
        {"name": "next", "kind": "bigint", "nullable": True},
        {"name": "lower", "kind": "string", "nullable": False},
        {"name": "old", "kind": "bool", "nullable": True},
    ]


def test_the_fields_of_an_object_are_described() -> None:
    text = """query q() { match { $p: Person  optional { $p worksAt $c } }
      return { $p as who { name, next: $p.age + 1 }, $c { name }, $p.age } }"""
    name = {"name": "name", "kind": "string"}
    assert operation(text)["result"] == [
        {
            "name": "who",
            "kind": "object",
            "fields": [
                {**name, "nullable": False},
                {"name": "next", "kind": "bigint", "nullable": True},
            ],
            "nullable": False,
        },
        {"name": "c", "kind": "object", "fields": [{**name, "nullable": True}], "nullable": True},
        {"name": "age", "kind": "int", "nullable": True},
    ]


def test_a_fusion_of_rankings_of_two_variables_is_doubted() -> None:
    fused = 'rrf(nearest($p.vec, [0.0, 1.0]), bm25($q.bio, "x"))'
    match = "match { $p: Person  $q: Person  $p knows $q }"
    text = f"query q() {{ {match} return {{ $p }} order {{ {fused} }} limit 3 }}"
    (result,) = lint(text, SCHEMA).results
    assert result.warnings == ("rrf ranks $p and $q: only the ranking of $p counts",)
    (result,) = lint(text.replace("$q.bio", "$p.bio"), SCHEMA).results
    assert result.warnings == ()
