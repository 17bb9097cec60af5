"""Bulk load from request to commit: chooses the engine, readies the branch, runs the steps.

Invariant: both engines run the same functions over the same pieces of input, so they accept and
refuse the same inputs and leave the same rows. What ran is in the result.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from omnigraph import environment
from omnigraph.catalog.model import Catalog
from omnigraph.catalog.near_names import did_you_mean
from omnigraph.errors import BadRequest, NotFound
from omnigraph.exec.load.column_names import ColumnNames
from omnigraph.exec.load.files import Options
from omnigraph.exec.load.filled_rows import row_filler
from omnigraph.exec.load.inputs import Input, open_input, open_whole
from omnigraph.exec.load.local import load_local
from omnigraph.exec.load.ndjson import TYPE_OF_ROWS, Owner
from omnigraph.exec.load.request import (
    BY_ID,
    HOW_TO_CREATE,
    MODES,
    LoadIndexes,
    LoadRequest,
    LoadResult,
    OnDuplicate,
    index_timing,
)
from omnigraph.exec.points import Points
from omnigraph.exec.progress import Progress
from omnigraph.exec.search.vector_fill import VectorFill
from omnigraph.exec.topology.build import NO_ENDS
from omnigraph.exec.topology.end_numbers import LoadedEnds
from omnigraph.exec.topology.table_ends import EndsTasks
from omnigraph.exec.upkeep.after_load import after_load
from omnigraph.extras import has_spark, require_spark
from omnigraph.output_file import folder_path
from omnigraph.pipeline.named_owner import named_edge, named_node
from omnigraph.storage.names import MAIN, require_text
from omnigraph.storage.protocol.once import written_once
from omnigraph.storage.records import NO_NOTE, Commit, CommitNote
from omnigraph.storage.store import Store
from omnigraph.types import Kind, TableKey, counts_of_kind

Engine = Literal["auto", "local", "spark"]


@dataclass(frozen=True, slots=True)
class Order:
    """Arguments of a load."""

    source: Any
    mode: str
    type: str | None = None
    edge: str | None = None
    branch: str = MAIN
    from_branch: str | None = None
    engine: str = "auto"
    spark: Any = None
    columns: ColumnNames = field(default_factory=dict)
    rejects: str | os.PathLike[str] | None = None
    progress: Callable[[Progress], None] | None = None
    note: CommitNote = NO_NOTE
    permissive: bool = False
    once: str | None = None
    on_duplicate: str | None = None
    order_by: str | Sequence[str] | None = None
    indexes: str = "now"
    fill: VectorFill | None = None  # of vectors that are made from texts


def load(store: Store, catalog: Catalog, order: Order) -> LoadResult:
    """Load as one commit, creating the branch first if the order says from which.

    A load `once` that a commit of the branch is of already does nothing and returns that commit.
    """
    store.require_writable()
    request = _request(store, catalog, order)
    once = order.once
    if once is None:
        return _loaded(store, catalog, order, request)

    def marked() -> Commit | None:
        if order.branch not in store.branches.list():
            return None
        store.heal()
        return store.marked(order.branch, once)

    return written_once(
        marked,
        lambda: _loaded(store, catalog, order, request),
        lambda done: _repeated(store, catalog, order, request, done),
    )


def _repeated(
    store: Store, catalog: Catalog, order: Order, request: LoadRequest, done: Commit
) -> LoadResult:
    # The process that made the commit may have died before the last stage.
    touched = (each.table for each in catalog.types)
    return LoadResult(
        branch=order.branch,
        base_branch=order.from_branch,
        branch_created=False,
        mode=request.mode,
        nodes={},
        edges={},
        engine="none",
        actor_id=order.note.actor,
        commit=done,
        repeated=True,
        indexes=_after(store, catalog, order, touched, on_spark=False),
    )


def _after(
    store: Store,
    catalog: Catalog,
    order: Order,
    touched: Iterable[TableKey],
    *,
    on_spark: bool,
    ends: Mapping[TableKey, LoadedEnds] = NO_ENDS,
) -> LoadIndexes:
    """The stage after the commit, its tasks where the load ran."""
    run, parts, tasks = None, 1, None
    if on_spark:
        from omnigraph.pipeline.spark_upkeep import OnSpark  # noqa: PLC0415

        frame = order.source if is_spark_frame(order.source) else None
        executors = OnSpark(store, order.spark or (None if frame is None else frame.sparkSession))
        run, parts = executors.optimize, executors.parallelism
        tasks = EndsTasks(executors.number_ends, executors.parallelism)
    return after_load(
        store,
        catalog,
        order.branch,
        touched,
        indexes=index_timing(order.indexes),
        actor=order.note.actor,
        run=run,
        parts=parts,
        ends=ends,
        tasks=tasks,
    )


def _loaded(store: Store, catalog: Catalog, order: Order, request: LoadRequest) -> LoadResult:
    is_frame = is_spark_frame(order.source)
    input = Input(None, None, None) if is_frame else _opened(order, store.where.options)
    engine = choose_engine(order, input, is_frame=is_frame)
    if order.fill is not None and engine == "spark":
        if order.engine == "auto" and not is_frame:
            engine = "local"
        elif order.fill.provider is not None:
            raise BadRequest(
                "a load on Spark makes no vectors of texts",
                'use engine="local", or embed="later" and then `omnigraph embed`',
            )
    created = _ready_branch(store, order)
    request = replace(request, counts_rows=input.counts_rows)
    if order.fill is not None and engine == "local":
        is_replaced = order.mode == "overwrite"
        filler = row_filler(store, order.fill, order.branch, is_replaced=is_replaced)
        request = replace(request, fill=filler)
    if engine == "spark":
        # pyspark is imported only when it is used.
        from omnigraph.pipeline.spark_load import load_spark  # noqa: PLC0415

        frame = order.source if is_frame else None
        commit, taken = load_spark(store, catalog, request, input, frame=frame, spark=order.spark)
    else:
        size, pieces = input.rows_bytes, input.pieces()
        commit, taken = load_local(store, catalog, request, pieces, size_bytes=size)
    built = _after(store, catalog, order, taken.counts, on_spark=engine == "spark", ends=taken.ends)
    return LoadResult(
        branch=order.branch,
        base_branch=order.from_branch,
        branch_created=created,
        mode=request.mode,
        nodes=dict(sorted(counts_of_kind(taken.counts, Kind.NODE).items())),
        edges=dict(sorted(counts_of_kind(taken.counts, Kind.EDGE).items())),
        engine=engine,
        actor_id=order.note.actor,
        commit=commit,
        rounded=dict(sorted(taken.rounded.items())),
        beside_equal=dict(sorted((+taken.beside_equal).items())),
        indexes=built,
    )


def _opened(order: Order, options: Options) -> Input:
    if order.permissive:
        return open_whole(order.source, options)
    return open_input(order.source, options)


def _request(store: Store, catalog: Catalog, order: Order) -> LoadRequest:
    if order.once is not None:
        require_text("the name of a load `once`", order.once)
    environment.LOAD_CONCURRENCY.read()  # refused before a branch is created for the load
    if order.mode not in MODES:
        raise BadRequest(f"unknown load mode '{order.mode}'", f"use {', '.join(MODES)}")
    if order.mode == "patch" and order.permissive:
        raise BadRequest("the older format cannot be patched with", "load it with mode merge")
    order_by = _order_by(order)
    index_timing(order.indexes)
    return LoadRequest(
        mode=order.mode,
        branch=order.branch,
        owner=_owner(catalog, order),
        columns=dict(order.columns),
        rejects=None if order.rejects is None else folder_path(order.rejects, "rejects"),
        note=order.note,
        progress=order.progress,
        permissive=order.permissive,
        once=order.once,
        on_duplicate=_on_duplicate(order),
        is_ordered=bool(order_by) or not is_spark_frame(order.source),
        order_by=order_by,
        external=store.external_blobs(),
        options=store.where.options,
    )


def _on_duplicate(order: Order) -> OnDuplicate:
    """What an id that comes twice means; the last counts in a merge of an ordered input."""
    match order.on_duplicate:
        case None:
            is_ordered = order.order_by is not None or not is_spark_frame(order.source)
            return "last" if order.mode in BY_ID and is_ordered else "refuse"
        case "refuse":
            return "refuse"
        case "last" if order.mode not in BY_ID:
            raise BadRequest(
                f"on_duplicate='last' is for a merge or a patch, not for mode '{order.mode}'",
                "leave it out, or merge",
            )
        case "last" if is_spark_frame(order.source) and order.order_by is None:
            raise BadRequest("a DataFrame has no order", "say which row is the last with order_by=")
        case "last":
            return "last"
        case _:
            raise BadRequest(f"unknown on_duplicate '{order.on_duplicate}'", "use last or refuse")


def _order_by(order: Order) -> tuple[str, ...]:
    """The columns that order a DataFrame; refused where they would mean nothing."""
    if order.order_by is None:
        return ()
    names = (order.order_by,) if isinstance(order.order_by, str) else tuple(order.order_by)
    if not is_spark_frame(order.source):
        raise BadRequest("order_by= is for a DataFrame", "other inputs are read in their order")
    if order.mode not in BY_ID or order.on_duplicate == "refuse":
        raise BadRequest(
            "order_by= says which row counts in a merge, and this load refuses duplicates",
            "leave it out, or merge without on_duplicate='refuse'",
        )
    for name in names:
        if name not in order.source.columns:
            raise BadRequest(f"the DataFrame has no column '{name}' to order by")
    return names


def _owner(catalog: Catalog, order: Order) -> Owner | None:
    if order.type is not None and order.edge is not None:
        raise BadRequest("type= and edge= exclude each other", "load one type at a time")
    name = order.type if order.type is not None else order.edge
    if name is None:
        if order.columns:
            raise BadRequest("columns= needs type= or edge=", TYPE_OF_ROWS)
        return None
    return named_edge(catalog, name) if order.type is None else named_node(catalog, name)


def choose_engine(order: Order, input: Input, *, is_frame: bool) -> Literal["local", "spark"]:
    """The engine that was asked for, or for `auto` Spark unless the input is known to be small, or
    Spark is not installed."""
    match order.engine:
        case "local" if is_frame:
            raise BadRequest("a Spark DataFrame is loaded by Spark", "use engine='spark'")
        case "local":
            return "local"
        case "spark":
            if order.spark is None and not is_frame:
                require_spark()  # before a branch is created for the load
            return "spark"
        case "auto":
            size_max = environment.LOCAL_BYTES.read()
            is_small = input.size_bytes is not None and input.size_bytes <= size_max
            if _has_no_columns(order.source):
                return "local"
            if is_frame or order.spark is not None or _session_is_active():
                return "spark"
            # A stream of records passes through this process on either engine.
            is_stream = input.size_bytes is None
            return "local" if is_small or is_stream or not has_spark() else "spark"
        case _:
            raise BadRequest(f"unknown engine '{order.engine}'", "use auto, local or spark")


def _has_no_columns(source: Any) -> bool:
    """Whether a source is a table that has rows alone: how many is lost on the way to a task."""
    return isinstance(source, pa.Table | pa.RecordBatch) and source.num_columns == 0


def _session_is_active() -> bool:
    module = sys.modules.get("pyspark.sql")
    return module is not None and module.SparkSession.getActiveSession() is not None


def is_spark_frame(source: Any) -> bool:
    """Whether the source is a Spark DataFrame."""
    return type(source).__module__.startswith("pyspark.sql") and hasattr(source, "mapInArrow")


def unknown_branch(known: Sequence[str], missing: NotFound) -> NotFound:
    """A branch that a load does not find, with the one that is near and how to make it."""
    near = did_you_mean(missing.name, known, listed=False)
    hint = missing.hint or "; ".join(filter(None, (HOW_TO_CREATE, near)))
    return NotFound("branch", missing.name, hint)


def _ready_branch(store: Store, order: Order) -> bool:
    """Whether the branch had to be created."""
    if order.branch == MAIN or order.branch in store.branches.list():
        return False
    if order.from_branch is None:
        try:
            store.branches.identity(order.branch)
        except NotFound as missing:
            raise unknown_branch(store.branches.list(), missing) from None
        return False  # another process created it just now
    Points(store).branch_from(order.branch, order.from_branch)
    return True
