"""Deferred names of the door: rooms that a process enters by its first read, write or upkeep.

Invariant: importing this module imports none of them.
"""

from typing import TYPE_CHECKING

from omnigraph.deferred import deferred

if TYPE_CHECKING:
    from omnigraph.exec.changes.diff import Changes, changes_between, filters
    from omnigraph.exec.load.request import LoadResult
    from omnigraph.exec.mutate.coalesce import (
        Coalescer,
        require_sharing,
        require_window,
        shares_commit,
    )
    from omnigraph.exec.mutate.run import (
        MutationResult,
        reads_by_match,
        request,
        run_mutation,
    )
    from omnigraph.exec.read.result import QueryResult
    from omnigraph.exec.topology.build import topology_after
    from omnigraph.exec.upkeep.build_indexes import IndexReport, ensure_indices
    from omnigraph.exec.upkeep.check import CheckReport, check
    from omnigraph.exec.upkeep.cleanup import CleanupReport
    from omnigraph.exec.upkeep.optimize import OptimizeReport
    from omnigraph.pipeline import upkeep
    from omnigraph.pipeline.frames import Frames
    from omnigraph.pipeline.load import Order, load, unknown_branch
    from omnigraph.pipeline.spark_query import query_on_spark
    from omnigraph.plan.compile import compile_query
    from omnigraph.plan.facts import tables_read
    from omnigraph.plan.ir import ReadPlan
    from omnigraph.plan.params import bind_parameters
    from omnigraph.policy.decisions import Policy
    from omnigraph.storage.upkeep.repair import RepairReport
else:
    Changes = deferred("omnigraph.exec.changes.diff", "Changes")
    changes_between = deferred("omnigraph.exec.changes.diff", "changes_between")
    filters = deferred("omnigraph.exec.changes.diff", "filters")
    LoadResult = deferred("omnigraph.exec.load.request", "LoadResult")
    Coalescer = deferred("omnigraph.exec.mutate.coalesce", "Coalescer")
    require_sharing = deferred("omnigraph.exec.mutate.coalesce", "require_sharing")
    require_window = deferred("omnigraph.exec.mutate.coalesce", "require_window")
    shares_commit = deferred("omnigraph.exec.mutate.coalesce", "shares_commit")
    MutationResult = deferred("omnigraph.exec.mutate.run", "MutationResult")
    reads_by_match = deferred("omnigraph.exec.mutate.run", "reads_by_match")
    request = deferred("omnigraph.exec.mutate.run", "request")
    run_mutation = deferred("omnigraph.exec.mutate.run", "run_mutation")
    QueryResult = deferred("omnigraph.exec.read.result", "QueryResult")
    topology_after = deferred("omnigraph.exec.topology.build", "topology_after")
    IndexReport = deferred("omnigraph.exec.upkeep.build_indexes", "IndexReport")
    ensure_indices = deferred("omnigraph.exec.upkeep.build_indexes", "ensure_indices")
    CheckReport = deferred("omnigraph.exec.upkeep.check", "CheckReport")
    check = deferred("omnigraph.exec.upkeep.check", "check")
    CleanupReport = deferred("omnigraph.exec.upkeep.cleanup", "CleanupReport")
    OptimizeReport = deferred("omnigraph.exec.upkeep.optimize", "OptimizeReport")
    upkeep = deferred("omnigraph.pipeline", "upkeep")
    Frames = deferred("omnigraph.pipeline.frames", "Frames")
    Order = deferred("omnigraph.pipeline.load", "Order")
    load = deferred("omnigraph.pipeline.load", "load")
    unknown_branch = deferred("omnigraph.pipeline.load", "unknown_branch")
    query_on_spark = deferred("omnigraph.pipeline.spark_query", "query_on_spark")
    compile_query = deferred("omnigraph.plan.compile", "compile_query")
    tables_read = deferred("omnigraph.plan.facts", "tables_read")
    ReadPlan = deferred("omnigraph.plan.ir", "ReadPlan")
    bind_parameters = deferred("omnigraph.plan.params", "bind_parameters")
    Policy = deferred("omnigraph.policy.decisions", "Policy")
    RepairReport = deferred("omnigraph.storage.upkeep.repair", "RepairReport")

__all__ = [
    "Changes",
    "CheckReport",
    "CleanupReport",
    "Coalescer",
    "Frames",
    "IndexReport",
    "LoadResult",
    "MutationResult",
    "OptimizeReport",
    "Order",
    "Policy",
    "QueryResult",
    "ReadPlan",
    "RepairReport",
    "bind_parameters",
    "changes_between",
    "check",
    "compile_query",
    "ensure_indices",
    "filters",
    "load",
    "query_on_spark",
    "reads_by_match",
    "request",
    "require_sharing",
    "require_window",
    "run_mutation",
    "shares_commit",
    "tables_read",
    "topology_after",
    "unknown_branch",
    "upkeep",
]
