"""Every worked example of the query language, and every golden query, against their data."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import BadRequest
from omnigraph.graph import Graph
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan.compile import plan_query
from omnigraph.plan.ir import Parameter, ReadPlan
from omnigraph.plan.mutation_ir import MutationPlan
from omnigraph.types import Scalar
from tests.exec.people import FIXTURES, people

ACCEPTED = sorted((FIXTURES / "accept").glob("*.gq"))
MODES = ("auto", "indexed", "csr")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with people(Path(tmp_path_factory.mktemp("examples")) / "g") as made:
        yield made


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", request.param)
    return str(request.param)


def from_(pattern: str, returned: str = "$b.name as n", rest: str = "") -> str:
    return f"query q() {{ match {{ {pattern} }} return {{ {returned} }} {rest} }}"


ADA, DEE = '$a: Person { name: "Ada" }', '$a: Person { name: "Dee" }'
DOCS = "query q() { match { $d: Doc } return { $d.slug as s }"

EXAMPLES: list[tuple[str, str, dict[str, Any], list[dict[str, Any]]]] = [
    (
        "1 null and !=",
        "query q1() { match { $p: Person  $p.age != 36 } return { $p.name } }",
        {},
        [{"p.name": "Bob"}],
    ),
    (
        "2 inline binding",
        "query q2($n: String) { match { $p: Person { name: $n } } return { $p, $p.city as city } }",
        {"n": "Ada"},
        [{"p": "Ada", "city": "London"}],
    ),
    ("3 parallel edges collapse", from_(f"{ADA}  $a knows $b"), {}, [{"n": "Bob"}]),
    (
        "4 edge binding keeps them",
        from_(
            f"{ADA}  $a $k:knows $b", "$b.name as who, $k.since as since", "order { since desc }"
        ),
        {},
        [{"who": "Bob", "since": 2015}, {"who": "Bob", "since": 2010}],
    ),
    (
        "5 multi-hop with a cycle",
        from_(f"{ADA}  $a knows{{1,3}} $b", rest="order { n }"),
        {},
        [{"n": "Bob"}, {"n": "Cy"}],
    ),
    ("5 from two hops on", from_(f"{ADA}  $a knows{{2,3}} $b"), {}, [{"n": "Cy"}]),
    ("6 self loop", from_(f"{DEE}  $a knows $b"), {}, [{"n": "Dee"}]),
    ("6 self loop once", from_(f"{DEE}  $a knows{{1,4}} $b"), {}, [{"n": "Dee"}]),
    ("6 self loop from two on", from_(f"{DEE}  $a knows{{2,4}} $b"), {}, []),
    (
        "7 undirected",
        from_('$a: Person { name: "Cy" }  $a <knows> $b', rest="order { n }"),
        {},
        [{"n": "Ada"}, {"n": "Bob"}],
    ),
    (
        "8 direction by type",
        from_('$c: Company { name: "Acme" }  $c worksAt $b', rest="order { n }"),
        {},
        [{"n": "Ada"}, {"n": "Bob"}],
    ),
    ("9 negation", from_("$b: Person  not { $b worksAt $_ }"), {}, [{"n": "Dee"}]),
    (
        "9 negation with a filter",
        from_('$b: Person  not { $b worksAt $c  $c.name = "Acme" }'),
        {},
        [{"n": "Cy"}, {"n": "Dee"}],
    ),
    (
        "10 grouping with a null group",
        from_(
            "$p: Person",
            "$p.city as city, count($p) as n, avg($p.age) as avg_age",
            "order { city }",
        ),
        {},
        [
            {"city": None, "n": 1, "avg_age": 36.0},
            {"city": "London", "n": 2, "avg_age": 36.0},
            {"city": "Paris", "n": 1, "avg_age": 25.0},
        ],
    ),
    (
        "11 aggregate over nothing",
        from_('$p: Person { name: "Nobody" }', "count($p) as n, max($p.age) as m"),
        {},
        [{"n": 0, "m": None}],
    ),
    (
        "11 groups of nothing",
        from_('$p: Person { name: "Nobody" }', "$p.city, count($p) as n, max($p.age) as m"),
        {},
        [],
    ),
    (
        "12 order, ties, limit",
        from_("$p: Person", "$p.name as n, $p.age as age", "order { $p.age desc } limit 3"),
        {},
        [{"n": "Ada", "age": 36}, {"n": "Dee", "age": 36}, {"n": "Bob", "age": 25}],
    ),
    (
        "12 nulls last when descending",
        from_("$p: Person", "$p.name as n", "order { $p.age desc }"),
        {},
        [{"n": "Ada"}, {"n": "Dee"}, {"n": "Bob"}, {"n": "Cy"}],
    ),
    (
        "12 nulls first when ascending",
        from_("$p: Person", "$p.name as n", "order { $p.age asc }"),
        {},
        [{"n": "Cy"}, {"n": "Bob"}, {"n": "Ada"}, {"n": "Dee"}],
    ),
    (
        "13 membership and prefix",
        'query q13($t: String) { match { $p: Person { tags: $t }  $p.name starts_with "A" } '
        "return { $p.name } }",
        {"t": "code"},
        [{"p.name": "Ada"}],
    ),
    (
        "13 contains",
        'query q13($t: String) { match { $p: Person  $p.tags contains $t  $p.name starts_with "A" }'
        " return { $p.name } }",
        {"t": "code"},
        [{"p.name": "Ada"}],
    ),
    (
        "14 cross join",
        from_(
            "$a: Person  $b: Person  $a.age > $b.age", "$a.name as x, $b.name as y", "order { x }"
        ),
        {},
        [{"x": "Ada", "y": "Bob"}, {"x": "Dee", "y": "Bob"}],
    ),
    (
        "15 count of pattern rows",
        from_("$c: Company  $p worksAt $c", "$c.name as c, count($p) as staff", "order { c }"),
        {},
        [{"c": "Acme", "staff": 2}, {"c": "Zeta", "staff": 1}],
    ),
    ("15 nodes are counted", from_(f"{ADA}  $a knows $b", "count($b) as n"), {}, [{"n": 1}]),
    ("15 edges are counted", from_(f"{ADA}  $a $k:knows $b", "count($b) as n"), {}, [{"n": 2}]),
    (
        "16 cycle closing",
        from_("$a: Person  $a knows $b  $b knows $c  $c knows $a", "$a.name as n", "order { n }"),
        {},
        [{"n": "Ada"}, {"n": "Bob"}, {"n": "Cy"}, {"n": "Dee"}],
    ),
    (
        "17 vector ranking with a pre-filter",
        'query q17($q: Vector(2)) { match { $d: Doc  $d.slug != "b" } return { $d.slug as s } '
        "order { nearest($d.emb, $q) } limit 2 }",
        {"q": [1, 0]},
        [{"s": "a"}, {"s": "c"}],
    ),
    (
        "17 the distance itself",
        'query q17($q: Vector(2)) { match { $d: Doc  $d.slug != "b" } '
        "return { $d.slug as s, nearest($d.emb, $q) as far } order { far } limit 2 }",
        {"q": [1, 0]},
        [{"s": "a", "far": 0.0}, {"s": "c", "far": pytest.approx(2**0.5)}],
    ),
    (
        "18 text search",
        from_('$d: Doc  search($d.title, "graphs")', "$d.slug as s"),
        {},
        [{"s": "a"}, {"s": "b"}],
    ),
    (
        "18 ranking by text",
        f'{DOCS} order {{ bm25($d.title, "learning") }} limit 5 }}',
        {},
        [{"s": "d"}, {"s": "b"}],
    ),
    (
        "19 hybrid",
        "query q19($q: Vector(2), $t: String) { match { $d: Doc } return { $d.slug as s } "
        "order { rrf(nearest($d.emb, $q), bm25($d.title, $t)) } limit 3 }",
        {"q": [1, 0], "t": "learning"},
        [{"s": "b"}, {"s": "a"}, {"s": "d"}],
    ),
    (
        "19 the score itself",
        "query q19($q: Vector(2), $t: String) { match { $d: Doc } return { $d.slug as s, "
        "rrf(nearest($d.emb, $q), bm25($d.title, $t)) as r } order { r } limit 3 }",
        {"q": [1, 0], "t": "learning"},
        [
            {"s": "b", "r": pytest.approx(2 / 62)},
            {"s": "a", "r": pytest.approx(1 / 61)},
            {"s": "d", "r": pytest.approx(1 / 61)},
        ],
    ),
]


@pytest.mark.parametrize(
    ("text", "params", "expected"),
    [pytest.param(*example[1:], id=example[0]) for example in EXAMPLES],
)
def test_a_worked_example_gives_its_rows(
    graph: Graph, mode: str, text: str, params: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    assert graph.query(text, params).rows == expected


_SAMPLES: dict[Scalar, Any] = {
    Scalar.STRING: "learning",
    Scalar.BLOB: "aGk=",
    Scalar.BOOL: True,
    Scalar.DATE: "2024-01-31",
    Scalar.DATETIME: "2024-01-31T10:00:00Z",
    Scalar.F32: 1.5,
    Scalar.F64: 0.5,
}


def _sample(parameter: Parameter) -> Any:
    type_ = parameter.type
    if type_.is_vector:
        return [1.0] + [0.0] * ((type_.dimension or 1) - 1)
    value = _SAMPLES.get(type_.scalar, 2)
    return [value] if type_.is_list else value


def _shown(plan: ReadPlan) -> list[str]:
    """The names of a result's columns: one for the fields of an object."""
    names = [column.name for column in plan.columns]
    for shape in reversed(plan.object_columns):
        names[shape.start : shape.end] = [shape.name]
    return names


@pytest.mark.parametrize("path", ACCEPTED, ids=lambda path: path.stem)
def test_a_golden_query_runs(
    graph: Graph, mode: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "mock-embed")
    text = path.read_text()
    file = parse_queries(text)
    for query in file.queries:
        plan = plan_query(query, graph.schema.catalog, file.source)
        name = query.name.text
        if isinstance(plan, MutationPlan):
            with pytest.raises(BadRequest, match=f"query '{name}' contains mutations"):
                graph.query(text, name=name)
            continue
        assert isinstance(plan, ReadPlan)
        result = graph.query(path, {p.name: _sample(p) for p in plan.parameters}, name=name)
        assert result.columns == _shown(plan)
        assert result.to_arrow().num_rows == len(result) == len(result.rows)


@pytest.mark.parametrize(
    ("hops", "names"),
    [
        ("", ["Ada", "Bob"]),
        ("{1,1}", ["Ada", "Bob"]),
        ("{1,3}", ["Ada", "Bob"]),
        ("{2,2}", ["Bob"]),
        ("{2,3}", ["Bob"]),
    ],
)
@pytest.mark.usefixtures("mode")
def test_hop_ranges_over_self_edges_are_as_the_page_says(
    tmp_path: Path, hops: str, names: list[str]
) -> None:
    schema = "node Person { name: String @key }\nedge Knows: Person -> Person"
    ends = [("Ada", "Bob"), ("Ada", "Ada"), ("Bob", "Bob")]
    records = [{"type": "Person", "data": {"name": name}} for name in ("Ada", "Bob")]
    records += [{"edge": "Knows", "from": a, "to": b} for a, b in ends]
    with og.init(tmp_path / "g", schema) as graph:
        graph.load(records, "append", engine="local")
        rows = graph.query(from_(f"{ADA}  $a knows{hops} $b", rest="order { n }")).rows
    assert [row["n"] for row in rows] == names
    page = (Path(__file__).parents[2] / "docs" / "query-language.md").read_text(encoding="utf-8")
    [row] = [r for r in page.splitlines() if f"`knows{hops}`" in r and r.startswith("| `knows")]
    produced = row.rpartition(";")[0] or row  # after the semicolon stands who is not
    assert all(f"`{name}`" in produced for name in names)
