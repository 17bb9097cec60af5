"""`nearest` by l2, cosine and dot, from the query or from the schema: the order of plain Python.

Also what a ranking is followed by: more hops in the same query, and highlights.
"""

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.costs import COSTS
from omnigraph.graph import Graph

SCHEMA = """
node Doc {
    slug: String @key
    title: String? @index
    plain: Vector(3)?
    round: Vector(3)? @index @metric(cosine)
    long: Vector(3)? @metric("dot")
}
node Author { name: String @key }
edge Wrote: Author -> Doc
"""
COUNT = 300
QUERY = [0.5, -1.0, 2.0]


def vectors() -> dict[str, list[float] | None]:
    """Vectors of many lengths, one of zeros, and none for some; a few are equal."""
    chance = random.Random(7)
    made: dict[str, list[float] | None] = {"d000": [0.0, 0.0, 0.0], "d001": None}
    for number in range(2, COUNT):
        size = chance.choice([0.25, 1.0, 8.0])
        made[f"d{number:03}"] = [size * chance.randrange(-4, 5) for _ in range(3)]
    return made


def away(metric: str, vector: Sequence[float] | None) -> float | None:
    """The distance to the query, as the page defines it."""
    if vector is None:
        return None
    product = math.fsum(a * b for a, b in zip(vector, QUERY, strict=True))
    if metric == "l2":
        return math.dist(vector, QUERY)
    if metric == "dot":
        return 1 - product
    lengths = math.hypot(*vector) * math.hypot(*QUERY)
    return 1 - product / lengths if lengths else None


def expected(metric: str, count: int | None = None) -> list[tuple[str, float]]:
    known = [(name, away(metric, vector)) for name, vector in vectors().items()]
    ranked = [(name, number) for name, number in known if number is not None]
    return sorted(ranked, key=lambda each: (round(each[1], 9), each[0]))[:count]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with og.init(tmp_path_factory.mktemp("metrics") / "g", SCHEMA) as graph:
        lines: list[dict[str, object]] = [
            {
                "type": "Doc",
                "data": {"slug": slug, "title": slug, "plain": v, "round": v, "long": v},
            }
            for slug, v in vectors().items()
        ]
        lines += [{"type": "Author", "data": {"name": name}} for name in ("Ada", "Bob")]
        lines += [{"edge": "Wrote", "from": "Ada", "to": slug} for slug in vectors()]
        lines += [{"edge": "Wrote", "from": "Bob", "to": s} for s in vectors() if s[-1] in "02468"]
        graph.load(lines, "append")
        graph.optimize()
        yield graph


def asked(graph: Graph, call: str, count: int) -> list[tuple[str, float]]:
    text = f"query q() {{ match {{ $d: Doc }} return {{ $d.slug as s, {call} as n }} "
    rows = graph.query(text + f"order {{ {call} }} limit {count} }}").rows
    return [(row["s"], row["n"]) for row in rows]


def assert_same(found: list[tuple[str, float]], wanted: list[tuple[str, float]]) -> None:
    assert [n for _, n in found] == pytest.approx([n for _, n in wanted])
    near = {name: round(number, 9) for name, number in wanted}
    assert [near[name] for name, _ in found] == sorted(near.values())


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("count", [10, 1000])
def test_the_order_is_that_of_the_metric(graph: Graph, metric: str, count: int) -> None:
    for spelled in (metric, f'"{metric}"'):
        found = asked(graph, f"nearest($d.plain, {QUERY}, {spelled})", count)
        assert_same(found, expected(metric, count))


@pytest.mark.parametrize(
    ("column", "metric"), [("plain", "l2"), ("round", "cosine"), ("long", "dot")]
)
def test_a_property_has_a_metric_which_a_query_can_override(
    graph: Graph, column: str, metric: str
) -> None:
    assert_same(asked(graph, f"nearest($d.{column}, {QUERY})", 20), expected(metric, 20))
    assert_same(asked(graph, f"nearest($d.{column}, {QUERY}, dot)", 20), expected("dot", 20))


def test_a_column_too_large_to_keep_uses_an_index_of_its_metric_alone(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = graph._store.reader(graph.snapshot(), og.types.TableKey("node:Doc"))
    names = [index.name for index in reader.indexes() if index.column == "round"]
    assert [name.split(":")[1:] for name in names] == [["cosine", "vector"]]
    monkeypatch.setattr(COSTS, "vector_scan_bytes_max", 0)
    monkeypatch.setenv("OMNIGRAPH_CACHE_BYTES_MAX", "0")
    with og.open(graph.uri) as other:
        for metric in ("cosine", "l2"):
            found = asked(other, f"nearest($d.round, {QUERY}, {metric})", 10)
            assert_same(found, expected(metric, 10))


def test_a_metric_that_does_not_exist_is_refused_with_the_near_one(graph: Graph) -> None:
    with pytest.raises(og.TypeCheckError, match=r"T15.*\n.*\n.*\n.*did you mean 'cosine'"):
        asked(graph, f"nearest($d.plain, {QUERY}, cosin)", 1)
    for bad in ("@metric(cosin)", "@metric", "@metric(l2, x=1)"):
        with pytest.raises(og.ParseError, match="metric"):
            og.init("/nowhere", f"node D {{ v: Vector(2) {bad} }}")


def test_metadata_of_the_same_name_stays_metadata(tmp_path: Path) -> None:
    og.init(tmp_path / "g", 'node D { k: String @key  n: I32? @metric("km") }').close()
    with og.open(tmp_path / "g") as graph:
        assert '@metric("km")' in graph.schema.text


def test_a_ranking_is_followed_by_more_hops(graph: Graph) -> None:
    text = f"""query q() {{
        match {{ $d: Doc }}
        with {{ $d, nearest($d.plain, {QUERY}, cosine) as away }}
        order {{ nearest($d.plain, {QUERY}, cosine) }} limit 5
        match {{ $a wrote $d }}
        return {{ $d.slug as s, $away, $a.name as a }} order {{ $away, $d, $a }} }}"""
    found = graph.query(text).rows
    best = [slug for slug, _ in asked(graph, f"nearest($d.plain, {QUERY}, cosine)", 5)]
    pairs = [(slug, name) for slug in best for name in ("Ada", "Bob")]
    wanted = [(s, a) for s, a in pairs if a == "Ada" or s[-1] in "02468"]
    assert sorted((row["s"], row["a"]) for row in found) == sorted(wanted)


def test_the_words_that_a_search_finds_are_marked(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        title = "Graphs, and a database of the GRAPH-database: café"
        add = 'query q($t: String) { insert Doc { slug: "a", title: $t } }'
        graph.mutate(add, {"t": title})
        text = """query q($q: String) { match { $d: Doc  search($d.title, $q) }
            return { highlight($d.title, $q) as h, highlight($d.title, $q, "<", ">") as m } }"""
        (row,) = graph.query(text, {"q": "graphing the databases cafe"}).rows
        assert row["h"] == "**Graphs**, and a **database** of the **GRAPH**-**database**: **café**"
        assert row["m"] == "<Graphs>, and a <database> of the <GRAPH>-<database>: <café>"
        with pytest.raises(og.TypeCheckError, match="T25"):
            graph.query('query q() { match { $d: Doc } return { highlight($d.title, "a", "b") } }')
