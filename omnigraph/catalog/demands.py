"""Constraints by identity: a set that compares equal after columns are renamed.

Invariant: two types ask the same of their data when their demands have the same keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from omnigraph.catalog.draft import AnyType
from omnigraph.catalog.model import Check, EdgeType, Interface, NodeType, Range
from omnigraph.language.reader import quote
from omnigraph.language.schema.literals import format_interval

Column = int | str
"""A property's id, or `src` or `dst`."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One constraint by identity. The order of its columns means nothing."""

    name: str
    columns: frozenset[Column]
    argument: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """The same constraint by name."""

    name: str
    columns: tuple[str, ...]
    argument: str = ""

    def __str__(self) -> str:
        return f"@{self.name}({', '.join((*self.columns, *filter(None, (self.argument,))))})"


def demands(each: AnyType) -> dict[Demand, Shown]:
    """Every constraint of a type but its cardinality."""
    ids: dict[str, Column] = {prop.name: prop.id for prop in each.properties}
    by_identity: dict[Demand, Shown] = {}
    for shown in _constraints(each):
        columns = frozenset(ids.get(name, name) for name in shown.columns)
        by_identity.setdefault(Demand(shown.name, columns, shown.argument), shown)
    return by_identity


def _constraints(each: AnyType) -> Iterator[Shown]:
    match each:
        case Interface():
            yield from (Shown("key", (name,)) for name in each.keys)
            yield from (Shown("unique", (name,)) for name in each.uniques)
        case NodeType():
            if each.key:
                yield Shown("key", each.key)
            yield from (Shown("unique", columns) for columns in each.uniques)
            yield from map(_range, each.ranges)
            yield from map(_check, each.checks)
        case EdgeType():
            if each.key:
                yield Shown("key", each.key)
            yield from (Shown("unique", columns) for columns in each.uniques)
        case _:
            assert_never(each)
    yield from (Shown("index", (name,)) for name in each.indexes)


def _range(constraint: Range) -> Shown:
    return Shown("range", (constraint.property,), format_interval(constraint.low, constraint.high))


def _check(constraint: Check) -> Shown:
    return Shown("check", (constraint.property,), quote(constraint.pattern))
