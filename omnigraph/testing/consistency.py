"""Consistency check of a graph: every way to read a branch gives the same rows.

Compared for each branch: the rows of queries, counts, walks, lookups of single entities, the row
counts of the snapshot and an export; through the handle that is passed, through a fresh one, and
through one that uses no derived files.
"""

import io
from collections.abc import Collection, Iterator
from typing import Any

import orjson

from omnigraph.arguments import checked
from omnigraph.catalog.model import Catalog, NodeType, Type
from omnigraph.graph import Graph
from omnigraph.graph.door import reopened
from omnigraph.types import Kind, Scalar, TableKey, table_key

__all__ = ["Inconsistent", "assert_consistent"]

_SAMPLE = 5
_LISTED = 5
Rows = dict[str, Any]


class Inconsistent(AssertionError):
    """Two ways to read a graph give different rows, or `check` reports damage."""


@checked
def assert_consistent(graph: Graph, branches: Collection[str] | None = None) -> None:
    """Raise `Inconsistent` unless every way to read the graph gives the same rows.

    Reads all rows several times: for tests with small graphs.

    Parameters
    ----------
    graph
        An open graph with local or S3 storage. Its caches are used as they are.
    branches
        Branches to read; default is all.

    Raises
    ------
    Inconsistent
        Names the branch, the two ways and the first rows that differ.

    Examples
    --------
    >>> from omnigraph.testing import assert_consistent
    >>> assert_consistent(graph)
    """
    names = graph.branches.list() if branches is None else branches
    with reopened(graph, derived=True) as fresh, reopened(graph, derived=False) as plain:
        for branch in names:
            _compare(branch, graph, fresh, plain)
    findings = graph.check().findings
    if findings:
        raise Inconsistent(f"check reports {len(findings)} findings; first: {findings[0]}")


def _compare(branch: str, graph: Graph, fresh: Graph, plain: Graph) -> None:
    catalog = graph.schema.on(branch).catalog
    exported = _exported(plain, branch)
    for type in _types(catalog):
        expected = _queried(plain, branch, type)
        ids = set(exported.get(type.table, ()))
        _require_ids(f"{branch}: {type.table}: a query and the export", set(expected), ids)
        for name, each in (("the handle", graph), ("a fresh handle", fresh)):
            where = f"{branch}: {type.table}: {name} and tables without derived files"
            _require_rows(where, _queried(each, branch, type), expected)
            _require_equal(f"{where}: count", _count(each, branch, type), len(expected))
            rows = each.snapshot(branch).tables[type.table].row_count
            _require_equal(f"{where}: row count of the snapshot", rows, len(expected))
            for id in sorted(expected)[:: max(1, len(expected) // _SAMPLE)]:
                found = each.entity(type.kind, type.name, id, branch=branch)
                _require_equal(f"{where}: entity {id}", found.id, id)
    tables = {type.table for type in _types(catalog)}
    _require_equal(f"{branch}: types of the export", set(exported) - tables, set())


def _types(catalog: Catalog) -> tuple[Type, ...]:
    return (*catalog.nodes.values(), *catalog.edges.values())


def _exported(graph: Graph, branch: str) -> dict[TableKey, list[str]]:
    """Ids of an export by table key."""
    out = io.BytesIO()
    graph.export(out, branch=branch)
    ids: dict[TableKey, list[str]] = {}
    for line in out.getvalue().splitlines():
        record = orjson.loads(line)
        kind = Kind.EDGE if "edge" in record else Kind.NODE
        key = table_key(kind, record["edge" if kind is Kind.EDGE else "type"])
        ids.setdefault(key, []).append(record["data"]["id"])
    for key, each in ids.items():
        if len(set(each)) != len(each):
            raise Inconsistent(f"{branch}: the export holds an id of {key} twice")
    return ids


def _shown(type: Type, variable: str) -> Iterator[str]:
    for property in type.properties:
        if property.type.scalar is not Scalar.BLOB:
            yield f"${variable}.{property.name} as p{property.id}"


def _pattern(type: Type) -> str:
    if isinstance(type, NodeType):
        return f"$x: {type.name}"
    name = type.name[0].lower() + type.name[1:]
    return f"$a: {type.source}  $a $x: {name} $b  $b: {type.target}"


def _queried(graph: Graph, branch: str, type: Type) -> Rows:
    """Rows of one type by id, from a query; edges with their ends."""
    ends = [] if isinstance(type, NodeType) else ["$a as a", "$b as b"]
    shown = ", ".join(["$x.id as i", *ends, *_shown(type, "x")])
    text = f"query q() {{ match {{ {_pattern(type)} }} return {{ {shown} }} }}"
    rows = Rows()
    for row in graph.query(text, branch=branch).rows:
        id = row.pop("i")
        if id in rows:
            raise Inconsistent(f"{branch}: a query returns {type.table} {id} twice")
        rows[id] = row
    return rows


def _count(graph: Graph, branch: str, type: Type) -> int:
    text = f"query q() {{ match {{ {_pattern(type)} }} return {{ count(*) as n }} }}"
    count: int = graph.query(text, branch=branch).scalar()
    return count


def _require_ids(where: str, seen: set[str], expected: set[str]) -> None:
    if seen != expected:
        extra, missing = sorted(seen - expected)[:_LISTED], sorted(expected - seen)[:_LISTED]
        raise Inconsistent(f"{where} differ: only the first has {extra}, it lacks {missing}")


def _require_rows(where: str, seen: Rows, expected: Rows) -> None:
    _require_ids(where, set(seen), set(expected))
    other = [id for id in expected if repr(seen[id]) != repr(expected[id])][:_LISTED]
    if other:
        pairs = "; ".join(f"{id}: {seen[id]} and {expected[id]}" for id in other)
        raise Inconsistent(f"{where} differ: {pairs}")


def _require_equal(where: str, seen: object, expected: object) -> None:
    if seen != expected:
        raise Inconsistent(f"{where}: {seen}, expected {expected}")
