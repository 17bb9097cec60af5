"""The interactive reads of LDBC SNB: the answers of the naive evaluator, and of plain Python."""

from collections import Counter, deque
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

import omnigraph as og
from omnigraph.catalog.model import EdgeType
from omnigraph.graph import Graph
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan.compile import compile_query
from omnigraph.plan.ir import ReadPlan
from omnigraph.plan.params import bind_parameters
from tests.exec import snb
from tests.exec.reference import Data, Reference

TEXT = (snb.FOLDER / "interactive.gq").read_text(encoding="utf-8")
READS = [query.name.text for query in parse_queries(TEXT).queries if not query.is_mutation]
MIDDLE, LATE = "2011-01-02T12:00:00Z", "2011-01-05T00:00:00Z"
GIVEN: dict[str, list[dict[str, Any]]] = {
    **{name: [{"person": n} for n in (0, 3, 7, 23)] for name in ("is1", "is2", "is3")},
    **{name: [{"message": n} for n in (0, 61, 149)] for name in ("is4", "is5", "is6", "is7")},
    "ic1": [{"person": n, "name": "Bob"} for n in (0, 3)],
    "ic2": [{"person": n, "before": LATE} for n in (0, 3)],
    "ic3": [{"person": 3, "x": "Chile", "y": "Norway", "start": MIDDLE, "days": 3}],
    "ic4": [{"person": n, "start": MIDDLE, "end": LATE} for n in (0, 3)],
    "ic5": [{"person": n, "after": MIDDLE} for n in (0, 3)],
    "ic6": [{"person": n, "tag": "Blue"} for n in (0, 3)],
    "ic7": [{"person": n} for n in (0, 3)],
    "ic8": [{"person": n} for n in (0, 3)],
    "ic9": [{"person": n, "before": LATE} for n in (0, 3)],
    "ic10": [{"person": n, "month": m} for n in (0, 3) for m in (1, 5, 12)],
    "ic11": [{"person": n, "country": "Chile", "year": 2008} for n in (0, 3)],
    "ic12": [{"person": n, "class": "Work"} for n in (0, 3)],
    "ic13": [{"a": 0, "b": b} for b in (3, 9, 23)],
    "ic14": [{"a": 0, "b": b} for b in (3, 9, 23)],
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    schema = (snb.FOLDER / "schema.pg").read_text(encoding="utf-8")
    with og.init(tmp_path_factory.mktemp("snb") / "g", schema) as graph:
        graph.load(snb.lines(), "append")
        assert graph.mutate(TEXT, name="weigh_friendships").affected_edges
        yield graph


@pytest.fixture(scope="module")
def data(graph: Graph) -> Data:
    """Every table as dictionaries, moments and dates as the plan has them."""
    store, tables = graph._store, dict[Any, Any]()
    for each in graph.schema.catalog.types:
        rows = store.reader(store.snapshot(), each.table).rows(each.schema.names).to_pylist()
        tables[each.table] = [{k: _plain(v) for k, v in row.items()} for row in rows]
    return tables


def _plain(value: Any) -> Any:
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000)
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(v, 9) if isinstance(v, float) else v for name, v in row.items()}


def test_there_are_seven_short_and_fourteen_complex_reads() -> None:
    short, complex_ = (f"is{n}" for n in range(1, 8)), (f"ic{n}" for n in range(1, 15))
    assert READS == [*short, *complex_] == list(GIVEN)


@pytest.mark.parametrize("name", READS)
def test_the_answers_are_those_of_the_naive_evaluator(graph: Graph, data: Data, name: str) -> None:
    plan = compile_query(TEXT, graph.schema.catalog, name)
    assert isinstance(plan, ReadPlan)
    empty = 0
    for params in GIVEN[name]:
        given = bind_parameters(plan.parameters, params)
        expected = Reference(data, given).rows(plan)
        found = graph.query(TEXT, params, name=name).rows
        assert [_rounded(row) for row in found] == [_rounded(row) for row in expected]
        empty += not expected
    assert empty < len(GIVEN[name]), "parameters that find nothing show nothing"


# ---- plain Python, from the lines that were loaded


def edges(name: str) -> list[tuple[str, str, dict[str, Any]]]:
    return [(e["from"], e["to"], e["data"]) for e in snb.lines() if e.get("edge") == name]


def friends() -> dict[str, set[str]]:
    near: dict[str, set[str]] = {str(n): set() for n in range(snb.PEOPLE)}
    for a, b, _ in edges("Knows"):
        near[a].add(b)
        near[b].add(a)
    return near


def distances(start: str) -> dict[str, int]:
    near, reached, queue = friends(), {start: 0}, deque([start])
    while queue:
        at = queue.popleft()
        for other in near[at] - reached.keys():
            reached[other] = reached[at] + 1
            queue.append(other)
    return reached


def test_shortest_paths_are_those_of_a_breadth_first_search(graph: Graph) -> None:
    far = distances("0")
    for number in range(1, snb.PEOPLE):
        rows = graph.query(TEXT, {"a": 0, "b": number}, name="ic13").rows
        assert rows == ([{"steps": far[str(number)]}] if str(number) in far else [])


def test_the_posts_of_a_tag_are_counted_with_the_tags_beside_it(graph: Graph) -> None:
    near = {p for p, steps in distances("3").items() if 1 <= steps <= 2}
    tags: dict[str, set[str]] = {}
    for post, tag, _ in edges("Tagged_Post"):
        tags.setdefault(post, set()).add(tag)
    authors = {post: person for post, person, _ in edges("CreatedBy_Post")}
    counted = Counter(
        tag
        for post, those in tags.items()
        if "Blue" in those and authors[post] in near
        for tag in those - {"Blue"}
    )
    found = graph.query(TEXT, {"person": 3, "tag": "Blue"}, name="ic6").rows
    expected = sorted(counted.items(), key=lambda each: (-each[1], each[0]))
    assert [(row["other"], row["posts"]) for row in found] == expected


def test_the_root_of_a_conversation_is_where_its_replies_lead(graph: Graph) -> None:
    above = {a: b for name in ("ReplyTo_Post", "ReplyTo_Comment") for a, b, _ in edges(name)}
    forum = {post: number for number, post, _ in edges("Holds")}
    for number in range(snb.POSTS, snb.POSTS + 20):
        at = str(number)
        while at in above:
            at = above[at]
        (row,) = graph.query(TEXT, {"message": number}, name="is6").rows
        assert str(row["forum"]) == forum[at]


def test_friendships_are_weighed_by_replies(graph: Graph) -> None:
    post_by = {post: person for post, person, _ in edges("CreatedBy_Post")}
    comment_by = {comment: person for comment, person, _ in edges("CreatedBy_Comment")}
    replies = Counter((comment_by[c], post_by[p]) for c, p, _ in edges("ReplyTo_Post"))
    text = "query q() { match { $a $k:knows $b } return { $a, $b, $k.distance as d } }"
    for row in graph.query(text).rows:
        pair = (row["a"], row["b"])
        assert row["d"] == pytest.approx(1 / (1 + replies[pair] + replies[pair[::-1]]))


def test_every_edge_type_of_the_schema_has_edges(graph: Graph) -> None:
    snapshot = graph.snapshot()
    for each in graph.schema.catalog.types:
        assert snapshot.tables[each.table].row_count, each.name
        assert not isinstance(each, EdgeType) or each.source in graph.schema.catalog.nodes
