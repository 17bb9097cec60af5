"""Constraint checks of a mutation: pending rows together with the committed rows they concern.

Invariant: only rows that the write touches are checked. Committed rows are read by id, by endpoint
or by the values of a unique tuple, through filters that an index can serve, and through the write,
so the commit is refused when a table that was read has moved.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import EdgeType
from omnigraph.exec.mutate.staging import PendingTable, Staging
from omnigraph.exec.rules.key_rules import check_keys
from omnigraph.exec.rules.row_rules import check_rows
from omnigraph.exec.rules.rules import (
    EdgesPerSource,
    Endpoint,
    RuleViolations,
    TypeRules,
    Unique,
    joined,
    rules_of,
)
from omnigraph.exec.values.selection import distinct_of, rows_by_key, rows_by_values, without_ids
from omnigraph.types import Kind, TableKey, table_key

_EDGE_KEYS = ["id", "src"]


def validate(staging: Staging) -> RuleViolations:
    """The violations that the commit would make."""
    # Endpoint checks touch further tables, which have no pending rows to check.
    return joined([broken for table in staging.touched() for broken in _checked(staging, table)])


def _checked(staging: Staging, table: PendingTable) -> Iterator[RuleViolations]:
    rules = rules_of(table.owner)
    rows = table.rows()
    if rows.num_rows:
        yield check_rows(rules.rows, rows)
        for unique in rules.uniques:
            if table.changed.intersection(unique.columns):
                yield _unique(table, rows, unique)
        if "src" in table.changed:
            yield from _edges(staging, table, rows, rules)
    if table.removed.num_rows and rules.cardinality is not None:
        yield _sources_left(staging, table, rules.cardinality)


def _unique(table: PendingTable, rows: pa.Table, rule: Unique) -> RuleViolations:
    incoming = rows.select(["id", *rule.columns]).drop_null()
    if not incoming.num_rows:
        return RuleViolations()
    names = list(incoming.column_names)
    committed = rows_by_values(
        table.reader, table.owner, incoming.select(list(rule.columns)), names
    )
    return check_keys(incoming, without_ids(committed, table.ids()), rule)


def _edges(
    staging: Staging, table: PendingTable, rows: pa.Table, rules: TypeRules
) -> Iterator[RuleViolations]:
    known = _known_nodes(staging, rows, rules.endpoints)
    for endpoint in rules.endpoints:
        keyed = replace(endpoint, node_key=staging.table(endpoint.node_table).owner.key)
        yield check_keys(rows.select(["id", endpoint.end]), known[endpoint.node_table], keyed)
    if rules.cardinality is not None:
        sources = distinct_of(rows, "src")
        committed = rows_by_key(table.reader, "src", sources, _EDGE_KEYS)
        left = without_ids(committed, table.ids())
        yield check_keys(rows.select(_EDGE_KEYS).drop_null(), left, rules.cardinality)


def _known_nodes(
    staging: Staging, rows: pa.Table, endpoints: Iterable[Endpoint]
) -> dict[TableKey, pa.Table]:
    """The ids of existing nodes at these ends, by table: pending ones, and one lookup a table."""
    ends_of: dict[TableKey, list[pa.Array]] = {}
    for endpoint in endpoints:
        ends_of.setdefault(endpoint.node_table, []).append(distinct_of(rows, endpoint.end))
    return {key: _existing(staging.table(key), ends) for key, ends in ends_of.items()}


def _existing(nodes: PendingTable, ends: list[pa.Array]) -> pa.Table:
    ids = pa.table({"id": pc.unique(pa.concat_arrays(ends))})
    own = pa.table({"id": nodes.ids()})
    missing = without_ids(ids, nodes.ids()).column("id").combine_chunks()
    if not len(missing):
        return own
    committed = rows_by_key(nodes.reader, "id", missing, ["id"])
    return pa.concat_tables([own, pa.table({"id": committed.column("id")})])


def _sources_left(staging: Staging, table: PendingTable, rule: EdgesPerSource) -> RuleViolations:
    """Cardinality of sources that lose edges and are not removed themselves."""
    assert isinstance(table.owner, EdgeType)
    nodes = staging.table(table_key(Kind.NODE, table.owner.source))
    touched = pa.table({"id": distinct_of(table.removed, "src")})
    staying = without_ids(touched, nodes.removed.column("id").combine_chunks()).column("id")
    if not len(staying):
        return RuleViolations()
    sources = staying.combine_chunks()
    committed = rows_by_key(table.reader, "src", sources, _EDGE_KEYS)
    left = without_ids(committed, table.removed.column("id").combine_chunks())
    incoming = pa.table({"id": pa.nulls(len(sources), pa.utf8()), "src": sources})
    return check_keys(incoming, left, rule)
