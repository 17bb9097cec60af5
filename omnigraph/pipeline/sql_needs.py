"""Column pruning and predicate pushdown of SQL statements over a graph.

Spark prunes no column of a Python data source and pushes no condition into one, so each table is
narrowed before the statement reads it. Spark's own optimiser says to what: the statement is planned
over tables that have the columns and no rows, in which conditions and columns end up beside the
table they are about.

Invariant: a row or a column that a statement needs is never left out. Spark asks every condition
again; of a table that is read in several places a row stays that one of them needs. Conditions are
those that Lance answers as Spark does: comparisons of whole numbers, texts and truths with
constants. A statement that Spark cannot plan this way reads everything.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from omnigraph.pipeline.connect_session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READS = re.compile(r"\s*(select|with)\b", re.I)
_WRITES = re.compile(r"\binsert\b", re.I)
_TABLE = "LogicalRDD"
_COMPARED = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_KINDS = frozenset({"int", "bigint", "string", "boolean"})


@dataclass(frozen=True, slots=True)
class Needs:
    """What a statement reads of a table: columns, and the condition that its rows fulfil."""

    columns: tuple[str, ...]
    where: str | None


def needs_of(
    spark: "SparkSession", statement: str, tables: Mapping[str, pa.Schema], options: dict[str, Any]
) -> dict[str, Needs]:
    """What a statement reads of tables that a session of its own may see by these names; nothing is
    said of a table that it may read whole."""
    if is_connect(spark) or not _READS.match(statement) or _WRITES.search(statement):
        return {}
    numbers: dict[int, str] = {}
    for name, schema in tables.items():
        nothing = spark.sparkContext.emptyRDD()
        frame = spark.createDataFrame(nothing, from_arrow_schema(schema))
        frame.createOrReplaceTempView(name)
        numbers[_number(frame._jdf.queryExecution().analyzed())] = name
    plan = spark.sql(statement, **options)._jdf.queryExecution().optimizedPlan()
    uses = [(numbers.get(_number(use.table)), use) for use in _uses(plan, ())]
    if str(plan.treeString()).count(_TABLE) != len(uses):
        return {}  # a subquery that is planned by itself
    return {
        name: _joined(tables[name], [use for known, use in uses if known == name])
        for name in tables
    }


@dataclass(frozen=True, slots=True)
class _Use:
    """A place of a plan that reads a table, and what stands above it there."""

    table: Any
    above: tuple[Any, ...]

    @property
    def condition(self) -> Any | None:
        """What its rows must fulfil."""
        is_filtered = bool(self.above) and _kind(self.above[-1]) == "Filter"
        return self.above[-1].condition() if is_filtered else None

    @property
    def columns(self) -> frozenset[str] | None:
        """The columns that are read here; None: all."""
        above = self.above if self.condition is None else self.above[:-1]
        if not above or _kind(above[-1]) not in ("Project", "Aggregate"):
            return None
        asked = [above[-1]] if self.condition is None else [above[-1], self.above[-1]]
        return frozenset(
            str(attribute.name()).lower()
            for node in asked
            for attribute in _each(node.references().toSeq())
        )


def _uses(node: Any, above: tuple[Any, ...]) -> Iterator[_Use]:
    if _kind(node) == _TABLE:
        yield _Use(node, above)
    for child in _each(node.children()):
        yield from _uses(child, (*above, node))


def _joined(schema: pa.Schema, uses: list[_Use]) -> Needs:
    """What all uses of a table need together."""
    names = {name.lower(): name for name in schema.names}  # a statement may spell them in any case
    asked = [use.columns for use in uses]
    read_here = {name for each in asked for name in (names if each is None else each)}
    conditions = [None if use.condition is None else _text(use.condition, names) for use in uses]
    where = None
    if uses and all(conditions):
        where = " or ".join(dict.fromkeys(f"({each})" for each in conditions))
    return Needs(tuple(name for known, name in names.items() if known in read_here), where)


def _number(table: Any) -> int:
    """What tells one table from others, wherever a plan repeats it."""
    return int(table.rdd().id()) if _kind(table) == _TABLE else -1


# Conditions


def _text(condition: Any, names: Mapping[str, str]) -> str | None:
    """A condition that every row fulfils which fulfils this one; None: any row may."""
    kind, parts = _kind(condition), list(_each(condition.children()))
    if kind == "And":
        texts = [text for part in parts if (text := _text(part, names)) is not None]
        return " and ".join(texts) or None
    if kind == "Or":
        either = [_text(part, names) for part in parts]
        return None if None in either else f"({' or '.join(map(str, either))})"
    if kind in ("IsNotNull", "IsNull"):
        column = _column(parts[0], names)
        return column and f"{column} is {'not ' * (kind == 'IsNotNull')}null"
    if kind in _COMPARED:
        left, right = (_column(part, names) or _literal(part) for part in parts)
        return None if left is None or right is None else f"{left} {_COMPARED[kind]} {right}"
    if kind == "In":
        column, values = _column(parts[0], names), [_literal(part) for part in parts[1:]]
        known = [value for value in values if value is not None]
        is_known = column is not None and len(known) == len(values)
        return f"{column} in ({', '.join(known)})" if is_known else None
    return _column(condition, names) if _type(condition) == "boolean" else None


def _column(expression: Any, names: Mapping[str, str]) -> str | None:
    if _kind(expression) != "AttributeReference" or _type(expression) not in _KINDS:
        return None
    return f"`{names[str(expression.name()).lower()]}`"


def _literal(expression: Any) -> str | None:
    if _kind(expression) != "Literal" or _type(expression) not in _KINDS:
        return None
    value = expression.value()
    if value is None:
        return None
    text = str(value if isinstance(value, bool | int) else value.toString())
    return "'" + text.replace("'", "''") + "'" if _type(expression) == "string" else text.lower()


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _type(expression: Any) -> str:
    return str(expression.dataType().simpleString())


def _each(items: Any) -> Iterator[Any]:
    for number in range(items.size()):
        yield items.apply(number)
