"""Upkeep on either engine: the same plans and commits, the tasks in this process or on executors.

Invariant: an engine decides where tasks run and nothing else. Spark is loaded only when asked for:
`auto` means the session that is passed, and without one this process.
"""

from typing import TYPE_CHECKING

from omnigraph.catalog.model import Catalog
from omnigraph.errors import BadRequest
from omnigraph.exec.durations import Duration
from omnigraph.exec.progress import OnUpkeepProgress
from omnigraph.exec.upkeep import cleanup as cleaning
from omnigraph.exec.upkeep import repair as repairing
from omnigraph.exec.upkeep.cleanup import CleanupReport
from omnigraph.exec.upkeep.optimize import Optimizer, OptimizeReport
from omnigraph.storage.records import NO_NOTE, CommitNote
from omnigraph.storage.store import Store
from omnigraph.storage.upkeep.repair import RepairReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.pipeline.spark_upkeep import OnSpark

ENGINES = ("auto", "local", "spark")


def optimize(
    store: Store,
    catalog: Catalog,
    branch: str,
    *,
    engine: str = "auto",
    spark: "SparkSession | None" = None,
    note: CommitNote = NO_NOTE,
    progress: OnUpkeepProgress | None = None,
) -> OptimizeReport:
    """Bring a branch in order."""
    executors = _executors(store, engine, spark)
    run = Optimizer(store, catalog, branch, note, progress)
    if executors is not None:
        run.run, run.parts, run.engine = executors.optimize, executors.parallelism, "spark"
    return run.optimize()


def cleanup(
    store: Store,
    *,
    keep: int | None,
    older_than: Duration | None,
    confirm: bool,
    grace: Duration,
    engine: str = "auto",
    spark: "SparkSession | None" = None,
) -> CleanupReport:
    """Remove what only old commits need."""
    executors = _executors(store, engine, spark)
    run = None if executors is None else executors.reclaim
    return cleaning.cleanup(
        store, keep=keep, older_than=older_than, confirm=confirm, grace=grace, run=run
    )


def repair(
    store: Store,
    *,
    confirm: bool,
    force: bool,
    note: CommitNote = NO_NOTE,
    engine: str = "auto",
    spark: "SparkSession | None" = None,
) -> RepairReport:
    """End the drift of table heads."""
    executors = _executors(store, engine, spark)
    run = None if executors is None else executors.look
    return repairing.repair(store, confirm=confirm, force=force, note=note, run=run)


def _executors(store: Store, engine: str, spark: "SparkSession | None") -> "OnSpark | None":
    if engine not in ENGINES:
        raise BadRequest(f"'{engine}' is no engine for upkeep", f"use {', '.join(ENGINES)}")
    if engine == "local" or (engine == "auto" and spark is None):
        return None
    from omnigraph.pipeline.spark_upkeep import OnSpark  # noqa: PLC0415

    return OnSpark(store, spark)
