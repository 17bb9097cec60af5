"""Rankings among the rows of a pattern: prefiltered, cut exactly, ties resolved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRequest
from omnigraph.graph import Graph
from tests.exec.world import graph_of

SCHEMA = """
node D { k: String @key  n: I32?  t: String?  v: Vector(2)? }
node C { k: String @key }
edge In: D -> C
"""
WORDS = ("cat", "dog", "cat dog", "cat cat fish", None, "fish", "dog fish cat")
GRID = (0.0, 1.0, 2.0)  # few places, so many ties
DOCS: list[dict[str, Any]] = [
    {
        "k": f"d{(n * 7) % 20:02d}",
        "n": n % 3,
        "t": WORDS[n % len(WORDS)],
        "v": None if n % 6 == 5 else [GRID[n % 3], GRID[(n // 3) % 3]],
    }
    for n in range(20)
]
LINKS = [
    {"id": f"l{n}{c}", "src": doc["k"], "dst": f"c{c}"}
    for n, doc in enumerate(DOCS)
    for c in range(n % 4)
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    nodes = {"D": DOCS, "C": [{"k": f"c{c}"} for c in range(3)]}
    path = Path(tmp_path_factory.mktemp("rank")) / "g"
    with graph_of(path, SCHEMA, nodes, {"In": LINKS}) as made:
        yield made


@pytest.fixture(params=("auto", "indexed", "csr"), autouse=True)
def _mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", request.param)


def ask(graph: Graph, match: str, order: str, limit: int | None, returned: str = "$d") -> list[Any]:
    cut = "" if limit is None else f" limit {limit}"
    text = f"query q() {{ match {{ {match} }} return {{ {returned} }} order {{ {order} }}{cut} }}"
    return [tuple(row.values()) for row in graph.query(text)]


def far(doc: dict[str, Any]) -> float:
    return float(((doc["v"][0] - 1.0) ** 2 + (doc["v"][1] - 0.5) ** 2) ** 0.5)


NEAREST = "nearest($d.v, [1, 0.5])"


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 13, 100])
def test_the_nearest_are_cut_as_if_all_were_sorted(graph: Graph, limit: int) -> None:
    near = sorted((doc for doc in DOCS if doc["v"]), key=lambda doc: (far(doc), doc["k"]))
    assert ask(graph, "$d: D", NEAREST, limit) == [(doc["k"],) for doc in near[:limit]]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 13, 100])
def test_a_second_key_decides_between_ties_at_the_cut(graph: Graph, limit: int) -> None:
    near = [doc for doc in DOCS if doc["v"] and doc["n"] != 1]
    near.sort(key=lambda doc: doc["k"])
    near.sort(key=lambda doc: (far(doc), -doc["n"]))
    found = ask(graph, "$d: D  $d.n != 1", f"{NEAREST}, $d.n desc", limit)
    assert found == [(doc["k"],) for doc in near[:limit]]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 13, 100])
def test_rows_of_one_entity_are_ranked_with_it(graph: Graph, limit: int) -> None:
    docs = {doc["k"]: doc for doc in DOCS}
    rows = [(link["src"], link["dst"]) for link in LINKS if docs[link["src"]]["v"]]
    rows.sort(key=lambda row: (far(docs[row[0]]), row[0], row[1]))
    assert ask(graph, "$d in $c", NEAREST, limit, "$d, $c") == rows[:limit]


@pytest.mark.parametrize("match", ["$d: D", "$d: D  $d.n != 1", "$d in $c"])
def test_a_cut_by_text_is_a_prefix_of_the_whole(graph: Graph, match: str) -> None:
    order = 'bm25($d.t, "cat fish")'
    whole = ask(graph, match, order, None, "$d, $d.t")
    assert whole
    assert all(text and ("cat" in text or "fish" in text) for _, text in whole)
    for limit in range(len(whole) + 1):
        assert ask(graph, match, order, limit, "$d, $d.t") == whole[:limit]


@pytest.mark.parametrize("limit", [1, 3, 6, 30])
def test_fusion_adds_reciprocal_ranks(graph: Graph, limit: int) -> None:
    text, near = 'bm25($d.t, "cat fish")', NEAREST
    by_text = [row[0] for row in ask(graph, "$d: D", text, None)]
    by_distance = [row[0] for row in ask(graph, "$d: D", near, limit)]
    scores: dict[str, float] = {}
    for arm in (by_distance, by_text):
        for rank, key in enumerate(arm):
            scores[key] = scores.get(key, 0.0) + 1 / (10 + rank + 1)
    absent = len(DOCS)
    place = {
        key: tuple(arm.index(key) if key in arm else absent for arm in (by_distance, by_text))
        for key in scores
    }
    expected = sorted(scores, key=lambda key: (-round(scores[key], 12), place[key]))
    found = ask(graph, "$d: D", f"rrf({near}, {text}, 10)", limit)
    assert [row[0] for row in found] == expected[:limit]


def test_a_score_may_be_asked_for_without_ordering_by_it(graph: Graph) -> None:
    rows = ask(graph, "$d: D", "$d.k", None, f"$d, {NEAREST} as far")
    expected = {doc["k"]: None if doc["v"] is None else pytest.approx(far(doc)) for doc in DOCS}
    assert dict(rows) == expected


def test_fusion_needs_a_sensible_k(graph: Graph) -> None:
    text = (
        "query q($k: I32) { match { $d: D } return { $d } "
        f'order {{ rrf({NEAREST}, bm25($d.t, "cat"), $k) }} limit 3 }}'
    )
    with pytest.raises(BadRequest, match="the k of rrf is 0"):
        graph.query(text, {"k": 0})


def test_text_conditions_hold_for_rows_inside_blocks(graph: Graph) -> None:
    found = ask(graph, '$c: C  not { $d in $c  search($d.t, "fish") }', "$c.k", None, "$c")
    docs = {doc["k"]: doc for doc in DOCS}
    fishy = {link["dst"] for link in LINKS if "fish" in (docs[link["src"]]["t"] or "")}
    assert [row[0] for row in found] == sorted({"c0", "c1", "c2"} - fishy)
    either = ask(graph, '$d: D  (search($d.t, "fish") or $d.n = 0)', "$d.k", None)
    wanted = [doc["k"] for doc in DOCS if "fish" in (doc["t"] or "") or doc["n"] == 0]
    assert [row[0] for row in either] == sorted(wanted)
