"""Integrity check of rows: columns, ids, values, endpoints, and every constraint of the schema.

Invariant: the rules are those that writes are held to, checked over all rows instead of the touched
ones. Only columns that a rule names, or that can hold a value which no write accepts, are read.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.errors import OmnigraphError, Violation
from omnigraph.exec.rules.key_rules import check_keys
from omnigraph.exec.rules.row_rules import check_rows
from omnigraph.exec.rules.rules import (
    VIOLATIONS_LISTED,
    Endpoint,
    RuleViolations,
    TypeRules,
    joined,
    rules_of,
)
from omnigraph.exec.upkeep.check_values import value_findings
from omnigraph.exec.upkeep.findings import Finding
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store
from omnigraph.types import TableKey

Owner = NodeType | EdgeType

_CORRECT = "correct these rows by a mutation, or go back to a commit that has them right"


def row_findings(
    store: Store,
    catalog: Catalog,
    branch: str,
    pins: Mapping[TableKey, TablePin],
    fresh: set[TableKey],
) -> Iterator[Finding]:
    """Findings of the rows of `fresh` tables, those not checked before, and of edges to them."""
    owners: list[Owner] = [*catalog.nodes.values(), *catalog.edges.values()]
    for owner in owners:
        pin = pins.get(owner.table)
        if pin is None:
            continue
        ends = {e.node_table for e in rules_of(owner).endpoints}
        try:
            reader = store.tables.reader(pin)
            if owner.table in fresh:
                yield from _table(reader, owner)
            if owner.table in fresh or ends & fresh:
                yield from _ends(store, reader, rules_of(owner), pins)
        except OmnigraphError as cause:
            yield Finding(
                "unreadable",
                owner.table,
                f"version {pin.version} on {branch} cannot be read: {cause.fact}",
                "bring its files back from a copy of the graph",
                {"branch": branch, "version": pin.version},
            )


def _table(reader: TableReader, owner: Owner) -> Iterator[Finding]:
    missing = list(_wrong_columns(reader.schema, owner.schema))
    yield from (
        Finding("columns", owner.table, text, "put the accepted schema back, or export and load")
        for text in missing
    )
    if missing:
        return
    rules = rules_of(owner)
    ids = reader.rows(["id"])
    if ids.num_rows != reader.pin.row_count:
        yield Finding(
            "row-count",
            owner.table,
            f"the manifest says {reader.pin.row_count} rows, the table has {ids.num_rows}",
            "write to the table once, which counts anew",
            {"published": reader.pin.row_count, "actual": ids.num_rows},
        )
    if ids.column("id").null_count:
        yield Finding("id-null", owner.table, "a row has no id", _CORRECT)
    yield from _findings(owner, "id-duplicate", check_keys(ids, _no(ids), rules.distinct))
    yield from value_findings(reader, owner)
    yield from _findings(owner, "rule", _rows(reader, rules))
    for unique in rules.uniques:
        rows = reader.rows(list(dict.fromkeys(("id", *unique.columns))))
        yield from _findings(owner, "rule", check_keys(rows, _no(rows), unique))
    if rules.cardinality is not None:
        rows = reader.rows(["id", "src"])
        yield from _findings(owner, "rule", check_keys(rows, _no(rows), rules.cardinality))


def _wrong_columns(stored: pa.Schema, declared: pa.Schema) -> Iterator[str]:
    for column in declared:
        index = stored.get_field_index(column.name)
        if index < 0:
            yield f"the column '{column.name}' is missing"
        elif _stored(stored.field(index).type) != _stored(column.type):
            yield f"the column '{column.name}' is {stored.field(index).type}, not {column.type}"


def _stored(kind: pa.DataType) -> pa.DataType:
    """The storage type: a blob is an Arrow extension type once Lance is loaded."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _rows(reader: TableReader, rules: TypeRules) -> RuleViolations:
    """Every row rule, a batch at a time."""
    columns = list(dict.fromkeys(("id", *(rule.column for rule in rules.rows))))
    if len(columns) == 1:
        return RuleViolations()
    parts = (
        check_rows(rules.rows, pa.Table.from_batches([batch])) for batch in reader.batches(columns)
    )
    return joined([part for part in parts if part.total])


def _ends(
    store: Store, reader: TableReader, rules: TypeRules, pins: Mapping[TableKey, TablePin]
) -> Iterator[Finding]:
    for endpoint in rules.endpoints:
        nodes = pins.get(endpoint.node_table)
        if nodes is None:
            continue  # reported as a missing table
        try:
            ids = store.tables.reader(nodes).rows(["id"])
        except OmnigraphError:
            continue  # reported for that table
        broken = check_keys(reader.rows(["id", endpoint.end]), ids, endpoint)
        yield from _dangling(rules, endpoint, broken)


def _dangling(rules: TypeRules, endpoint: Endpoint, broken: RuleViolations) -> Iterator[Finding]:
    if broken.total:
        missing = [violation.value for violation in broken.violations]
        yield Finding(
            "endpoint-missing",
            rules.table,
            f"{broken.total} node(s) of {endpoint.node_name} at `{endpoint.end}` do not exist: "
            f"{', '.join(str(each) for each in missing)}",
            "delete these edges, or insert the nodes again",
            {"end": endpoint.end, "missing": missing, "total": broken.total},
        )


def _findings(owner: Owner, code: str, broken: RuleViolations) -> Iterator[Finding]:
    by_rule: dict[str, list[Violation]] = {}
    for violation in broken.violations:
        by_rule.setdefault(violation.rule, []).append(violation)
    for rule, violations in by_rule.items():
        yield Finding(
            code if code != "rule" else f"rule-{rule}",
            owner.table,
            "; ".join(violation.text for violation in violations),
            _CORRECT,
            {
                "ids": [violation.id for violation in violations],
                "total": broken.total,
                "listed_max": VIOLATIONS_LISTED,
            },
        )


def _no(rows: pa.Table) -> pa.Table:
    return rows.slice(0, 0)
