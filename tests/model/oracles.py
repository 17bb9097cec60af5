"""Oracles: ways to read one branch that must all give the rows of the model."""

import io
import math
from typing import Any

import orjson

import omnigraph as og
from tests.model.data import SCALARS, WORDS, Row, Rows, State, differences, filled

ALL_P = "query q() {{ match {{ $x: P }} return {{ $x.key, {shown} }} }}"
ALL_Q = "query q() { match { $x: Q } return { $x.key, $x.n } }"
COUNT = "query q() {{ match {{ $x: {type} }} return {{ count(*) as n }} }}"
COUNT_EDGES = "query q() {{ match {{ $a: P  $a $k: {edge} $b }} return {{ count(*) as n }} }}"
PAIRS = "query q() {{ match {{ $a: P  $a {edge} $b }} return {{ count(*) as n }} }}"
EDGES = (
    "query q() {{ match {{ $a: P  $a $k: {edge} $b }} "
    "return {{ $a.key as a, $b.key as b, $k.id as i, {shown} }} }}"
)
ONE = "query q($k: String) {{ match {{ $x: P {{ key: $k }} }} return {{ $x.key, {shown} }} }}"
OUT = "query q($k: String) { match { $x: P { key: $k }  $x k $y } return { $y.key as y } }"
IN = "query q($k: String) { match { $y: P { key: $k }  $x k $y } return { $x.key as x } }"
TWO = "query q() { match { $a: P  $a k $b  $b k $c } return { count(*) as n, sum($c.age) as s } }"
BY_AGE = "query q($n: I32) { match { $x: P  $x.age = $n } return { $x.key as k } }"
SUMS = "query q() {{ match {{ $a: P  $a $k: k $b }} return {{ {sums} }} }}"
SEARCH = "query q($w: String) { match { $x: P  search($x.bio, $w) } return { $x.key as k } }"
NEAREST = (
    "query q($v: Vector(4)) { match { $x: P } "
    "return { $x.key as k } order { nearest($x.v, $v) } limit 5 }"
)

Point = dict[str, str]
"""`branch=` or `snapshot=` of a query."""


def exported(graph: og.Graph, branch: str) -> Rows:
    """All rows of a branch, from an export."""
    out = io.BytesIO()
    graph.export(out, branch=branch)
    rows = Rows()
    for line in out.getvalue().splitlines():
        record = orjson.loads(line)
        data = record["data"]
        if "edge" in record:
            key = (record["edge"], data.pop("id"))
            row: Row = {"src": record["from"], "dst": record["to"], **filled(data)}
        else:
            key = (record["type"], data.pop("id"))
            row = filled(data)
        assert key not in rows, f"the export has {key} twice"
        rows[key] = row
    return rows


def queried(graph: og.Graph, at: Point, state: State) -> Rows:
    """All rows of a point, from queries."""
    names = [*SCALARS, *state.extras]
    shown = ", ".join(f"$x.{name}" for name in names)
    rows = Rows()
    for record in graph.query(ALL_P.format(shown=shown), **at).rows:
        key = ("P", record["x.key"])
        assert key not in rows, f"the query returns {key} twice"
        rows[key] = filled({name: record[f"x.{name}"] for name in ["key", *names]})
    for record in graph.query(ALL_Q, **at).rows:
        key = ("Q", record["x.key"])
        assert key not in rows, f"the query returns {key} twice"
        rows[key] = filled({"key": record["x.key"], "n": record["x.n"]})
    for edge, type in (("k", "K"), ("l", "L")):
        names = ["w", *(state.extras if type == "K" else ())]
        shown = ", ".join(f"$k.{name}" for name in names)
        for record in graph.query(EDGES.format(edge=edge, shown=shown), **at).rows:
            key = (type, record["i"])
            assert key not in rows, f"the walk returns {key} twice"
            values = filled({name: record[f"k.{name}"] for name in names})
            rows[key] = {"src": record["a"], "dst": record["b"], **values}
    return rows


def require_equal(where: str, seen: Any, expected: Any) -> None:
    """Fail with both values when they differ."""
    assert seen == expected, f"{where}: {seen!r}, expected {expected!r}"


def require_rows(where: str, seen: Rows, expected: Rows) -> None:
    """Fail with the first rows that differ."""
    assert seen == expected, f"{where}: {differences(seen, expected)}"


def check_point(graph: og.Graph, where: str, at: Point, state: State, probe: int) -> None:
    """Hold all cheap ways to read one point against the model. `probe` chooses the lookups."""
    require_rows(f"{where}: rows", queried(graph, at, state), state.rows)
    people, edges = state.of("P"), state.of("K")
    for type in ("P", "Q"):
        n = graph.query(COUNT.format(type=type), **at).scalar()
        require_equal(f"{where}: count {type}", n, len(state.of(type)))
    for edge, type in (("k", "K"), ("l", "L")):
        n = graph.query(COUNT_EDGES.format(edge=edge), **at).scalar()
        require_equal(f"{where}: count {type}", n, len(state.of(type)))
        n = graph.query(PAIRS.format(edge=edge), **at).scalar()
        pairs = {(row["src"], row["dst"]) for row in state.of(type).values()}
        require_equal(f"{where}: pairs of {type}", n, len(pairs))
    _check_lookups(graph, where, at, state, people, edges, probe)
    _check_sums(graph, where, at, state, people, edges)


def _check_lookups(
    graph: og.Graph,
    where: str,
    at: Point,
    state: State,
    people: dict[str, Row],
    edges: dict[str, Row],
    probe: int,
) -> None:
    names = [*SCALARS, *state.extras]
    one = ONE.format(shown=", ".join(f"$x.{name}" for name in names))
    known = sorted(people)
    keys = [known[probe % len(known)]] if known else []
    for key in [*keys, f"p{probe % 200:04d}"]:
        found = graph.query(one, {"k": key}, **at).rows
        seen = [filled({n: row[f"x.{n}"] for n in ["key", *names]}) for row in found]
        require_equal(f"{where}: lookup {key}", seen, [people[key]] if key in people else [])
        out = sorted(row["y"] for row in graph.query(OUT, {"k": key}, **at).rows)
        want = sorted({row["dst"] for row in edges.values() if row["src"] == key})
        require_equal(f"{where}: out of {key}", out, want)
        into = sorted(row["x"] for row in graph.query(IN, {"k": key}, **at).rows)
        want = sorted({row["src"] for row in edges.values() if row["dst"] == key})
        require_equal(f"{where}: into {key}", into, want)
    age = probe % 23
    found = {row["k"] for row in graph.query(BY_AGE, {"n": age}, **at).rows}
    want = {key for key, row in people.items() if row.get("age") == age}
    require_equal(f"{where}: age = {age}", sorted(found), sorted(want))


def _check_sums(
    graph: og.Graph,
    where: str,
    at: Point,
    state: State,
    people: dict[str, Row],
    edges: dict[str, Row],
) -> None:
    names = ["w", *state.extras]
    sums = ", ".join(f"sum($k.{name}) as {name}" for name in names)
    (row,) = graph.query(SUMS.format(sums=sums), **at).rows
    for name in names:
        values = [edge[name] for edge in edges.values() if name in edge]
        require_equal(f"{where}: sum of K.{name}", row[name], sum(values) if values else None)
    (row,) = graph.query(TWO, **at).rows
    pairs = {(edge["src"], edge["dst"]) for edge in edges.values()}  # parallel edges count once
    after: dict[str, list[str]] = {}
    for src, dst in pairs:
        after.setdefault(src, []).append(dst)
    last = [c for _, dst in pairs for c in after.get(dst, ())]
    ages = [people[c]["age"] for c in last if "age" in people[c]]
    require_equal(f"{where}: two hops", row["n"], len(last))
    require_equal(f"{where}: ages after two hops", row["s"], sum(ages) if ages else None)


def check_export(graph: og.Graph, where: str, branch: str, state: State) -> None:
    """Hold an export against the model."""
    require_rows(f"{where}: export", exported(graph, branch), state.rows)


def check_search(graph: og.Graph, where: str, at: Point, state: State, probe: int) -> None:
    """Hold searches of words and vectors against brute force."""
    people = state.of("P")
    word = WORDS[probe % len(WORDS)]
    found = sorted(row["k"] for row in graph.query(SEARCH, {"w": word}, **at).rows)
    want = sorted(key for key, row in people.items() if word in row.get("bio", "").split())
    require_equal(f"{where}: search {word}", found, want)
    vector = [float(probe % 5), float(probe % 7), float(probe % 11), 1.0]
    near = [row["k"] for row in graph.query(NEAREST, {"v": vector}, **at).rows]
    away = {key: math.dist(row["v"], vector) for key, row in people.items() if "v" in row}
    require_equal(f"{where}: nearest, how many", len(near), min(5, len(away)))
    best = sorted(away.values())[: len(near)]
    require_equal(f"{where}: nearest", [away.get(key) for key in near], best)
