"""Query as a lazy Spark DataFrame: tasks solve shares of the pattern, Spark groups and orders.

    shares ──mapInArrow──▶ groups | rows ──▶ columns ──▶ distinct ──▶ order, cut
    ranges of              Spark's group     our own      Spark's      Spark's sort,
    start rows             by                expressions  distinct     offset and limit

Invariant: the rows of the frame are the rows that the plan has in one process, in its order, with
nulls as the least value; no process gathers more than a share of what the pattern makes. A plan
that starts at nodes it names is one share, and one that must see its rows together before they are
columns (fusion of rankings, a stage) is solved whole by one task.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from omnigraph.catalog.arrow import arrow_type
from omnigraph.costs import COSTS
from omnigraph.errors import OmnigraphError
from omnigraph.exec.profile import Figures
from omnigraph.exec.read.added_up import ROWS_ALONE
from omnigraph.exec.read.aggregate import Groups
from omnigraph.exec.read.share import put_together
from omnigraph.exec.values.computed import cut_plan, no_text_search
from omnigraph.exec.values.constants import Given
from omnigraph.exec.values.evaluate import Evaluator
from omnigraph.exec.values.rows import ONE_ROW, Rows
from omnigraph.pipeline.connect_session import parallelism
from omnigraph.pipeline.share_tasks import Asked, Batches, Refusal, ShareTask, as_schema
from omnigraph.pipeline.spark_groups import grouped, measured, value_of
from omnigraph.pipeline.spark_types import as_declared, nearest, spark_schema, struct_of
from omnigraph.plan import ir
from omnigraph.plan.expressions import type_of
from omnigraph.plan.middle_start import from_the_middle
from omnigraph.plan.shares import Shares, in_shares
from omnigraph.types import ValueType

_SHARES_A_CORE = 4
_SHARES_MAX = 4096
_CUT_MAX = 2**31 - 1


def unwatched(_figures: Figures) -> None:
    """Nobody asks for the figures of the tasks."""


@dataclass(frozen=True, slots=True)
class FrameMaker:
    """Makes the frames of one request."""

    spark: SparkSession
    asked: Asked
    is_at_points: Callable[[ir.ReadPlan], bool]
    ended: Callable[[Figures], None] = unwatched

    def frame(self, plan: ir.ReadPlan) -> DataFrame:
        """The rows of a plan, in columns `c0`, `c1`, …"""
        if plan.union is None:
            return self._frame(cut_plan(plan, self.asked.given))
        return self._united(plan.union)

    def _frame(self, plan: ir.ReadPlan) -> DataFrame:
        shares = in_shares(plan)
        if shares is None:
            schema = spark_schema(_names("c", plan.columns), [c.type for c in plan.columns])
            return self._tasks(plan, None, schema)
        plan = self._begun(plan)
        given_by = shares.of_share.columns
        schema = spark_schema(_names("s", given_by), [c.type for c in given_by])
        if not given_by:
            schema = pa.schema([pa.field(ROWS_ALONE, pa.bool_())])
        solved = self._tasks(plan, self._count(plan), schema)
        return _Gathering(shares, self.asked.given).frame(solved)

    def _begun(self, plan: ir.ReadPlan) -> ir.ReadPlan:
        """The plan from the node that tasks divide best."""
        middle = from_the_middle(plan)
        first = middle.pattern[0]
        is_table = isinstance(first, ir.NodeScan) and first.table in self.asked.snapshot.tables
        return middle if is_table else plan

    def _tasks(self, plan: ir.ReadPlan, count: int | None, schema: pa.Schema) -> DataFrame:
        task = ShareTask(replace(self.asked, plan=plan), count, schema, self.ended)
        numbers = self.spark.range(0, count or 1, 1, count or 1)

        def run(batches: Batches) -> Batches:
            return task.run(batches)

        return numbers.mapInArrow(run, struct_of(schema))

    def _count(self, plan: ir.ReadPlan) -> int:
        """How many shares: more than cores, so that none is long, but not of a few rows."""
        if self.is_at_points(plan):
            return 1
        first = plan.pattern[0]
        assert isinstance(first, ir.NodeScan)
        pins = self.asked.snapshot.tables
        tables = [m.table for m in first.members] if first.members else [first.table]
        rows = sum(pins[table].row_count for table in tables if table in pins)
        edges = sum(
            pins[op.edge].row_count
            for op in plan.pattern
            if isinstance(op, ir.Expand | ir.ExpandEdges) and op.edge in pins
        )
        cores = parallelism(self.spark)
        by_size = min((rows + edges) // COSTS.spark_share_rows, cores * _SHARES_A_CORE)
        large = (rows + edges) // COSTS.spark_share_rows_max
        return max(1, min(max(by_size, large, min(cores, rows)), _SHARES_MAX))

    def _united(self, union: ir.Union) -> DataFrame:
        """The rows of several reads, each in its order; of equal rows the first."""
        types = [nearest(arrow_type(kind)) for kind in union.types]
        whole: DataFrame | None = None
        names = _names("c", union.types)
        keeps = (True, *union.keeps_equal)
        kinds = [
            field.dataType for field in struct_of(pa.schema(list(zip(names, types, strict=True))))
        ]
        for number, (part, keeps_equal) in enumerate(zip(union.parts, keeps, strict=True)):
            own = self._frame(cut_plan(part, self.asked.given))
            own = own.select(*(F.col(n).cast(k) for n, k in zip(names, kinds, strict=True)))
            own = own.withColumn("at", F.struct(F.lit(number), F.monotonically_increasing_id()))
            whole = own if whole is None else whole.union(own)
            if not keeps_equal:
                whole = whole.groupBy(*names).agg(F.min("at").alias("at"))
        assert whole is not None
        return whole.orderBy("at").select(*names)


def _names(letter: str, columns: Sequence[object]) -> list[str]:
    return [f"{letter}{number}" for number in range(len(columns))]


@dataclass(frozen=True, slots=True)
class _Gathering:
    """The second part of a plan over the columns of all shares."""

    shares: Shares
    given: Given

    def frame(self, solved: DataFrame) -> DataFrame:
        plan = self.shares.gathered
        finish = _Finish(self.shares, self.given)
        groups = plan.aggregate
        if groups is None and plan.limit is None and plan.order:
            # A sort samples its input first: this way no share is solved twice.
            solved = solved.repartition(parallelism(solved.sparkSession))
        if groups is not None:
            keys = [self._column(key) for key in groups.keys]
            measures = [
                measured(m, None if m.operand is None else self._column(m.operand))
                for m in groups.measures
            ]
            solved = grouped(solved, keys, measures)
        schema = finish.schema

        def run(batches: Batches) -> Batches:
            return finish.run(batches)

        columns = solved.mapInArrow(run, struct_of(schema))
        return self._cut(self._ordered(columns, finish))

    def _column(self, expr: ir.Expr) -> Column:
        """A slot that shares filled; of an expression that reads no row its value."""
        for number, column in enumerate(self.shares.of_share.columns):
            if isinstance(expr, ir.SlotRef) and expr.slot == column.name:
                return F.col(f"s{number}")
        [kind] = struct_of(spark_schema(["c"], [type_of(expr)]))
        [value] = Evaluator(self.given, no_text_search).values(expr, ONE_ROW).to_pylist()
        return F.lit(value).cast(kind.dataType)

    def _ordered(self, columns: DataFrame, finish: "_Finish") -> DataFrame:
        plan, names = self.shares.gathered, finish.names
        if plan.distinct:
            columns = columns.dropDuplicates(names)
        keys = [
            F.col(f"o{n}").desc_nulls_last() if key.descending else F.col(f"o{n}").asc_nulls_first()
            for n, key in enumerate(plan.order)
        ]
        ties = names if plan.distinct else _names("g", finish.ties)
        keys += [F.col(name).asc_nulls_first() for name in ties]
        return (columns.orderBy(*keys) if keys else columns).select(*names)

    def _cut(self, ordered: DataFrame) -> DataFrame:
        plan = self.shares.gathered
        if plan.limit is not None:
            ordered = ordered.limit(min(plan.limit + plan.offset, _CUT_MAX))
        return ordered.offset(min(plan.offset, _CUT_MAX)) if plan.offset else ordered


@dataclass(frozen=True, slots=True)
class _Finish:
    """Columns, sort keys and group keys of rows or groups, batch by batch."""

    shares: Shares
    given: Given

    @property
    def plan(self) -> ir.ReadPlan:
        return self.shares.gathered

    @property
    def names(self) -> list[str]:
        return _names("c", self.plan.columns)

    @property
    def ties(self) -> tuple[ir.Expr, ...]:
        """The keys of groups, which break ties in their order."""
        groups = self.plan.aggregate
        return () if groups is None or self.plan.distinct else groups.keys

    @property
    def _made(self) -> list[tuple[str, ir.Expr, ValueType]]:
        plan = self.plan
        made = [(f"c{n}", c.value, c.type) for n, c in enumerate(plan.columns)]
        made += [(f"o{n}", k.value, type_of(k.value)) for n, k in enumerate(plan.order)]
        return made + [(f"g{n}", key, type_of(key)) for n, key in enumerate(self.ties)]

    @property
    def schema(self) -> pa.Schema:
        made = self._made
        return spark_schema([name for name, _, _ in made], [kind for _, _, kind in made])

    def run(self, batches: Batches) -> Batches:
        """The columns of each batch."""
        try:
            for batch in batches:
                yield from as_schema(self._columns(batch), self.schema)
        except OmnigraphError as error:
            raise Refusal(error) from None

    def _columns(self, batch: pa.RecordBatch) -> pa.Table:
        rows = self._rows(batch)
        evaluator = Evaluator(self.given, no_text_search)
        if self.plan.having is not None:
            rows = rows.take(np.flatnonzero(evaluator.keep(self.plan.having, rows)))
        made = self._made
        values = [_typed(evaluator.values(expr, rows), kind) for _, expr, kind in made]
        return pa.Table.from_arrays(values, names=[name for name, _, _ in made])

    def _rows(self, batch: pa.RecordBatch) -> Rows:
        groups = self.plan.aggregate
        if groups is None:
            return Rows(batch.num_rows, {}, dict(self._slots(batch)))
        slots = {
            key.slot: as_declared(batch.column(f"k{n}"), key.type)
            for n, key in enumerate(groups.keys)
            if isinstance(key, ir.SlotRef)
        }
        measures = dict[ir.Slot, pa.Array]()
        for number, measure in enumerate(groups.measures):
            start = f"m{number}_"
            parts = [batch.column(name) for name in batch.schema.names if name.startswith(start)]
            measures[measure.out] = value_of(measure, parts, self.given)
        merged = Groups(batch.num_rows, Rows(batch.num_rows, {}, slots), {}, measures)
        return put_together(self.shares, merged).as_rows()

    def _slots(self, batch: pa.RecordBatch) -> Iterator[tuple[ir.Slot, pa.Array]]:
        for number, column in enumerate(self.shares.of_share.columns):
            yield ir.Slot(column.name), as_declared(batch.column(f"s{number}"), column.type)


def _typed(values: pa.Array, kind: ValueType) -> pa.Array:
    declared = arrow_type(kind)
    return values if values.type == declared else values.cast(declared)
