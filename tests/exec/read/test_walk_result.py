"""The result of a walk over few rows: ordered, ranked and cut as the operators do it.

Random chains reach few rows and no ranking, so here a hub has many friends whose values tie, are
null, or have no rank.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.graph import Graph
from tests.exec.read.test_random_queries import answers
from tests.exec.world import graph_of

SCHEMA = """
node P { k: String @key  i: I32?  s: String?  d: Date?  b: Bool?  t: String?  v: Vector(2)? }
edge E: P -> P { w: I32? }
"""
QUERY = """query q($v: Vector(2), $t: String) {{
  match {{ $h: P {{ k: "hub" }}  $h $e:e $f {condition} }}
  return {{ $f.k as k, $f.i as i, $f.s as s, $e.w as w{columns} }}
  {order} limit {limit}{offset} }}"""

NUMBERS = st.none() | st.integers(-1, 1)
VECTORS = st.none() | st.lists(st.sampled_from([0, 1, 2, 1e30]), min_size=2, max_size=2)
FRIENDS = st.lists(
    st.fixed_dictionaries(
        {
            "i": NUMBERS,
            "s": st.none() | st.sampled_from(["", "a", "ä", "z", "😀"]),
            "d": st.none() | st.sampled_from(["1969-12-31", "1970-01-01"]),
            "b": st.none() | st.booleans(),
            "t": st.none() | st.sampled_from(["graph", "graph graph learning", "other words", ""]),
            "v": VECTORS,
        }
    ),
    max_size=12,
)
RANKINGS = ("nearest($f.v, $v)", "bm25($f.t, $t)")
KEYS = ("$f.i", "$f.s", "$f.d", "$f.b", "$e.w", "$f.k", *RANKINGS, *RANKINGS)
ORDERS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(["", " asc", " desc"])),
    max_size=3,
    unique_by=lambda key: key[0],
)


@st.composite
def queries(draw: st.DrawFn) -> str:
    keys = [
        key if "(" in key else f"{key}{direction}"  # a ranking has a direction of its own
        for key, direction in draw(ORDERS)
    ]
    shown = draw(st.sets(st.sampled_from([f"{ranking} as {ranking[:4]}" for ranking in RANKINGS])))
    return QUERY.format(
        condition=draw(st.sampled_from(["", "$f.i >= 0", "$f.b = true", "$e.w != 1"])),
        columns="".join(f", {column}" for column in sorted(shown)),
        order=f"order {{ {', '.join(keys)} }}" if keys else "",
        limit=draw(st.integers(0, 13)),
        offset=draw(st.sampled_from(["", " offset 1", " offset 3"])),
    )


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with graph_of(Path(tmp_path_factory.mktemp("hub")) / "g", SCHEMA) as made:
        yield made


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    friends=FRIENDS,
    weights=st.lists(NUMBERS, min_size=13, max_size=13),
    asked=st.lists(queries(), min_size=10, max_size=20),
    vector=st.sampled_from([[0, 0], [1, 1], [1e30, 0]]),
    words=st.sampled_from(["graph", "graph learning", "", "nothing such"]),
)
def test_the_result_of_few_rows_is_that_of_the_operators(
    graph: Graph,
    friends: list[dict[str, Any]],
    weights: list[int | None],
    asked: list[str],
    vector: list[float],
    words: str,
) -> None:
    # Keys that descend where values ascend: ties are broken by id, not by position.
    people = [{"k": f"{chr(122 - n)}", **friend} for n, friend in enumerate(friends)]
    people.append({"k": "hub"})
    edges = [
        {"edge": "E", "from": "hub", "to": person["k"], "data": {"w": weight, "id": person["k"]}}
        for person, weight in zip(people, weights, strict=False)
    ]
    nodes = [{"type": "P", "data": person} for person in people]
    graph.load(nodes + edges, "overwrite")
    for text in asked:
        params = {"v": vector, "t": words}
        expected = answers(graph, text, params, "csr", 0)
        for few_rows_max in (128, 3):
            assert answers(graph, text, params, "csr", few_rows_max) == expected, text


@pytest.mark.parametrize("keys", [RANKINGS, RANKINGS[::-1], RANKINGS[:1], RANKINGS[1:]])
def test_a_row_without_the_first_rank_takes_its_other_numbers_along(
    graph: Graph, keys: tuple[str, ...]
) -> None:
    texts = [None, "graph", None, "graph learning graph", None, "graph"]
    people = [{"k": f"p{n}", "v": [n, n] if n else None, "t": t} for n, t in enumerate(texts)]
    edges = [
        {"edge": "E", "from": "hub", "to": person["k"], "data": {"id": person["k"]}}
        for person in people
    ]
    nodes = [{"type": "P", "data": person} for person in [*people, {"k": "hub"}]]
    graph.load(nodes + edges, "overwrite")
    shown = ", ".join(("", *(f"{ranking} as {ranking[:4]}" for ranking in RANKINGS)))
    text = QUERY.format(
        condition="", columns=shown, order=f"order {{ {', '.join(keys)} }}", limit=10, offset=""
    )
    params = {"v": [0, 0], "t": "graph"}
    expected = answers(graph, text, params, "csr", 0)
    assert len(expected) == (5 if keys[0] == RANKINGS[0] else 3)
    assert answers(graph, text, params, "csr", 128) == expected
