"""A name that becomes that of another property, beside topology files and everything warm."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.graph import Graph

COUNT = 40
TYPES = {"n": "I32", "l": "[I32]", "v": "Vector(2)", "t": "String", "w": "F64"}
"""A property of each type, by its first letter; its second tells the two of a type apart."""


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def schema(first: str, second: str) -> str:
    """The schema whose properties of a kind are declared by two templates."""
    both = [form for form in (first, second) if form]
    declared = [
        f"  {form.format(p=letter, type=type_)}" for form in both for letter, type_ in TYPES.items()
    ]
    body = "\n".join(declared)
    return f"node P {{\n  key: String @key\n{body}\n}}\nedge K: P -> P {{\n{body}\n}}\n"


def columns(suffix: str, base: int) -> dict[str, Any]:
    numbers = [base + n for n in range(COUNT)]
    return {
        f"n{suffix}": pa.array(numbers, pa.int32()),
        f"l{suffix}": pa.array([[n, n] for n in numbers], pa.list_(pa.int32())),
        f"v{suffix}": pa.array([[n, 1] for n in numbers], pa.list_(pa.float32(), 2)),
        f"t{suffix}": [f"word{n} common{base}" for n in numbers],
        f"w{suffix}": [float(n) for n in numbers],
    }


def made(path: Path) -> Graph:
    graph = omnigraph.init(path, schema("{p}a: {type}?", "{p}b: {type}?"))
    ids = [f"p{n:03d}" for n in range(COUNT)]
    values = columns("a", 1) | columns("b", 1000)
    graph.load(pa.table({"key": ids, **values}), "append", type="P", engine="local")
    ends = {"src": ids, "dst": ids[1:] + ids[:1]}
    graph.load(pa.table({**ends, **values}), "append", edge="K", engine="local")
    return graph


def questions(suffix: str) -> list[str]:
    names = [f"{letter}{suffix}" for letter in TYPES]
    asked = []
    for name in names:
        asked += [
            f"query q() {{ match {{ $x: P }} return {{ $x.{name} as x }} order {{ $x.key asc }} }}",
            f'query q() {{ match {{ $x: P {{ key: "p003" }} }} return {{ $x.{name} as x }} }}',
            f'query q() {{ match {{ $x: P {{ key: "p003" }}  $x $k: k $y }} '
            f"return {{ $k.{name} as k, $y.{name} as y }} }}",
            f"query q() {{ match {{ $x: P  $x $k: k $y }} return {{ $k.{name} as k }} "
            "order { $x.key asc } }",
        ]
    asked += [
        f"query q() {{ match {{ $x: P  $x $k: k $y }} return {{ sum($k.n{suffix}) as n }} }}",
        f"query q() {{ match {{ $x: P {{ n{suffix}: 1003 }} }} return {{ $x.key as x }} }}",
        f'query q() {{ match {{ $x: P  search($x.t{suffix}, "common1000") }} '
        "return { count($x) as n } }",
        f"query q() {{ match {{ $x: P }} return {{ $x.key as x }} "
        f'order {{ bm25($x.t{suffix}, "word1003") }} limit 1 }}',
        f"query q() {{ match {{ $x: P }} return {{ $x.key as x }} "
        f"order {{ nearest($x.v{suffix}, [1003.0, 1.0]) }} limit 1 }}",
    ]
    return asked


def answers(graph: Graph, *suffixes: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for suffix in suffixes:
        for text in questions(suffix):
            told[text] = graph.query(text).rows
    return told


def test_a_warm_handle_reads_a_name_as_the_schema_has_it_now(tmp_path: Path) -> None:
    with made(tmp_path / "g") as graph:
        for _ in range(3):  # columns are loaded once they were read often
            answers(graph, "a", "b")

        graph.schema.apply(schema("{p}a: {type}?", ""), allow_data_loss=True)
        graph.schema.apply(schema("{p}a: {type}?", "{p}b: {type}?"))
        _require_as_fresh(graph, "a", "b")

        graph.schema.apply(schema("{p}a: {type}?", '{p}c: {type}? @rename_from("{p}b")'))
        graph.schema.apply(schema('{p}b: {type}? @rename_from("{p}a")', "{p}c: {type}?"))
        _require_as_fresh(graph, "b", "c")


def test_swapped_names_are_read_as_swapped(tmp_path: Path) -> None:
    with made(tmp_path / "g") as graph:
        for _ in range(3):
            answers(graph, "a", "b")
        steps = [
            ('{p}x: {type}? @rename_from("{p}a")', "{p}b: {type}?"),
            ("{p}x: {type}?", '{p}a: {type}? @rename_from("{p}b")'),
            ('{p}b: {type}? @rename_from("{p}x")', "{p}a: {type}?"),
        ]
        for step in steps:
            graph.schema.apply(schema(*step))
        _require_as_fresh(graph, "a", "b")
        text = "query q() { match { $x: P } return { sum($x.na) as a, sum($x.nb) as b } }"
        assert graph.query(text).rows == [
            {"a": sum(range(1000, 1000 + COUNT)), "b": sum(range(1, 1 + COUNT))}
        ]


def _require_as_fresh(graph: Graph, *suffixes: str) -> None:
    warm = answers(graph, *suffixes)
    with omnigraph.open(graph.uri) as fresh:
        for text, rows in answers(fresh, *suffixes).items():
            assert warm[text] == rows, text
