"""Spark DataFrames of a graph: one a type, or the result of SQL over all of them.

Invariant: the DataFrames of one call read one snapshot. The caller's session is used as it is: the
tables that a statement names live in a session beside it, which sees the caller's own views too.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from omnigraph.arguments import checked
from omnigraph.catalog.model import EdgeType
from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest
from omnigraph.exec.changes.export import choose_owners
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.read.reading import Reading
from omnigraph.exec.schemas import Schemas
from omnigraph.pipeline.session import beside, register, session
from omnigraph.pipeline.spark_query import frame_of_query
from omnigraph.plan.ir import Constant, ReadPlan
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Snapshot
from omnigraph.storage.store import Store
from omnigraph.types import Kind, table_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.pipeline.spark_columns import shown
    from omnigraph.pipeline.sql_needs import Needs, needs_of
else:
    shown = deferred("omnigraph.pipeline.spark_columns", "shown")
    needs_of = deferred("omnigraph.pipeline.sql_needs", "needs_of")


class Planned(Protocol):
    """Compiles a read, binds its parameters and pins its snapshot, once that is allowed."""

    def __call__(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, Any] | None,
        name: str | None,
        branch: str | None,
        snapshot: str | None,
    ) -> tuple[ReadPlan, dict[str, Constant], Snapshot]: ...


class Frames:
    """`graph.spark`: DataFrames of types and of queries, and SQL."""

    def __init__(
        self,
        store: Store,
        schemas: Schemas,
        pinned: Callable[[str | None, str | None], Snapshot],
        reading: Reading,
        planned: Planned,
    ) -> None:
        self._store = store
        self._schemas = schemas
        self._allowed = pinned  # asks whether the snapshot may be read, first
        self._reading = reading
        self._planned = planned

    @checked
    def query(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        spark: "SparkSession | None" = None,
    ) -> "DataFrame":
        """The rows of a read as a DataFrame, from the head of a branch (`main` by default) or from
        a commit. Nothing runs before the frame is asked for its rows; it keeps the snapshot, the
        parameters and the moment of this call. Tasks solve shares of the pattern, Spark groups,
        orders and cuts."""
        plan, given, pinned = self._planned(query, params, name, branch, snapshot)
        return frame_of_query(self._store, self._reading, plan, given, pinned, spark)

    @checked
    def tables(
        self,
        types: Iterable[str] | None = None,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        spark: "SparkSession | None" = None,
    ) -> "dict[str, DataFrame]":
        """A DataFrame for each type, by its name. Where a node and an edge share a name, the node
        has it; the edge is at hand as `edge:<name>`."""
        pinned = self._pinned(branch, snapshot)
        owners = choose_owners(self._schemas.of(pinned).catalog, types)
        running = spark or session()
        register(running)
        return self._frames(running, owners, pinned)

    @checked
    def sql(
        self,
        statement: str,
        *,
        branch: str = MAIN,
        snapshot: str | None = None,
        spark: "SparkSession | None" = None,
        **options: Any,
    ) -> "DataFrame":
        """The result of a SQL statement in which each type is a table of its name. Only the columns
        and rows that it may need are read, as far as Spark's optimiser says which."""
        pinned = self._pinned(branch, snapshot)
        own = beside(spark or session())
        named = {word.lower() for word in re.findall(r"\w+", statement)}
        every = choose_owners(self._schemas.of(pinned).catalog, None)
        owners = {owner.name: owner for owner in every if owner.name.lower() in named}
        schemas = {name: shown(owner) for name, owner in owners.items()}
        needs = needs_of(own, statement, schemas, options)
        for name, owner in owners.items():
            frame = self._frame(own, owner, pinned.commit_id, needs.get(name))
            frame.createOrReplaceTempView(name)
        return own.sql(statement, **options)

    def _pinned(self, branch: str, snapshot: str | None) -> Snapshot:
        if snapshot is not None and branch != MAIN:
            raise BadRequest("request may specify branch or snapshot, not both")
        return self._allowed(branch if snapshot is None else None, snapshot)

    def _frames(
        self,
        spark: "SparkSession",
        owners: Iterable[Owner],
        pinned: Snapshot,
    ) -> "dict[str, DataFrame]":
        frames: dict[str, DataFrame] = {}
        for owner in owners:  # edges come first
            frame = self._frame(spark, owner, pinned.commit_id)
            if isinstance(owner, EdgeType):
                frames[owner.name] = frame
                continue
            if owner.name in frames:
                frames[table_key(Kind.EDGE, owner.name)] = frames[owner.name]
            frames[owner.name] = frame
        return frames

    def _frame(
        self, spark: "SparkSession", owner: Owner, commit: str, needs: "Needs | None" = None
    ) -> "DataFrame":
        kind = "edge" if isinstance(owner, EdgeType) else "type"
        reader = spark.read.format("omnigraph").option(kind, owner.name).option("snapshot", commit)
        if needs is not None:
            reader = reader.option("columns", ",".join(needs.columns or ("id",)))
        if needs is not None and needs.where is not None:
            reader = reader.option("where", needs.where)
        if self._store.where.storage_options:
            options = orjson.dumps(self._store.where.storage_options).decode()
            reader = reader.option("storage_options", options)
        return reader.load(self._store.where.uri)
