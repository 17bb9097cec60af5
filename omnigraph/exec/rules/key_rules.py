"""Key rules as SQL over two small tables: `incoming` and `committed`.

`incoming` holds the keys of the rows that a write adds or changes, as they will be. `committed`
holds the keys of other rows that may clash with them, without the rows that the write replaces or
removes. The caller looks them up; nothing here reads a table of the graph.

Invariant: a rule relates rows only when they agree on its join columns: the id, the columns of a
unique tuple, an edge's end and its node's id, or the source. So both tables may be cut into buckets
by a hash of these columns and checked one bucket at a time, in this process or in a Spark task, and
the violations of all buckets together are those of the whole.
"""

from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.ids import id_form
from omnigraph.costs import COSTS
from omnigraph.errors import Violation
from omnigraph.exec.rules.row_rules import shown
from omnigraph.exec.rules.rules import (
    VIOLATIONS_LISTED,
    DistinctIds,
    EdgesPerSource,
    Endpoint,
    FreeIds,
    KeyRule,
    RuleViolations,
    Unique,
)


def check_keys(
    incoming: pa.Table,
    committed: pa.Table,
    rule: KeyRule,
    *,
    listed: int | None = VIOLATIONS_LISTED,
) -> RuleViolations:
    """The violations of one key rule, in the order of the values that break it; `listed` None
    lists them all."""
    if not incoming.num_rows or _clearly_kept(incoming, committed, rule):
        return RuleViolations()
    wrong = _run(statement(rule), incoming, committed)
    if not wrong.num_rows:
        return RuleViolations()
    wrong = wrong.sort_by([(name, "ascending") for name in wrong.column_names])
    rows = wrong.slice(0, listed).to_pylist()
    return RuleViolations(tuple(_violation(rule, row) for row in rows), wrong.num_rows)


def _clearly_kept(incoming: pa.Table, committed: pa.Table, rule: KeyRule) -> bool:
    """Whether a few rows keep the rule for a reason that needs no query: planning one takes longer
    than all else a small write does. Where this is not sure the statement decides."""
    if (
        incoming.num_rows > COSTS.key_reason_rows_max
        or committed.num_rows > COSTS.key_reason_rows_max
    ):
        return False
    match rule:
        case DistinctIds():
            return bool(pc.count_distinct(incoming["id"]).as_py() == incoming.num_rows)
        case FreeIds():
            return not committed.num_rows
        case Unique():
            return incoming.num_rows == 1 and not committed.num_rows
        case Endpoint(end=end):
            known = pc.is_in(incoming[end], value_set=committed["id"].combine_chunks())
            return bool(pc.all(known).as_py())
        case EdgesPerSource():
            return False
        case _:
            assert_never(rule)


def missing_ends(edges: pa.Table, rule: Endpoint) -> RuleViolations:
    """A violation an edge, for edges that are known to have no node at one end."""
    rows = edges.select(["id", rule.end]).rename_columns(["id", "missing"]).to_pylist()
    return RuleViolations(tuple(_violation(rule, row) for row in rows), len(rows))


def statement(rule: KeyRule) -> str:
    """The rule as a query whose rows are its violations."""
    match rule:
        case DistinctIds():
            return "SELECT id FROM incoming GROUP BY id HAVING count(*) > 1"
        case FreeIds():
            return "SELECT DISTINCT incoming.id FROM incoming JOIN committed USING (id)"
        case Unique(columns=columns):
            return _unique(columns)
        case Endpoint(end=end):
            return (
                f"SELECT incoming.{end} AS missing, min(incoming.id) AS id FROM incoming "
                f"LEFT ANTI JOIN committed ON incoming.{end} = committed.id "
                f"WHERE incoming.{end} IS NOT NULL GROUP BY incoming.{end}"
            )
        case EdgesPerSource(low=low, high=high):
            return _per_source(low, high)
        case _:
            assert_never(rule)


def _unique(columns: tuple[str, ...]) -> str:
    """Groups of one tuple with rows of several ids, one of them incoming. Rows of one id break the
    rule of ids, which says more."""
    names = ", ".join(_quoted(name) for name in columns)
    present = " AND ".join(f"{_quoted(name)} IS NOT NULL" for name in columns)
    return (
        f"SELECT {names}, min(id) AS first_id, max(id) AS last_id FROM ("
        f"SELECT id, {names}, true AS fresh FROM incoming WHERE {present} UNION ALL "
        f"SELECT id, {names}, false AS fresh FROM committed WHERE {present}) "
        f"GROUP BY {names} HAVING min(id) <> max(id) AND bool_or(fresh)"
    )


def _per_source(low: int, high: int | None) -> str:
    """Touched sources with too few or too many edges. An incoming row without id only touches."""
    above = "" if high is None else f" OR count(id) > {high}"
    return (
        "SELECT src, count(id) AS edges FROM (SELECT id, src FROM incoming UNION ALL "
        "SELECT committed.id, committed.src FROM committed LEFT SEMI JOIN incoming "
        f"ON committed.src = incoming.src) GROUP BY src HAVING count(id) < {low}{above}"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _run(sql: str, incoming: pa.Table, committed: pa.Table) -> pa.Table:
    # Most processes only read, and loading the engine costs a second.
    from datafusion import SessionConfig, SessionContext  # noqa: PLC0415

    session = SessionContext(SessionConfig().with_target_partitions(1))
    for name, rows in (("incoming", incoming), ("committed", committed)):
        session.register_record_batches(name, [_batches(rows)])
    return session.sql(sql).to_arrow_table()


def _batches(rows: pa.Table) -> list[pa.RecordBatch]:
    """The batches of a table, one at least: the engine takes the schema from it.

    A key may be null although its column forbids that: another rule says so.
    """
    schema = pa.schema([pa.field(field.name, field.type) for field in rows.schema])
    batches = pa.table(rows.columns, schema=schema).to_batches()
    return batches or [pa.RecordBatch.from_pylist([], schema=schema)]


# ---- texts


def _violation(rule: KeyRule, row: dict[str, Any]) -> Violation:
    name = rule.type_name
    match rule:
        case DistinctIds(key=key, advice=advice):
            label = Unique(name, key).label if key else "id"
            word = "key" if key else "unique"
            text = f"@{word} violation on {name}.{label}: value '{shown(row['id'])}' comes twice"
            text = f"{text} ({advice})" if advice else text
            return Violation("unique", name, label, row["id"], row["id"], text)
        case FreeIds(kind=kind):
            text = f"{kind} type '{name}' already has id '{row['id']}'"
            return Violation("id", name, "id", row["id"], row["id"], text)
        case Unique(columns=columns):
            return _unique_violation(rule, [shown(row[column]) for column in columns], row)
        case Endpoint(end=end, node_name=node):
            text = f"{end} '{shown(row['missing'])}' not found in {node}"
            text = f"{text}{id_form(rule.node_name, rule.node_key)}"
            return Violation("endpoint", name, end, row["id"], row["missing"], text)
        case EdgesPerSource():
            return _cardinality_violation(rule, row["src"], row["edges"])
        case _:
            assert_never(rule)


def _unique_violation(rule: Unique, values: list[str], row: dict[str, Any]) -> Violation:
    value = values[0] if len(values) == 1 else f"({', '.join(values)})"
    first, last = row["first_id"], row["last_id"]
    text = (
        f"@{rule.word} violation on {rule.type_name}.{rule.label}: value '{value}' "
        f"held by '{first}' and '{last}'"
    )
    return Violation(rule.word, rule.type_name, rule.label, last, value, text)


def _cardinality_violation(rule: EdgesPerSource, source: str, edges: int) -> Violation:
    too_few = edges < rule.low
    bound = f"min {rule.low}" if too_few else f"max {rule.high}"
    text = f"@card violation on edge {rule.type_name}: source '{source}' has {edges} edges"
    return Violation("cardinality", rule.type_name, None, source, str(edges), f"{text} ({bound})")
