"""Ends of edges by the keys of their nodes, in every input: lines, records, columns, parameters."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from tests.remote.both import Maker

MOMENT = datetime(2024, 1, 2, 3, 4, tzinfo=UTC)
KEYS = [
    ("I64", 5, 5, "5", "5"),
    ("U32", 7, 7, "7", "7"),
    ("Bool", True, True, "true", "true"),
    ("Date", date(2024, 1, 2), "2024-01-02", 'date("2024-01-02")', "19724"),
    (
        "DateTime",
        MOMENT,
        "2024-01-02T03:04:00Z",
        'datetime("2024-01-02T03:04:00Z")',
        "1704164640000",
    ),
    ("F64", 2.5, 2.5, "2.5", "2.5"),
    ("String", "x", "x", '"x"', "x"),
]
Write = Callable[[og.Graph, str, Any, Any, str], object]


def _line(*records: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, records)).encode()


WRITES: dict[str, Write] = {
    "graph lines": lambda g, _, __, text, ___: g.load(
        _line({"edge": "E", "from": text, "to": text}), "append"
    ),
    "flat lines": lambda g, _, __, text, ___: g.load(
        _line({"from": text, "to": text}), "append", edge="E"
    ),
    "lines of two kinds": lambda g, _, __, text, ___: g.load(
        _line({"edge": "E", "from": [text], "to": text}, {"edge": "E", "from": text, "to": [text]}),
        "append",
    ),
    "graph records": lambda g, _, key, __, ___: g.load(
        [{"edge": "E", "from": key, "to": key}], "append"
    ),
    "flat records": lambda g, _, key, __, ___: g.load(
        [{"from": key, "to": key}], "append", edge="E"
    ),
    "arrays of one value": lambda g, _, key, __, ___: g.load(
        [{"from": (key,), "to": [key]}], "append", edge="E"
    ),
    "columns": lambda g, _, key, __, ___: g.load(
        pa.table({"from": [key], "to": [key]}), "append", edge="E"
    ),
    "parameters": lambda g, scalar, key, __, ___: g.mutate(
        f"query add($k: {scalar}) {{ insert E {{ from: $k, to: $k }} }}", {"k": key}
    ),
    "literals": lambda g, _, __, ___, literal: g.mutate(
        f"query add() {{ insert E {{ from: {literal}, to: {literal} }} }}"
    ),
    "rows of a match": lambda g, *_: g.mutate(
        "query add() { insert E { from: $n.k, to: $m.k } match { $n: N  $m: N } }"
    ),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(("scalar", "key", "text", "literal", "entity"), KEYS)
def test_an_end_is_named_by_the_key_of_its_node(
    new: Maker, scalar: str, key: Any, text: Any, literal: str, entity: str, write: str
) -> None:
    graph = new(f"node N {{ k: {scalar} @key }}\nedge E: N -> N")
    graph.load([{"k": key}], "append", type="N")
    WRITES[write](graph, scalar, key, text, literal)
    ends = graph.query(
        "query ends() { match { $a: N  $a e $b } return { $a.id as a, $b.id as b } }"
    )
    assert list(ends)
    assert all(row == {"a": entity, "b": entity} for row in ends)


def test_a_key_of_another_type_is_refused_with_what_an_end_may_be(new: Maker) -> None:
    graph = new("node N { k: I64 @key }\nedge E: N -> N")
    with pytest.raises(og.ConstraintViolated, match=r"must be a string or a key \(I64\), not a b"):
        graph.load(_line({"edge": "E", "from": True, "to": 5}), "append")
    with pytest.raises(og.TypeCheckError, match=r"E.from has type I64, \$k is Bool"):
        graph.mutate("query add($k: Bool) { insert E { from: $k, to: $k } }", {"k": True})
