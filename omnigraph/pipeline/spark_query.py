"""Query on Spark: the DataFrame of a read, and its rows collected as a result.

Invariant: both read the one snapshot that was chosen when they were asked for. The driver gathers
the answer and no more; files that the tasks are about to map are made before they start, where the
driver may write them.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omnigraph.deferred import deferred
from omnigraph.exec.limits import Watch, watched_by
from omnigraph.exec.profile import Figures, Profile, side_by_side
from omnigraph.exec.read.object_fold import folded
from omnigraph.exec.read.reading import Reading, now_ms
from omnigraph.exec.read.result import QueryResult
from omnigraph.exec.values.computed import cut_plan, given_of
from omnigraph.pipeline.executors import Where, spark_errors
from omnigraph.pipeline.session import session
from omnigraph.plan import ir
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store
from omnigraph.types import ValueType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.pipeline.query_frame import FrameMaker
    from omnigraph.pipeline.share_tasks import Asked, refusal_in
    from omnigraph.pipeline.spark_types import as_declared, as_struct
    from omnigraph.pipeline.task_figures import task_figures
else:
    Asked = deferred("omnigraph.pipeline.share_tasks", "Asked")
    FrameMaker = deferred("omnigraph.pipeline.query_frame", "FrameMaker")
    as_declared = deferred("omnigraph.pipeline.spark_types", "as_declared")
    as_struct = deferred("omnigraph.pipeline.spark_types", "as_struct")
    refusal_in = deferred("omnigraph.pipeline.share_tasks", "refusal_in")
    task_figures = deferred("omnigraph.pipeline.task_figures", "task_figures")


def query_on_spark(
    store: Store,
    reading: Reading,
    plan: ir.ReadPlan,
    params: Mapping[str, ir.Constant],
    snapshot: Snapshot,
    spark: "SparkSession | None",
) -> QueryResult:
    """The rows of a plan, solved on executors."""
    running = spark or session()
    made, figures = _maker(store, reading, plan, params, snapshot, running, counts=True)
    with _refusals("ran a query"):
        columns = made.frame(plan).toArrow()
    types = _types(plan)
    declared = zip(columns.columns, types, strict=True)
    return QueryResult(
        plan.output_names,
        snapshot.commit_id,
        types,
        tuple(as_declared(values, kind) for values, kind in declared),
        columns.num_rows,
        cut_plan(plan, made.asked.given),
        Profile(_together(figures), elsewhere_for="on Spark"),
        _object_columns=plan.object_columns,
    )


def frame_of_query(
    store: Store,
    reading: Reading,
    plan: ir.ReadPlan,
    params: Mapping[str, ir.Constant],
    snapshot: Snapshot,
    spark: "SparkSession | None",
) -> "DataFrame":
    """The rows of a plan as a DataFrame that nobody has asked for yet."""
    running = spark or session()
    made, _ = _maker(store, reading, plan, params, snapshot, running, counts=False)
    with _refusals("made the frame of a query"):
        frame = made.frame(plan)
        columns = folded([frame[name] for name in frame.columns], plan.object_columns, as_struct)
        return frame.select(*columns).toDF(*plan.output_names)


def _maker(
    store: Store,
    reading: Reading,
    plan: ir.ReadPlan,
    params: Mapping[str, ir.Constant],
    snapshot: Snapshot,
    spark: "SparkSession",
    *,
    counts: bool,
) -> "tuple[FrameMaker, Any]":
    with watched_by(Watch(reading.limits)):
        given = given_of(plan, dict(params), now_ms())
    for part in (plan,) if plan.union is None else plan.union.parts:
        reading.leave_files(part, snapshot)
    where = Where(store.where.uri, store.where.storage_options)
    asked = Asked(where, plan, given, snapshot, reading.limits, reading.embedder)
    figures = task_figures(spark) if counts and plan.union is None else None
    if figures is None:
        return FrameMaker(spark, asked, reading.starts_at_points), None
    return FrameMaker(spark, asked, reading.starts_at_points, figures.add), figures


def _types(plan: ir.ReadPlan) -> tuple[ValueType, ...]:
    return plan.union.types if plan.union else tuple(column.type for column in plan.columns)


def _together(figures: Any) -> Figures:
    runs: list[Figures] = [] if figures is None else figures.value
    return side_by_side(runs) if runs else Figures((), ())


@contextmanager
def _refusals(doing: str) -> Iterator[None]:
    """Raise what a task refused, as it would be raised in one process."""
    with spark_errors(doing):
        try:
            yield
        except Exception as error:
            refused = refusal_in(str(error))
            if refused is None:
                raise
            raise refused from None
