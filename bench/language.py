"""The query language beside DuckDB and Ladybug: what functions answer, and how long they take.

    python bench/language.py agree [--keep FILE]        # functions on extremes, beside DuckDB
    python bench/language.py speed [--rows N]           # expressions over N rows, beside DuckDB
    python bench/language.py paths [--nodes N --edges N]  # shortest paths, beside Ladybug

Times are processor time of the whole process, which others cannot lengthen; each engine has one
thread. The databases are those of the group `bench`.
"""

import argparse
import importlib
import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import omnigraph as og

BIG = 2**63 - 1
INTEGERS = [0, 1, -1, 7, -7, 2, 10**6, BIG, -BIG, -BIG - 1, None]
FLOATS = [0.0, -0.0, 1.0, -2.5, 2.5, 0.5, 1e-300, 1e300, -1e300, 3.7, 1e17, None]
TEXTS = ["", "a", "Ada Byron", " ada\t", "a-b-a", "雪 straße", "İ", "12", "-0.5", "a.b", None]
PARTS = ["", "a", "-", ".", "ß", "A", None]
DATES = ["1970-01-01", "2024-02-29", "1969-12-31", "0001-01-01", "9999-12-31", "2023-01-01", None]
COLUMNS = ("i", "j", "f", "g", "s", "p", "d")
SCHEMA = """node V {
    k: I64 @key  i: I64?  j: I64?  f: F64?  g: F64?  s: String?  p: String?  d: Date?
}"""
CALLS = {
    "$v.i + $v.j": "i + j",
    "$v.i * $v.j": "i * j",
    "$v.i / $v.j": "i / j",
    "$v.i % $v.j": "i % j",
    "div($v.i, $v.j)": "i // j",
    "-$v.i": "-i",
    "abs($v.i)": "abs(i)",
    "sign($v.f)": "sign(f)",
    "$v.f + $v.g": "f + g",
    "$v.f * $v.g": "f * g",
    "$v.f / $v.g": "f / g",
    "$v.f % $v.g": "f % g",
    "floor($v.f)": "floor(f)",
    "ceil($v.f)": "ceil(f)",
    "round($v.f)": "round(f)",
    "round($v.f, 1)": "round(f, 1)",
    "sqrt($v.f)": "sqrt(f)",
    "exp($v.f)": "exp(f)",
    "ln($v.f)": "ln(f)",
    "power($v.f, $v.g)": "pow(f, g)",
    "I64($v.f)": "CAST(f AS BIGINT)",
    "I32($v.i)": "CAST(i AS INTEGER)",
    "F64($v.i)": "CAST(i AS DOUBLE)",
    "I64($v.s)": "CAST(s AS BIGINT)",
    "String($v.i)": "CAST(i AS VARCHAR)",
    "$v.f < $v.g": "f < g",
    "$v.i = $v.f": "i = f",
    "$v.s + $v.p": "s || p",
    "lower($v.s)": "lower(s)",
    "upper($v.s)": "upper(s)",
    "trim($v.s)": "trim(s)",
    "length($v.s)": "length(s)",
    "substring($v.s, 1, 2)": "substring(s, 2, 2)",
    "substring($v.s, -2)": "substring(s, -2)",
    'replace($v.s, $v.p, "x")': "replace(s, p, 'x')",
    "split($v.s, $v.p)": "string_split(s, p)",
    "$v.s contains $v.p": "contains(s, p)",
    "$v.s starts_with $v.p": "starts_with(s, p)",
    "$v.s ends_with $v.p": "ends_with(s, p)",
    '$v.s matches "^a.*a$"': "regexp_matches(s, '^a.*a$')",
    "year($v.d)": "year(d)",
    "month($v.d)": "month(d)",
    "day($v.d)": "day(d)",
    "weekday($v.d)": "isodow(d)",
    'truncate($v.d, "week")': "date_trunc('week', d)::DATE",
    'truncate($v.d, "quarter")': "date_trunc('quarter', d)::DATE",
    "add_days($v.d, 1)": "d + 1",
    "coalesce($v.i, $v.j)": "coalesce(i, j)",
    "least($v.i, $v.j)": "least(i, j)",
    "greatest($v.f, $v.g)": "greatest(f, g)",
}
SPEED = {
    "arithmetic": (
        "count(*)",
        "$v.i * 3 + $v.j > 100 and $v.f / 2.0 < 0.3",
        "i * 3 + j > 100 AND f / 2.0 < 0.3",
    ),
    "text": (
        "count(*)",
        'lower($v.s) contains "a7" and length($v.s) > 4',
        "contains(lower(s), 'a7') AND length(s) > 4",
    ),
    "dates": (
        "count(*)",
        "year($v.d) = 2001 and month($v.d) > 6",
        "year(d) = 2001 AND month(d) > 6",
    ),
    "case": ("sum(case when $v.i % 2 = 0 then $v.i else 0 end)", "$v.j >= 0", "j >= 0"),
}
SQL_RETURNS = {"case": "sum(CASE WHEN i % 2 = 0 THEN i ELSE 0 END)"}

Answer = tuple[str, Any]
"""`value`, and what it is; or `error`."""


def _tried(ask: Callable[[], list[Any]]) -> list[Any] | None:
    try:
        return ask()
    except Exception:  # noqa: BLE001  whatever an engine raises, it is no value
        return None


def _answers(
    count: int, all_rows: Callable[[], list[Any]], row: Callable[[int], list[Any]]
) -> list[Answer]:
    """The answer of each row; one by one where one of them fails."""
    whole = _tried(all_rows)
    if whole is not None:
        return [("value", value) for value in whole]
    each = [_tried(lambda n=n: row(n)) for n in range(count)]  # type: ignore[misc]
    return [("error", None) if value is None else ("value", value[0]) for value in each]


def same(left: Answer, right: Answer) -> bool:
    if left[0] != right[0]:
        return False
    a, b = left[1], right[1]
    if isinstance(a, int | float) and isinstance(b, int | float) and not isinstance(a, bool):
        return a == b or math.isclose(a, b, rel_tol=1e-12) or (a != a and b != b)
    return bool(str(a) == str(b))


def _rows() -> list[tuple[Any, ...]]:
    """Values of each column, met with many of the others."""
    rows: list[tuple[Any, ...]] = []
    for n in range(max(map(len, (INTEGERS, FLOATS, TEXTS)))):
        for m in range(7):
            at = (n, n * 3 + m, n, n * 5 + m, n, m, n + m)
            columns = (INTEGERS, INTEGERS, FLOATS, FLOATS, TEXTS, PARTS, DATES)
            pairs = zip(columns, at, strict=True)
            rows.append(tuple(values[place % len(values)] for values, place in pairs))
    return rows


def our_answers(graph: og.Graph, call: str, count: int) -> list[Answer]:
    """What a call answers for each row of the graph."""
    tail = f" }} return {{ {call} as x }} order {{ $v.k }} }}"

    def asked(where: str, **params: int) -> list[Any]:
        text = f"query q($n: I64?) {{ match {{ $v: V{where}{tail}"
        return [row["x"] for row in graph.query(text, params).rows]

    return _answers(count, lambda: asked(""), lambda n: asked("  $v.k = $n", n=n))


def their_answers(duck: Any, call: str, count: int) -> list[Answer]:
    """The same of DuckDB."""

    def asked(rest: str) -> list[Any]:
        return [row[0] for row in duck.execute(f"SELECT {call} FROM v {rest}").fetchall()]

    return _answers(count, lambda: asked("ORDER BY k"), lambda n: asked(f"WHERE k = {n}"))


def filled(graph: og.Graph, rows: list[tuple[Any, ...]]) -> None:
    """Load the rows into a graph of `SCHEMA`."""
    named = [{"k": k, **dict(zip(COLUMNS, row, strict=True))} for k, row in enumerate(rows)]
    graph.load([{"type": "V", "data": each} for each in named], "append")


def agree(kept: str | None) -> None:
    """Print for each function whether DuckDB answers the same, and the first that differs; `kept`
    is a file that gets its answers."""
    rows, answers = _rows(), dict[str, list[Answer]]()
    with tempfile.TemporaryDirectory() as folder, og.init(Path(folder) / "g", SCHEMA) as graph:
        filled(graph, rows)
        duck: Any = importlib.import_module("duckdb").connect()
        kinds = "k BIGINT, i BIGINT, j BIGINT, f DOUBLE, g DOUBLE, s VARCHAR, p VARCHAR, d DATE"
        duck.execute(f"CREATE TABLE v({kinds})")
        each = [(k, *row) for k, row in enumerate(rows)]
        duck.executemany("INSERT INTO v VALUES (?, ?, ?, ?, ?, ?, ?, ?)", each)
        for ours, theirs in CALLS.items():
            mine = our_answers(graph, ours, len(rows))
            other = answers[ours] = their_answers(duck, theirs, len(rows))
            wrong = [n for n in range(len(rows)) if not same(mine[n], other[n])]
            shown = ""
            if wrong:
                shown = f"  e.g. {rows[wrong[0]]}: {mine[wrong[0]]} and {other[wrong[0]]}"
            print(f"{ours:32} {len(wrong):3} of {len(rows)} differ{shown}", flush=True)
    if kept is not None:
        document = {"rows": rows, "calls": CALLS, "answers": answers}
        Path(kept).write_text(json.dumps(document, default=str) + "\n", "utf-8")


def _spent(call: Callable[[], Any], times: int = 5) -> tuple[Any, float]:
    """The answer, and the least milliseconds of processor time."""
    answer, best = call(), math.inf
    for _ in range(times):
        before = time.process_time()
        call()
        best = min(best, time.process_time() - before)
    return answer, best * 1000


def speed(rows: int) -> None:
    """Expressions over one table, warm."""
    chance = np.random.default_rng(1)
    numbers = np.arange(rows)
    table = pa.table(
        {
            "k": pa.array(numbers),
            "i": pa.array(chance.integers(-100, 100, rows)),
            "j": pa.array(chance.integers(0, 1000, rows)),
            "f": pa.array(chance.random(rows)),
            "s": pa.array([f"Na{n % 1000}me" for n in numbers.tolist()]),
            "d": pa.array(chance.integers(0, 20000, rows).astype("int32"), pa.date32()),
        }
    )
    schema = "node V { k: I64 @key  i: I64  j: I64  f: F64  s: String  d: Date }"
    results = {}
    with tempfile.TemporaryDirectory() as folder, og.init(Path(folder) / "g", schema) as graph:
        pq.write_table(table, Path(folder) / "v.parquet")
        graph.load(Path(folder) / "v.parquet", "append", type="V", indexes="later")
        duck: Any = importlib.import_module("duckdb").connect(config={"threads": 1})
        duck.execute(f"CREATE TABLE v AS SELECT * FROM '{folder}/v.parquet'")
        for name, (returned, where, sql) in SPEED.items():
            text = f"query q() {{ match {{ $v: V  {where} }} return {{ {returned} as x }} }}"
            mine, ours = _spent(lambda: graph.query(text).rows[0]["x"])  # noqa: B023
            asked = f"SELECT {SQL_RETURNS.get(name, 'count(*)')} FROM v WHERE {sql}"
            other, theirs = _spent(lambda: duck.execute(asked).fetchone()[0])  # noqa: B023
            assert mine == other, (name, mine, other)
            results[name] = {"omnigraph_ms": round(ours, 1), "duckdb_ms": round(theirs, 1)}
            print(f"{name:12} omnigraph {ours:8.1f} ms   duckdb {theirs:8.1f} ms", flush=True)
    print(json.dumps({"rows": rows, **results}))


PATHS = {
    "hops": (
        "$p = shortest $x e{1,30} $y",
        "length($p)",
        "MATCH p = (x:P {name: $a})-[:E* SHORTEST 1..30]->(y:P {name: $b}) RETURN length(p)",
    ),
    "weights": (
        "$p = shortest $x $e:e* $y by $e.km",
        "cost($p)",
        "MATCH (x:P {name: $a})-[e:E* WSHORTEST(km) 1..30]->(y:P {name: $b}) RETURN cost(e)",
    ),
}
"""A search, what it returns, and the same in Ladybug, which has no search without a bound."""


def paths(nodes: int, edges: int) -> None:
    """Shortest paths between pairs of a random graph, one after the other."""
    chance = np.random.default_rng(2)
    names = pa.array([f"n{n}" for n in range(nodes)])
    ends = {end: names.take(pa.array(chance.integers(0, nodes, edges))) for end in ("from", "to")}
    km = pa.array(chance.integers(1, 1000, edges).astype(np.int32))
    pairs = [{"a": f"n{a}", "b": f"n{b}"} for a, b in chance.integers(0, nodes, (10, 2)).tolist()]
    schema = "node P { name: String @key }\nedge E: P -> P { km: I32 }"
    with tempfile.TemporaryDirectory() as folder, og.init(Path(folder) / "g", schema) as graph:
        pq.write_table(pa.table({"name": names}), Path(folder) / "p.parquet")
        pq.write_table(pa.table({**ends, "km": km}), Path(folder) / "e.parquet")
        graph.load(Path(folder) / "p.parquet", "append", type="P")
        graph.load(Path(folder) / "e.parquet", "append", edge="E")
        ladybug: Any = importlib.import_module("ladybug")
        other = ladybug.Connection(ladybug.Database(f"{folder}/ladybug"), num_threads=1)
        other.execute("CREATE NODE TABLE P(name STRING, PRIMARY KEY(name))")
        other.execute("CREATE REL TABLE E(FROM P TO P, km INT32)")
        other.execute(f"COPY P FROM '{folder}/p.parquet'")
        other.execute(f"COPY E FROM '{folder}/e.parquet'")
        for name, (search, returned, asked) in PATHS.items():
            match = f"$x: P {{ name: $a }}  $y: P {{ name: $b }}  {search}"
            text = (
                f"query q($a: String, $b: String) {{ match {{ {match} }} return {{ {returned} }} }}"
            )

            def ours() -> list[float]:
                found = (graph.query(text, pair).tuples() for pair in pairs)  # noqa: B023
                return [rows[0][0] if rows else -1 for rows in found]

            def theirs() -> list[float]:
                found = (other.execute(asked, pair).get_all() for pair in pairs)  # noqa: B023
                return [rows[0][0] if rows else -1 for rows in found]

            mine, took = _spent(ours, 3)
            known, took_other = _spent(theirs, 3)
            assert mine == known, (name, mine, known)
            each, other_each = took / len(pairs), took_other / len(pairs)
            print(f"{name:8} omnigraph {each:8.2f} ms a path   ladybug {other_each:8.2f} ms a path")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["agree", "speed", "paths"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--keep", help="a file for the answers of DuckDB")
    given = parser.parse_args()
    if given.what == "agree":
        agree(given.keep)
    elif given.what == "speed":
        speed(given.rows)
    else:
        paths(given.nodes, given.edges)


if __name__ == "__main__":
    main()
