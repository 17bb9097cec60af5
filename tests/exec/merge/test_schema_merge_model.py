"""Random schema changes and rows of two branches, merged there and back, against a naive model.

The model has one dictionary of rows a branch and a set of properties; a property that a row lacks
reads as its default.
"""

import json
import tempfile
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.graph import Graph

BRANCHES = ("main", "b")
PROPERTIES = {"p": "I32?", "q": 'String = "x"', "r": "F64? = 0.5", "s": "[I32] = [1, 2]"}
DEFAULTS: dict[str, Any] = {"p": None, "q": "x", "r": 0.5, "s": [1, 2]}
VALUES = {"p": [None, 1], "q": ["y", "z"], "r": [None, 1.5], "s": [[], [7]]}
TOPIC = "node Topic { key: String @key  n: I32 = 4 }\n"

Row = dict[str, Any]


@dataclass
class Side:
    """A branch as the model has it."""

    properties: set[str] = field(default_factory=set)
    is_long: bool = False
    is_nullable: bool = False
    has_topic: bool = False
    rows: dict[str, Row] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        added = "  ".join(f"{name}: {PROPERTIES[name]}" for name in sorted(self.properties))
        number = ("I64" if self.is_long else "I32") + ("?" if self.is_nullable else "")
        topic = TOPIC if self.has_topic else ""
        return f"node Item {{ key: String @key  a: {number}  {added} }}\n{topic}"

    def seen(self) -> dict[str, Row]:
        return {
            key: {"a": row["a"], **{n: row.get(n, DEFAULTS[n]) for n in sorted(self.properties)}}
            for key, row in self.rows.items()
        }

    def copy(self) -> "Side":
        return Side(
            set(self.properties),
            self.is_long,
            self.is_nullable,
            self.has_topic,
            {key: dict(row) for key, row in self.rows.items()},
            dict(self.topics),
        )

    def merge(self, other: "Side", base: "Side") -> None:
        self.properties |= other.properties
        self.is_long |= other.is_long
        self.is_nullable |= other.is_nullable
        self.has_topic |= other.has_topic
        self.rows |= {k: dict(r) for k, r in other.rows.items() if r != base.rows.get(k)}
        self.topics |= {k: n for k, n in other.topics.items() if n != base.topics.get(k)}


def seen(graph: Graph, branch: str) -> dict[str, Row]:
    names = ["a", *sorted(p.name for p in graph.schema.on(branch).catalog.nodes["Item"].properties)]
    names = list(dict.fromkeys(name for name in names if name != "key"))
    shown = ", ".join(f"$i.{name} as {name}" for name in names)
    read = f"query q() {{ match {{ $i: Item }} return {{ $i.key as key, {shown} }} }}"
    return {row.pop("key"): row for row in map(dict, graph.query(read, branch=branch).rows)}


def topics(graph: Graph, branch: str) -> dict[str, int]:
    if graph.schema.on(branch).catalog.node("Topic") is None:
        return {}
    read = "query q() { match { $t: Topic } return { $t.key as key, $t.n as n } }"
    return {row["key"]: row["n"] for row in graph.query(read, branch=branch).rows}


numbers = st.integers(0, 3)
steps = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(sorted(PROPERTIES))),
    st.tuples(st.just("wide"), st.sampled_from(["long", "null"])),
    st.tuples(st.just("topic"), st.just("")),
    st.tuples(st.just("row"), numbers, st.integers(0, 2**31 - 1), st.integers(0, 1)),
    st.tuples(st.just("set"), numbers, st.integers(0, 1)),
    st.tuples(st.just("note"), numbers, numbers),
)
rounds = st.lists(
    st.tuples(st.lists(steps, max_size=4), st.lists(steps, max_size=4), st.sampled_from(BRANCHES)),
    min_size=1,
    max_size=3,
)


def take(graph: Graph, side: Side, branch: str, step: tuple[Any, ...]) -> None:
    """One step on one branch. Each branch writes rows of its own, so that rows never clash."""
    match step:
        case "add", name:
            side.properties.add(name)
            graph.schema.apply(side.text(), branch=branch)
        case "wide", "long":
            side.is_long = True
            graph.schema.apply(side.text(), branch=branch)
        case "wide", _:
            side.is_nullable = True
            graph.schema.apply(side.text(), branch=branch)
        case "topic", _:
            side.has_topic = True
            graph.schema.apply(side.text(), branch=branch)
        case "row", number, value, choice:
            value = value + 2**40 if side.is_long else value
            given_ = sorted(side.properties)[:1]
            row = {"a": value, **{name: VALUES[name][choice] for name in given_}}
            key = f"{branch}{number}"
            side.rows[key] = row
            record = {"type": "Item", "data": {"key": key, **row}}
            graph.load([record], "merge", branch=branch)
        case "set", number, choice:
            key = f"{branch}{number}"
            if side.properties and key in side.rows:
                name = max(side.properties)
                value = VALUES[name][choice]
                side.rows[key][name] = value
                shown = "null" if value is None else json.dumps(value)
                text = f'update Item set {{ {name}: {shown} }} where key = "{key}"'
                graph.mutate(f"query m() {{ {text} }}", branch=branch)
        case "note", number, value:
            if side.has_topic:
                side.topics[f"{branch}{number}"] = value
                data = {"key": f"{branch}{number}", "n": value}
                graph.load([{"type": "Topic", "data": data}], "merge", branch=branch)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(rounds)
def test_random_schemas_and_rows_of_two_branches_merge(history: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sides = {"main": Side(rows={"x": {"a": 1}, "y": {"a": 2}})}
        graph = og.init(f"{folder}/g", sides["main"].text())
        for key, row in sides["main"].rows.items():
            graph.load([{"type": "Item", "data": {"key": key, **row}}], "append")
        graph.branches.create("b")
        sides["b"], base = sides["main"].copy(), sides["main"].copy()
        points: list[tuple[str, dict[str, Row]]] = []
        for ours, theirs, into in history:
            for branch, taken in zip(BRANCHES, (ours, theirs), strict=True):
                for step in taken:
                    take(graph, sides[branch], branch, step)
            points.append((graph.snapshot().commit_id, sides["main"].seen()))
            source = "b" if into == "main" else "main"
            graph.branches.merge(source, into=into)
            sides[into].merge(sides[source], base)
            base = sides[source].copy()
            for branch in BRANCHES:
                assert seen(graph, branch) == sides[branch].seen()
                assert topics(graph, branch) == sides[branch].topics
                assert graph.schema.plan(sides[branch].text(), branch=branch).steps == ()
        assert graph.check().findings == ()
        for commit, rows in points:
            read = "query q() { match { $i: Item } return { $i.key as k, $i.a as a } }"
            then = {row["k"]: row["a"] for row in graph.query(read, snapshot=commit).rows}
            assert then == {key: row["a"] for key, row in rows.items()}
