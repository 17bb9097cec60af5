"""Backfill: values for a property added to existing rows, from an SQL expression over the row or
from its default.

The expression may name the properties of the row, as they are called after the change, `id`, and of
an edge `src` and `dst`. Blobs are left out.

Invariant: the same row gives the same value however the table is cut into batches and however often
it is evaluated: `now()` is one moment for the whole change. A value is one that a load would accept
for the property, or the change stops before anything is written.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.catalog.arrow import property_field
from omnigraph.catalog.model import Catalog, EdgeType, NodeType, Property
from omnigraph.catalog.schema_diff import MigrationPlan
from omnigraph.catalog.steps import AddProperty
from omnigraph.errors import BadRequest
from omnigraph.exec.values.default_cells import default_cells
from omnigraph.exec.values.from_columns import converted
from omnigraph.exec.values.sql_bounds import require_bounded_sql
from omnigraph.query_limits import BACKFILL_OPERATORS_MAX

_VOLATILE = re.compile(
    r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*")"""
    r"|\b(?P<moment>now\s*\(\s*\)|current_timestamp\b(?:\s*\(\s*\))?)"
    r"|\b(?P<day>today\s*\(\s*\)|current_date\b(?:\s*\(\s*\))?)"
    r"|\b(?P<time>current_time\b(?:\s*\(\s*\))?)"
    r"|\b(?P<chance>(?:random|uuid)\s*\(\s*\))",
    re.IGNORECASE,
)
_DAY_MS = 86_400_000

Owner = NodeType | EdgeType


@dataclass(frozen=True, slots=True)
class Filling:
    """The backfilled properties of one type, with their expressions and the columns these read."""

    owner: Owner
    expressions: Mapping[str, str]  # by property
    columns: Mapping[str, str]  # name in the table before the change → name after it
    now_ms: int
    defaulted: frozenset[str] = frozenset()  # properties that take their default

    @property
    def names(self) -> frozenset[str]:
        """The names of the backfilled properties."""
        return self.defaulted | self.expressions.keys()

    @property
    def properties(self) -> tuple[Property, ...]:
        """The backfilled properties, in order of identity."""
        filled = (prop for prop in self.owner.properties if prop.name in self.names)
        return tuple(sorted(filled, key=lambda prop: prop.id))

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return tuple(map(property_field, self.properties))

    def values(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The backfilled columns for a batch of the old table."""
        rows = batch.rename_columns([self.columns[name] for name in batch.schema.names])
        arrays = [self._value(rows, prop) for prop in self.properties]
        # The rules report a missing required value, with its row.
        schema = pa.schema([field.with_nullable(True) for field in self.fields])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _value(self, rows: pa.RecordBatch, prop: Property) -> pa.Array:
        if prop.name in self.defaulted:
            return default_cells(prop, rows.num_rows)
        expression = self.expressions[prop.name]
        try:
            done = converted(evaluated(rows, self._fixed(expression)), prop.type)
            if done.bad:
                entity = rows.column("id")[done.bad[0].row].as_py()
                raise ValueError(f"for '{entity}': it {done.bad[0].unfit.text}")
            return done.cells
        except Exception as cause:
            reason = str(cause).splitlines()[0].removeprefix("DataFusion error: ")
            raise BadRequest(
                f"the backfill of {self.owner.name}.{prop.name} does not give {prop.type}: "
                f"{expression} ({reason})",
                "write an expression over the properties of the row",
            ) from cause

    def _fixed(self, expression: str) -> str:
        return at_moment(expression, self.now_ms)


def at_moment(expression: str, now_ms: int) -> str:
    """The SQL expression with this moment for `now()` and its relatives (constant folding)."""

    def folded(part: re.Match[str]) -> str:
        match part.lastgroup:
            case "moment":
                return f"arrow_cast({now_ms * 1_000_000}, 'Timestamp(Nanosecond, None)')"
            case "day":
                return f"arrow_cast({now_ms // _DAY_MS}, 'Date32')"
            case "time":
                return f"arrow_cast({now_ms % _DAY_MS * 1_000_000}, 'Time64(Nanosecond)')"
            case "chance":
                raise ValueError(f"{part[0]} gives another value each time")
            case _:
                return part[0]

    return _VOLATILE.sub(folded, expression)


def evaluated(rows: pa.RecordBatch, expression: str) -> pa.Array:
    """Evaluate an SQL expression for each row, in order (DataFusion)."""
    # Most processes only read, and importing DataFusion takes a second.
    from datafusion import SessionConfig, SessionContext  # noqa: PLC0415

    require_bounded_sql(expression, "backfill expression", BACKFILL_OPERATORS_MAX)
    # Names are case-sensitive, as in the schema.
    settings = SessionConfig().set("datafusion.sql_parser.enable_ident_normalization", "false")
    session: Any = SessionContext(settings.with_target_partitions(1))
    frame = session.from_arrow(pa.Table.from_batches([rows]), "row")
    result = frame.select(frame.parse_sql_expr(expression).alias("value")).to_arrow_table()
    values = result["value"].combine_chunks()
    return values if isinstance(values, pa.Array) else pa.concat_arrays(values.chunks)


def fillings(plan: MigrationPlan, old: Mapping[Any, Owner]) -> dict[Any, Filling]:
    """The backfills of a plan, by the identity of the type. New types have no rows."""
    expressions: dict[tuple[str, str], dict[str, str]] = {}
    for step in plan.steps:
        if isinstance(step, AddProperty) and step.backfill is not None:
            named = str(step.kind), step.type_name
            expressions.setdefault(named, {})[step.name] = step.backfill
    filled = {}
    now_ms = time.time_ns() // 1_000_000
    for owner in plan.catalog.types:
        of_type = expressions.get((str(owner.kind), owner.name), {})
        if owner.id in old:
            filling = filling_of(old[owner.id], owner, of_type, now_ms)
            if filling is not None:
                filled[owner.id] = filling
    return filled


def require_valid_backfills(plan: MigrationPlan, old: Catalog) -> None:
    """Refuse a backfill expression that an apply would refuse whatever the rows are: it does not
    parse, names what a row lacks, or is not repeatable."""
    before = {owner.id: owner for owner in old.types}
    for type_id, filling in fillings(plan, before).items():
        if filling.expressions:
            columns = [before[type_id].schema.field(name) for name in filling.columns]
            filling.values(pa.RecordBatch.from_pylist([], schema=pa.schema(columns)))


def filling_of(
    old: Owner, new: Owner, expressions: Mapping[str, str], now_ms: int = 0
) -> Filling | None:
    """The backfill of one type: an added property takes its expression, else its default."""
    before = {prop.id for prop in old.properties}
    added = (prop for prop in new.properties if prop.id not in before)
    defaulted = frozenset(p.name for p in added if p.default is not None) - expressions.keys()
    if not expressions and not defaulted:
        return None
    return Filling(new, expressions, columns_after(old, new), now_ms, defaulted)


def columns_after(old: Owner, new: Owner) -> dict[str, str]:
    """The columns of a table that stay, under their names before and after; without blobs."""
    names = {prop.id: prop.name for prop in new.properties}
    ends = ("src", "dst") if isinstance(new, EdgeType) else ()
    kept = {
        prop.name: names[prop.id]
        for prop in old.properties
        if prop.id in names and not prop.type.is_blob
    }
    return {**{name: name for name in ("id", *ends)}, **kept}
