"""Rows of the model graph: two node types, an edge type without a key and one with a key."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

Row = dict[str, Any]
Key = tuple[str, str]
Rows = dict[Key, Row]

WORDS = ("turbine", "slow", "copper", "river", "night")
EXTRAS = ("x1", "x2")
SCALARS = ("name", "age", "bio", "tags", "v")
"""Properties of P besides its key, without those that schema changes add."""


def schema_text(extras: tuple[str, ...]) -> str:
    """The schema with some extra properties of P and K."""
    added = "".join(f"    {name}: I32?\n" for name in extras)
    return (
        "node P {\n    key: String @key\n    name: String?\n    age: I32? @index\n"
        "    bio: String? @index\n    tags: [String]?\n    v: Vector(4)? @index\n"
        f"{added}}}\n\n"
        "node Q {\n    key: String @key\n    n: I32?\n}\n\n"
        f"edge K: P -> P {{\n    w: I32?\n{added}}}\n\n"
        "edge L: P -> Q @key(src, dst) {\n    w: I32?\n}\n"
    )


def person(number: int, value: int) -> Row:
    """One row of P, whose values follow from its number and a value."""
    key = f"p{number:04d}"
    mixed = number * 7 + value * 13
    words = [WORDS[mixed % 5], WORDS[(mixed // 5) % 5]]
    row: Row = {
        "key": key,
        "name": f"{key} {value}",
        "age": mixed % 23,
        "bio": " ".join(words),
        "tags": words[: mixed % 3],
        "v": [float(mixed % 5), float(mixed % 7), float(value), 1.0],
    }
    if mixed % 6 == 0:
        row = {name: None if name in ("age", "bio", "v") else each for name, each in row.items()}
    return row


_TYPES = {
    "key": pa.string(),
    "name": pa.string(),
    "age": pa.int32(),
    "bio": pa.string(),
    "tags": pa.list_(pa.string()),
    "v": pa.list_(pa.float32(), 4),
    "n": pa.int32(),
    "w": pa.int32(),
    "id": pa.string(),
    "src": pa.string(),
    "dst": pa.string(),
    "x1": pa.int32(),
    "x2": pa.int32(),
}


def table(rows: list[Row]) -> pa.Table:
    """Rows as Arrow columns."""
    names = list(rows[0])
    return pa.table({name: pa.array([row[name] for row in rows], _TYPES[name]) for name in names})


def filled(row: Row) -> Row:
    """A row without its nulls, as states hold them."""
    return {name: value for name, value in row.items() if value is not None}


@dataclass
class State:
    """Content of one point in time: rows by type and id, and the extra properties."""

    rows: Rows = field(default_factory=dict)
    extras: tuple[str, ...] = ()

    def of(self, type: str) -> dict[str, Row]:
        """The rows of one type by id."""
        return {id: row for (each, id), row in self.rows.items() if each == type}

    def with_rows(self, rows: Rows) -> "State":
        """The same schema with other rows."""
        return State(rows, self.extras)


_NODES = {"K": ("P", "P"), "L": ("P", "Q")}


def ends_of(key: Key, row: Row) -> tuple[Key, Key]:
    """The nodes at the ends of an edge."""
    first, second = _NODES[key[0]]
    return (first, row["src"]), (second, row["dst"])


def orphans(rows: Rows) -> set[Key]:
    """Edges with an end that does not exist."""
    edges = ((key, row) for key, row in rows.items() if key[0] in _NODES)
    return {key for key, row in edges if any(end not in rows for end in ends_of(key, row))}


def without_orphans(rows: Rows) -> Rows:
    """The rows after a delete of nodes removed their edges."""
    gone = orphans(rows)
    return {key: row for key, row in rows.items() if key not in gone}


def three_way(base: Rows, source: Rows, target: Rows) -> tuple[Rows, set[Key]]:
    """The merged rows, and the keys in conflict."""
    merged, conflicts = Rows(), set[Key]()
    for key in base.keys() | source.keys() | target.keys():
        was, theirs, ours = base.get(key), source.get(key), target.get(key)
        if theirs in (ours, was):
            row = ours
        elif ours == was:
            row = theirs
        else:
            conflicts.add(key)
            continue
        if row is not None:
            merged[key] = row
    return merged, conflicts or orphans(merged)


def differences(seen: Rows, expected: Rows, limit: int = 5) -> str:
    """The first rows that differ, as text."""
    missing = sorted(expected.keys() - seen.keys())
    extra = sorted(seen.keys() - expected.keys())
    other = sorted(key for key in seen.keys() & expected.keys() if seen[key] != expected[key])
    parts = [f"missing {key}" for key in missing[:limit]]
    parts += [f"extra {key} {seen[key]}" for key in extra[:limit]]
    parts += [f"{key} is {seen[key]}, expected {expected[key]}" for key in other[:limit]]
    counts = f"{len(missing)} missing, {len(extra)} extra, {len(other)} different"
    return f"{counts}: " + "; ".join(parts)
