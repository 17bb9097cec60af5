"""Upkeep on either engine: the same plans and the same commits, the tasks here or on executors.

Invariant: an engine decides where tasks run and nothing else.
"""

from typing import TYPE_CHECKING

from omnigraph.catalog.model import Catalog
from omnigraph.errors import BadRequest
from omnigraph.exec.optimize import Optimizer, OptimizeReport, Progress
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("local", "spark")


def optimize(
    store: Store,
    catalog: Catalog,
    branch: str,
    *,
    engine: str = "local",
    spark: "SparkSession | None" = None,
    actor: str | None = None,
    progress: Progress | None = None,
) -> OptimizeReport:
    """Bring a branch in order."""
    require_engine(engine)
    run = Optimizer(store, catalog, branch, actor, progress)
    return run.optimize()


def require_engine(engine: str) -> None:
    """Pass for an engine that upkeep runs on."""
    if engine not in ENGINES:
        raise BadRequest(f"'{engine}' is no engine for upkeep", f"use {' or '.join(ENGINES)}")
