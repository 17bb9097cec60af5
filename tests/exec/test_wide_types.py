"""The work of a load, query, mutation, diff or merge grows no faster than the properties do.

Work is counted, not timed: calls of Python functions, schemas that Lance makes anew, scans that it
plans, tables that are copied. A schema, a scan and a copy cost a pass over all properties each, so
of these there may not be more for a wide type than for a narrow one.
"""

import cProfile
import json
import pstats
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.catalog import codec
from omnigraph.catalog.accept import accept
from omnigraph.exec.read.run import Run
from omnigraph.graph import Graph
from omnigraph.plan.compile import compile_query
from omnigraph.plan.explain import explain
from omnigraph.plan.lint import lint

NARROW, WIDE = 50, 400
CALLS_MAX = 1.3 * WIDE / NARROW
PASSES = ("schemas", "scans", "copies")
COPIES = ("changes/entities.py", "rows")
"""A function that makes a table of all columns."""


def listed(form: str, count: int, start: int = 0) -> str:
    return ", ".join(form.format(n=n) for n in range(start, count))


def schema_of(count: int) -> str:
    return f"node W {{ k: String @key, {listed('p{n}: I32?', count)} }} edge L: W -> W"


def queries(count: int) -> dict[str, str]:
    shown, keys = listed("$w.p{n}", count), listed("$w.p{n}", count)
    aliased, aliases = listed("$w.p{n} as a{n}", count), listed("a{n}", count)
    conditions = " ".join(f"$w.p{n} >= 0" for n in range(count))
    return {
        "rows": f"return {{ {shown} }}",
        "ordered": f"return {{ {shown} }} order {{ {keys} }}",
        "distinct": f"return distinct {{ {aliased} }} order {{ {aliases} }}",
        "grouped": f"return {{ {shown}, count($w) as c }} order {{ {keys} }}",
        "summed": f"return {{ {listed('sum($w.p{n}) as s{n}', count)} }}",
        "reached": f'$w.k = "k1" $w l $v }} return {{ {listed("$v.p{n}", count)} }}',
        "filtered": f"{conditions} }} return {{ $w.k }}",
    }


def text_of(part: str) -> str:
    """A query over all nodes, from the rest of its pattern on."""
    closed = part if part.startswith("$") else f"}} {part}"
    return f"query q() {{ match {{ $w: W {closed} }}"


@pytest.fixture(params=[True, False], ids=["cold", "held"])
def cold(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Counter]:
    """Runs something and counts its work."""
    work: Counter[str] = Counter()
    schema, scanner, result = lance.LanceDataset.schema, lance.LanceDataset.scanner, Run.result
    other_threads: list[cProfile.Profile] = []

    def made(self: lance.LanceDataset) -> pa.Schema:
        work["schemas"] += 1
        return schema.fget(self)

    def planned(self: lance.LanceDataset, *args: Any, **options: Any) -> Any:
        work["scans"] += 1
        return scanner(self, *args, **options)

    def profiled(self: Run) -> Any:
        if threading.current_thread() is threading.main_thread():
            return result(self)
        profile = cProfile.Profile()
        other_threads.append(profile)
        return profile.runcall(result, self)

    monkeypatch.setattr(lance.LanceDataset, "schema", property(made))
    monkeypatch.setattr(lance.LanceDataset, "scanner", planned)
    monkeypatch.setattr(Run, "result", profiled)

    def count(run: Callable[[], Any]) -> Counter:
        work.clear()
        other_threads.clear()
        profile = cProfile.Profile()
        profile.runcall(run)
        for each in (profile, *other_threads):
            for (file, _, name), (_, calls, *_) in pstats.Stats(each).stats.items():  # type: ignore[attr-defined]
                work["calls"] += calls
                if file.endswith(COPIES[0]) and name == COPIES[1]:
                    work["copies"] += calls
        return Counter(work)

    return count


def no_faster(narrow: Counter, wide: Counter) -> None:
    assert wide["calls"] <= CALLS_MAX * narrow["calls"], (narrow, wide)
    for kind in PASSES:
        assert wide[kind] <= narrow[kind], (narrow, wide)


def rows_of(count: int, rows: int = 10) -> list[dict[str, Any]]:
    return [{"k": f"k{r}", **{f"p{n}": n for n in range(count)}} for r in range(rows)]


def wide_graph(path: Path, count: int) -> Graph:
    graph = og.init(path / f"g{count}", schema_of(count))
    records = [json.dumps({"type": "W", "data": row}) for row in rows_of(count)]
    records.append(json.dumps({"edge": "L", "from": "k1", "to": "k2"}))
    (path / f"{count}.jsonl").write_text("\n".join(records))
    graph.load(path / f"{count}.jsonl", mode="append")
    return graph


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[dict[int, Graph]]:
    with wide_graph(tmp_path, NARROW) as narrow, wide_graph(tmp_path, WIDE) as wide:
        yield {NARROW: narrow, WIDE: wide}


def compared(counted: Any, pair: dict[int, Graph], run: Callable[[Graph, int], Any]) -> None:
    """Count the work on both graphs."""
    work = {count: counted(partial(run, graph, count)) for count, graph in pair.items()}
    no_faster(work[NARROW], work[WIDE])


@pytest.mark.parametrize("name", queries(1))
def test_a_query_of_many_properties_is_not_slow(
    counted: Any, pair: dict[int, Graph], name: str, cold: bool
) -> None:
    def run(graph: Graph, count: int) -> Any:
        return graph.query(text_of(queries(count)[name])).rows

    for count, graph in pair.items():
        if not cold:
            run(graph, count)
        else:
            graph.query("query q() { match { $w: W } return { $w.k } }")
    compared(counted, pair, run)


def test_a_query_after_a_write_of_many_properties_is_not_slow(
    counted: Any, pair: dict[int, Graph]
) -> None:
    def run(graph: Graph, count: int) -> Any:
        return graph.query(text_of(queries(count)["rows"])).rows

    for count, graph in pair.items():
        run(graph, count)
        graph.mutate('query u() { update W set { p0: 7 } where k = "k1" }')
    compared(counted, pair, run)
    assert run(pair[WIDE], WIDE)[1]["w.p0"] == 7


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_load_of_many_properties_is_not_slow(
    counted: Any, pair: dict[int, Graph], mode: str
) -> None:
    def run(graph: Graph, count: int) -> None:
        prefix = "" if mode == "overwrite" else "new "  # the ends of the edges stay
        rows = ({**row, "k": f"{prefix}{row['k']}"} for row in rows_of(count, 5))
        graph.load([{"type": "W", "data": row} for row in rows], mode=mode)

    compared(counted, pair, run)


@pytest.mark.parametrize(
    "statement",
    [
        'update W set {{ {sets} }} where k != "zz"',
        'update W set {{ {sets} }} where k = "k1"',
        'insert W {{ k: "new", {sets} }}',
        'insert W {{ k: "k1", {sets} }}',
    ],
)
def test_a_mutation_of_many_properties_is_not_slow(
    counted: Any, pair: dict[int, Graph], statement: str
) -> None:
    def run(graph: Graph, count: int) -> None:
        graph.mutate(f"query m() {{ {statement.format(sets=listed('p{n}: 1', count))} }}")

    compared(counted, pair, run)


@pytest.fixture
def branched(pair: dict[int, Graph]) -> dict[int, Graph]:
    """Both sides of each graph change half of the properties of every row."""
    for count, graph in pair.items():
        graph.branches.create("side")
        half = count // 2
        first, second = listed("p{n}: 1", half), listed("p{n}: 2", count, half)
        graph.mutate(f'query m() {{ update W set {{ {first} }} where k != "zz" }}')
        graph.mutate(f'query m() {{ update W set {{ {second} }} where k != "zz" }}', branch="side")
    return pair


def test_a_diff_of_many_properties_is_not_slow(counted: Any, branched: dict[int, Graph]) -> None:
    compared(counted, branched, lambda graph, _: [c.to_json() for c in graph.diff("main", "side")])


@pytest.mark.parametrize("resolve", ["theirs", "answers"])
def test_a_merge_by_entity_of_many_properties_is_not_slow(
    counted: Any, branched: dict[int, Graph], resolve: str
) -> None:
    def run(graph: Graph, count: int) -> None:
        answer = {f"p{n}": 3 for n in range(count)}
        answers = {("W", f"k{r}"): answer for r in range(10)}
        graph.branches.merge("side", resolve="theirs" if resolve == "theirs" else answers)

    compared(counted, branched, run)


def test_a_merge_by_property_of_many_properties_is_not_slow(
    counted: Any, branched: dict[int, Graph]
) -> None:
    compared(counted, branched, lambda graph, _: graph.branches.merge("side", by="property"))
    shown = f"return {{ $w.p0 as first, $w.p{WIDE - 1} as last }}"
    for row in branched[WIDE].query(text_of(shown)):
        assert row == {"first": 1, "last": 2}


@pytest.mark.parametrize("name", queries(1))
def test_lint_and_explain_of_many_properties_are_not_slow(
    counted: Any, pair: dict[int, Graph], name: str
) -> None:
    def run(graph: Graph, count: int) -> None:
        text, catalog = text_of(queries(count)[name]), graph.schema.catalog
        assert lint(text, catalog).to_json()["status"] == "ok"
        assert f"p{count - 1}#" in explain(compile_query(text, catalog))

    compared(counted, pair, run)


def test_a_schema_of_many_properties_is_not_slow(counted: Any) -> None:
    def run(count: int) -> None:
        assert codec.decode(codec.encode(accept(schema_of(count)))).nodes

    no_faster(*(counted(partial(run, count)) for count in (NARROW, WIDE)))
