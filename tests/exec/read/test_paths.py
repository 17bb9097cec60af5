"""Walks with conditions, paths, interfaces, stages and unions over the people of the examples.

The random queries compare them with the naive evaluator; here are cases that a reader can check.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.costs import COSTS
from omnigraph.errors import ExpressionFailed, LimitExceeded
from omnigraph.exec.limits import Limits
from omnigraph.exec.read.reading import Reading
from omnigraph.graph import Graph
from tests.exec.world import graph_of

SCHEMA = """
interface Named { name: String }
node Stop implements Named { zone: I32?  name: String @key }
node Shop implements Named { name: String @key }
edge Road: Stop -> Stop { km: F64?  open: Bool }
edge In: Shop -> Stop
"""
ROADS = [
    ("a", "b", 1.0, True),
    ("a", "b", 9.0, True),
    ("b", "d", 1.0, True),
    ("a", "c", 5.0, False),
    ("c", "d", 1.0, True),
    ("d", "e", 0.0, True),
    ("e", "e", 2.0, True),
    ("e", "a", None, True),
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    folder = Path(tmp_path_factory.mktemp("paths")) / "g"
    stops = [{"name": name, "zone": zone} for zone, name in enumerate("abcde")]
    shops = [{"name": "x"}, {"name": "y"}]
    roads = [
        {"id": f"r{n}", "src": a, "dst": b, "km": km, "open": is_open}
        for n, (a, b, km, is_open) in enumerate(ROADS)
    ]
    inside = [{"id": "i0", "src": "x", "dst": "b"}, {"id": "i1", "src": "y", "dst": "e"}]
    nodes = {"Stop": stops, "Shop": shops}
    with graph_of(folder, SCHEMA, nodes, {"Road": roads, "In": inside}) as made:
        yield made


def rows(graph: Graph, body: str, **params: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in graph.query(f"query q() {{ {body} }}", params).rows]


FROM_A = '$a: Stop { name: "a" }'


@pytest.mark.parametrize(
    ("pattern", "columns", "expected"),
    [
        ("$a $k:road{1,2} $b where $k.open", "$b", [("b",), ("d",)]),
        ("$a $k:road* $b where $k.open = false", "$b", [("c",)]),
        ("$a road* $b via $n where $n.zone != 3", "$b", [("b",), ("c",), ("d",)]),
        ("$p = $a road{1,3} $b", "$b, length($p)", [("b", 1), ("c", 1), ("d", 2), ("e", 3)]),
        (
            "$p = shortest $a road* $b  $b.zone > 2",
            "nodes($p) as n, edges($p) as e",
            [(["a", "b", "d"], ["r0", "r2"]), (["a", "b", "d", "e"], ["r0", "r2", "r5"])],
        ),
        (
            '$p = all shortest $a road* $b  $b: Stop { name: "d" }',
            "edges($p) as e",
            [(["r0", "r2"],), (["r1", "r2"],), (["r3", "r4"],)],
        ),
        (
            "$p = shortest $a $k:road* $b by $k.km",
            "$b, cost($p) as km, length($p) as n",
            [("b", 1.0, 1), ("c", 5.0, 1), ("d", 2.0, 2), ("e", 2.0, 3)],
        ),
        (
            "$p = shortest $a $k:road{1,2} $b by 10 - $k.km",
            "$b, cost($p) as km",
            [("b", 1.0), ("c", 5.0), ("d", 10.0)],
        ),
        (
            "$p = path $b road{1,2} $a",
            "$b, nodes($p) as n",
            [("d", ["d", "e", "a"]), ("e", ["e", "a"])],
        ),
        ("$s: Shop  $a road|in{1,3} $s", "$s", [("x",)]),
        ("$s: Shop  $a <road|in>{1,2} $s", "$s", [("x",), ("y",)]),
        ("$a <_>{1,2} $s  $s: Named", "$s.name", [(n,) for n in "bcdexy"]),
    ],
)
def test_a_walk_from_one_stop(
    graph: Graph, pattern: str, columns: str, expected: list[tuple[Any, ...]]
) -> None:
    assert rows(graph, f"match {{ {FROM_A}  {pattern} }} return {{ {columns} }}") == expected


def test_sources_in_blocks_give_the_rows_of_all_at_once(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        "match { $a: Stop  $p = all shortest $a road* $b } return { $a, $b, nodes($p) as n }",
        "match { $a: Stop  $p = shortest $a $k:road* $b by $k.km } return { $a, $b, cost($p) }",
        "match { $a: Stop  $b: Stop  $p = shortest $a <road> $b } return { $a, $b, length($p) }",
    ]
    whole = [rows(graph, text) for text in texts]
    monkeypatch.setattr(COSTS, "path_cells_max", 10)
    monkeypatch.setattr(COSTS, "path_cells_weighted_max", 5)
    assert [rows(graph, text) for text in texts] == whole
    assert all(whole)


def test_a_weight_below_zero_names_its_edge(graph: Graph) -> None:
    text = f"match {{ {FROM_A}  $p = shortest $a $k:road* $b by $k.km - 5 }} return {{ cost($p) }}"
    with pytest.raises(ExpressionFailed, match=r"at least 0, not -4\.0 .* \$k = r0"):
        rows(graph, text)


def test_paths_stop_at_the_memory_of_a_query(graph: Graph) -> None:
    text = "query q() { match { $a: Stop  $p = all shortest $a road* $b } return { nodes($p) } }"
    graph.query(text)
    reading, whole = Reading(graph._store, Limits(memory_bytes_max=200)), graph._reading
    graph._reading = reading
    try:
        with pytest.raises(LimitExceeded, match="expand all paths"):
            graph.query(text)
    finally:
        graph._reading = whole
        reading.close()


def test_an_interface_is_every_type_that_implements_it(graph: Graph) -> None:
    assert rows(graph, "match { $x: Named } return { $x.name }") == [(n,) for n in "abcdexy"]
    grouped = "match { $x: Named  not { $x <_> $y  $y: Shop } } return { count(*) as n }"
    assert rows(graph, grouped) == [(5,)]
    assert rows(graph, 'match { $x: Named { name: "y" }  $x in $s } return { $x.*, $s }') == [
        ("y", "e")
    ]


def test_a_stage_hands_on_its_rows(graph: Graph) -> None:
    text = """match { $a: Stop  $a $k:road $b } with { $a, count(*) as n } order { n desc } limit 1
              match { $a road $c  $n > 1 } return { $a, $n, $c }"""
    assert rows(graph, text) == [("a", 3, "b"), ("a", 3, "c")]
    total = (
        "match { $a: Stop } with { count(*) as n } match { $s: Shop } return { $s, $n * 2 as m }"
    )
    assert rows(graph, total) == [("x", 10), ("y", 10)]


def test_a_union_keeps_the_order_of_its_reads(graph: Graph) -> None:
    first = "match { $s: Shop } return { $s.name as name } order { name desc }"
    second = "match { $s: Stop  $s.zone < 2 } return { $s.name }"
    assert rows(graph, f"{first} union all {second}") == [("y",), ("x",), ("a",), ("b",)]
    assert rows(graph, f"{second} union {second} union all {first} limit 1") == [
        ("a",),
        ("b",),
        ("y",),
    ]
    explained = graph.query(f"query q() {{ {first} union {second} }}").explain()
    assert explained.count("read q()") == 2
