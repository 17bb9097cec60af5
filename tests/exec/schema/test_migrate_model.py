"""Random schema changes on a graph with data, beside a plain model of it.

The graph must hold what the model holds after every step; every commit must go on reading as it
read when it was made; and the final data must be what loading it into the final schema gives.
"""

import io
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.graph import Graph
from tests.exec.evolving import Lines, dump, head

VALUES: dict[str, list[Any]] = {
    "I32?": [None, 0, 7],
    "String?": [None, "", "text"],
    "[String]?": [None, [], ["a", "b"]],
    "Vector(2)?": [None, [0.5, 1.0]],
    "Date?": [None, 18263],
    "Blob?": [None, "base64:aGk="],
    "F64": [0.0, 2.5],  # required: comes with a backfill
}


@dataclass
class Prop:
    """A property: its name, its type, the name it has in the accepted schema, if it is there."""

    name: str
    type: str
    accepted: str | None = None
    backfill: str = ""

    def declared(self) -> str:
        return f"{self.name}: {self.type}{_hint(self)}{self.backfill}"


@dataclass
class Type:
    """A type with its rows by id. `ends` for an edge."""

    name: str
    props: list[Prop] = field(default_factory=list)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    ends: tuple["Type", "Type"] | None = None
    accepted: str | None = None
    gone: set[str] = field(default_factory=set)  # properties that leave with the next change

    def declared(self) -> str:
        hint = _hint(self)
        body = " ".join(prop.declared() for prop in self.props)
        if self.ends is None:
            return f"node {self.name}{hint} {{ k: String @key {body} }}"
        return f"edge {self.name}: {self.ends[0].name} -> {self.ends[1].name}{hint} {{ {body} }}"

    def lines(self) -> Lines:
        found = []
        for entity, row in sorted(self.rows.items()):
            data = {"id": entity, **{p.name: row[p.name] for p in self.props}}
            if self.ends is None:
                found.append({"type": self.name, "data": {"id": entity, "k": entity} | data})
            else:
                ends = {"from": row["from"], "to": row["to"]}
                found.append({"edge": self.name, **ends, "data": data})
        return found


def _hint(each: "Type | Prop") -> str:
    renamed = each.accepted is not None and each.accepted != each.name
    return f' @rename_from("{each.accepted}")' if renamed else ""


class World:
    """A graph and its model, changed together."""

    def __init__(self, path: Path, draw: Any) -> None:
        self.draw = draw
        self.counter = 0
        self.types = [Type("T0", [Prop("p0", "I32?")])]
        self.graph = og.init(path, self.text())
        self.seen: dict[str, Lines] = {}
        self.gone: set[str] = set()  # types that leave with the next change
        self.settle()

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def pick(self, options: list[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    @property
    def nodes(self) -> list[Type]:
        return [each for each in self.types if each.ends is None]

    def text(self) -> str:
        return "\n".join(each.declared() for each in self.types)

    def lines(self) -> Lines:
        edges = sorted((t for t in self.types if t.ends), key=lambda t: t.name)
        nodes = sorted(self.nodes, key=lambda t: t.name)
        return [line for each in (*edges, *nodes) for line in each.lines()]

    # Steps

    def add_type(self) -> None:
        name = self._name("T", {t.name for t in self.nodes})
        self.types.append(Type(name, [self._prop(None)]))

    def add_edge(self) -> None:
        ends = self.pick(self.nodes), self.pick(self.nodes)
        taken = {t.name for t in self.types if t.ends}
        self.types.append(Type(self._name("E", taken), [self._prop(None)], ends=ends))

    def _name(self, prefix: str, taken: set[str]) -> str:
        """Often a name that was used before, which must not bring anything back."""
        taken = taken | self.gone | {t.accepted for t in self.types if t.accepted}
        old = [f"{prefix}{number}" for number in range(4) if f"{prefix}{number}" not in taken]
        return str(self.pick([*old, self.fresh(prefix + "x")]))

    def _prop(self, owner: Type | None) -> Prop:
        props = owner.props if owner else []
        taken = {"k", *(prop.name for prop in props), *(prop.accepted for prop in props)}
        taken |= owner.gone if owner else set()
        kind = self.pick(list(VALUES))
        fill = "" if kind.endswith("?") else " @backfill(2.5)"
        names = [f"p{number}" for number in range(4) if f"p{number}" not in taken]
        return Prop(self.pick([*names, self.fresh("q")]), kind, backfill=fill)

    def drop_type(self) -> None:
        gone = self.pick(self.types)
        if gone.ends is None and len(self.nodes) == 1:
            return
        leave = [t for t in self.types if t is gone or any(end is gone for end in t.ends or ())]
        self.types = [t for t in self.types if not any(t is other for other in leave)]
        self.gone |= {t.accepted for t in leave if t.accepted}

    def rename_type(self) -> None:
        self.pick(self.types).name = self.fresh("R")

    def add_property(self) -> None:
        each = self.pick(self.types)
        prop = self._prop(each)
        each.props.append(prop)
        for row in each.rows.values():
            row[prop.name] = 2.5 if prop.backfill else None

    def drop_property(self) -> None:
        each = self.pick(self.types)
        if each.props:
            gone = each.props.pop(self.draw(st.integers(0, len(each.props) - 1)))
            each.gone |= {gone.accepted} if gone.accepted else set()
            for row in each.rows.values():
                del row[gone.name]

    def rename_property(self) -> None:
        each = self.pick(self.types)
        if each.props:
            prop = self.pick(each.props)
            old, prop.name = prop.name, self.fresh("r")
            for row in each.rows.values():
                row[prop.name] = row.pop(old)

    def apply(self) -> None:
        """Make all that was planned since, as one change."""
        self.graph.schema.apply(self.text())
        self.settle()

    def settle(self) -> None:
        self.gone = set()
        for each in self.types:
            each.accepted, each.gone = each.name, set()
            for prop in each.props:
                prop.accepted, prop.backfill = prop.name, ""

    def write(self) -> None:
        """Rows that come and rows that change, in one load."""
        each = self.pick(self.types)
        records = []
        for number in range(self.draw(st.integers(1, 3))):
            entity = f"e{number}"
            row = {prop.name: self.pick(VALUES[prop.type]) for prop in each.props}
            if each.ends is not None:
                source, target = (list(end.rows) for end in each.ends)
                if not source or not target:
                    continue
                row |= {"from": self.pick(source), "to": self.pick(target)}
            each.rows[entity] = row
            records.append(next(r for r in each.lines() if r["data"]["id"] == entity))
        if records:
            self.graph.load(records, "merge")

    def remember(self) -> None:
        lines = dump(self.graph)
        assert lines == self.lines()
        self.seen[head(self.graph)] = lines


PLANNED = ("add_type", "add_edge", "drop_type", "rename_type", "add_property", "drop_property")
STEPS = (*PLANNED, "add_property", "rename_property")


def run(path: Path, data: st.DataObject, rounds: int) -> None:
    world = World(path / "g", data.draw)
    world.write()
    world.remember()
    for _ in range(rounds):
        for name in data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=3)):
            getattr(world, name)()
        world.apply()
        world.remember()
        for _ in range(data.draw(st.integers(0, 2))):
            world.write()
            world.remember()
    verify(path, world)


def verify(path: Path, world: World) -> None:
    final = world.text()
    for graph in (world.graph, og.open(world.graph.uri, read_only=True)):
        for commit, lines in world.seen.items():
            assert dump(graph, commit) == lines
    other = og.init(path / "other", final)
    stream = io.BytesIO()
    world.graph.export(stream)
    if stream.getvalue():
        other.load(io.BytesIO(stream.getvalue()), "append")
    assert dump(other) == dump(world.graph)
    # And both go on alike.
    for graph in (world.graph, other):
        add_one(graph, world)
    assert dump(other) == dump(world.graph)


def add_one(graph: Graph, world: World) -> None:
    node = world.nodes[0]
    row = {prop.name: VALUES[prop.type][-1] for prop in node.props}
    graph.load([{"type": node.name, "data": {"k": "last", **row}}], "merge")


@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_random_schema_changes_keep_data_and_history(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), data, rounds=3)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_many_random_schema_changes_keep_data_and_history(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), data, rounds=6)
