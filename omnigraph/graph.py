"""The one door: a graph opened, its branches, its history, what it looks like now.

Invariant: this file decides which parts are asked in which order and nothing else. A read-only
graph writes nothing. A graph exists once its manifest does, so an init that stopped half-way left
none, and init can be run again.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson
import pyarrow as pa
from ulid import ULID

from omnigraph.catalog import codec
from omnigraph.catalog.accept import accept
from omnigraph.catalog.arrow import edge_schema, node_schema
from omnigraph.catalog.model import Catalog
from omnigraph.errors import BadRequest, Conflict, NotFound, StorageFailed
from omnigraph.exec import indexes
from omnigraph.exec.diff import PAGE_CHANGES, Changes, commit_changes, filters
from omnigraph.exec.export import ExportResult, export
from omnigraph.exec.feed import POLL_COMMITS, Feed, FeedPage
from omnigraph.exec.indexes import IndexReport
from omnigraph.exec.load import LoadResult, Progress
from omnigraph.exec.merge import MergeOutcome, MergeRequest, run_merge
from omnigraph.exec.mutate import MutationResult, request, run_mutation
from omnigraph.exec.resolve import Resolve
from omnigraph.exec.result import QueryResult
from omnigraph.exec.run import Reading
from omnigraph.pipeline.load import Order, load
from omnigraph.plan.compile import compile_query
from omnigraph.plan.ir import ReadPlan
from omnigraph.plan.params import bind_parameters
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit, Recovery, Snapshot
from omnigraph.storage.stats import StatsView
from omnigraph.storage.store import Settings, Store, create, open_store
from omnigraph.types import Kind, TableKey, table_key

SCHEMA_TEXT, SCHEMA_IR = "_schema.pg", "_schema.ir.json"
_ENGINES = ("auto", "local", "spark")


class Graph:
    """One open graph, safe to share between threads."""

    def __init__(self, store: Store, schema: "SchemaView") -> None:
        self._store = store
        self._reading = Reading(store)
        self.schema = schema
        self.branches = BranchesView(store, self._catalog)
        self.commits = CommitsView(store, self._catalog)
        self.recoveries = RecoveriesView(store)
        self.changes = ChangesView(store, self._catalog)

    @property
    def uri(self) -> str:
        return self._store.where.uri

    @property
    def read_only(self) -> bool:
        return self._store.read_only

    def query(
        self,
        query: str | Path,
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str | None = None,
        snapshot: str | None = None,
        engine: str = "auto",
    ) -> QueryResult:
        """The rows of a read, from the head of a branch (`main` by default) or from a commit."""
        if engine not in _ENGINES:
            raise BadRequest(f"'{engine}' is no engine", f"use {', '.join(_ENGINES)}")
        if engine == "spark":
            raise BadRequest("queries do not run on Spark yet", "leave engine out, or use local")
        if branch is not None and snapshot is not None:
            raise BadRequest("request may specify branch or snapshot, not both")
        plan = compile_query(_query_text(query), self.schema.catalog, name)
        if not isinstance(plan, ReadPlan):
            raise BadRequest(
                f"query '{plan.name}' contains mutations (insert/update/delete); use graph.mutate"
            )
        given = bind_parameters(plan.parameters, params)
        pinned = self._store.snapshot(branch or MAIN, commit=snapshot)
        return self._reading.run(plan, given, pinned)

    def snapshot(self, branch: str = MAIN, *, commit: str | None = None) -> Snapshot:
        """Every table with its version and row count, now or at a commit."""
        return self._store.snapshot(branch, commit=commit)

    def mutate(
        self,
        query: str | Path,
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str = MAIN,
        actor: str | None = None,
        if_commit: str | None = None,
    ) -> MutationResult:
        """Run a mutation as one commit; with `if_commit` only on that head of the branch."""
        plan = compile_query(_query_text(query), self.schema.catalog, name)
        if isinstance(plan, ReadPlan):
            raise BadRequest(
                f"'{plan.name}' is a read — use omnigraph query {plan.name}",
                "in Python, graph.query",
            )
        asked = request(plan, params, branch=branch, actor=actor, if_commit=if_commit)
        return run_mutation(self._store, self.schema.catalog, asked)

    def diff(
        self,
        before: str,
        after: str,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> Changes:
        """What turns one point into another. A point is a branch or the id of a commit."""
        catalog = self.schema.catalog
        wanted = filters(catalog, kinds, types, ops)
        return Changes(self._store, catalog, self._point(before), self._point(after), wanted)

    def _point(self, name: str) -> Snapshot:
        try:
            return self._store.snapshot(name)
        except NotFound:
            pass
        try:
            return self._store.snapshot(commit=name)
        except NotFound:
            raise NotFound("branch or commit", name) from None

    def _catalog(self) -> Catalog:
        return self.schema.catalog

    def load(
        self,
        source: Any,
        mode: str,
        *,
        type: str | None = None,
        edge: str | None = None,
        branch: str = MAIN,
        from_branch: str | None = None,
        engine: str = "auto",
        spark: Any = None,
        columns: Mapping[str, str] | None = None,
        rejects: str | os.PathLike[str] | None = None,
        progress: Callable[[Progress], None] | None = None,
        actor: str | None = None,
        permissive: bool = False,
    ) -> LoadResult:
        """Load bulk data as one commit, of any size. `mode` is append, merge or overwrite.

        `permissive` reads the older format, which forgives, as one text.
        """
        order = Order(
            source=source,
            mode=mode,
            type=type,
            edge=edge,
            branch=branch,
            from_branch=from_branch,
            engine=engine,
            spark=spark,
            columns=columns or {},
            rejects=rejects,
            progress=progress,
            actor=actor,
            permissive=permissive,
        )
        return load(self._store, self.schema.catalog, order)

    def export(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        format: str = "jsonl",
        *,
        types: Iterable[str] | None = None,
        branch: str = MAIN,
        snapshot: str | None = None,
    ) -> ExportResult:
        """Write one snapshot as NDJSON that loads again, or as Parquet; how many rows of what."""
        return export(
            self._store,
            self.schema.catalog,
            target,
            format=format,
            types=types,
            branch=branch,
            commit=snapshot,
        )

    def branch(self, name: str) -> "BranchHandle":
        """A handle whose reads and writes are on one branch, which must exist."""
        self._store.snapshot(name)
        return BranchHandle(self, name)

    def transaction(self, actor: str | None = None) -> "Transaction":
        """A block whose writes become one commit of main, or none."""
        return Transaction(self, actor)

    def ensure_indices(self, branch: str = MAIN) -> IndexReport:
        """Build the indexes that the schema asks for and that are missing or behind."""
        return indexes.ensure_indices(self._store, self.schema.catalog, branch)

    def refresh(self) -> None:
        """Settle what dead writers left, and see what others changed."""
        if not self.read_only:
            self._store.heal()
        self.schema = _read_schema(self._store)

    def stats(self) -> StatsView:
        """Protocol events and storage calls since the graph was opened."""
        return self._store.stats.view()

    def close(self) -> None:
        """Let go of everything held open."""
        self._reading.holdings.cache.clear()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class BranchHandle:
    """One branch of a graph: what `Graph` offers, without saying each time where."""

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph = graph
        self.name = name

    def mutate(
        self,
        query: str | Path,
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        actor: str | None = None,
        if_commit: str | None = None,
    ) -> MutationResult:
        """Run a mutation on this branch as one commit."""
        return self._graph.mutate(
            query, params, name, branch=self.name, actor=actor, if_commit=if_commit
        )

    def query(
        self,
        query: str | Path,
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        engine: str = "auto",
    ) -> QueryResult:
        """The rows of a read, from the head of this branch."""
        return self._graph.query(query, params, name, branch=self.name, engine=engine)

    def merge_into(
        self,
        target: str = MAIN,
        *,
        actor: str | None = None,
        delete_source: bool = False,
        by: str = "entity",
        resolve: Resolve = None,
    ) -> MergeOutcome:
        """Merge this branch into another as one commit."""
        return self._graph.branches.merge(
            self.name, target, actor=actor, delete_source=delete_source, by=by, resolve=resolve
        )

    def load(self, source: Any, mode: str, **options: Any) -> LoadResult:
        """Load bulk data into this branch as one commit; `options` are those of `Graph.load`."""
        return self._graph.load(source, mode, branch=self.name, **options)

    def export(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        format: str = "jsonl",
        types: Iterable[str] | None = None,
    ) -> ExportResult:
        """Write the head of this branch as files."""
        return self._graph.export(target, format, types=types, branch=self.name)

    def snapshot(self) -> Snapshot:
        """Every table with its version and row count."""
        return self._graph.snapshot(self.name)

    def delete(self) -> None:
        """Remove the branch."""
        self._graph.branches.delete(self.name)


class Transaction:
    """A branch for the length of a block: merged at its end, or deleted with the error."""

    def __init__(self, graph: Graph, actor: str | None) -> None:
        self._graph = graph
        self._actor = actor
        self._name = f"tx/{ULID()}"
        self.outcome: MergeOutcome | None = None

    def __enter__(self) -> Self:
        self._graph.branches.create(self._name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        branches = self._graph.branches
        if error is not None:
            branches.delete(self._name)
            return
        try:
            self.outcome = branches.merge(self._name, actor=self._actor, delete_source=True)
        except Conflict:
            branches.delete(self._name)
            raise

    def mutate(
        self,
        query: str | Path,
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> MutationResult:
        """Run a mutation inside the transaction."""
        return self._graph.mutate(query, params, name, branch=self._name, actor=self._actor)

    def query(
        self,
        query: str | Path,
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        engine: str = "auto",
    ) -> QueryResult:
        """The rows of a read, which sees what the transaction wrote."""
        return self._graph.query(query, params, name, branch=self._name, engine=engine)


class SchemaView:
    """The accepted schema: as it was written, and what it means."""

    def __init__(self, text: str, catalog: Catalog) -> None:
        self.text = text
        self.catalog = catalog


class BranchesView:
    """The branches of a graph."""

    def __init__(self, store: Store, catalog: Callable[[], Catalog]) -> None:
        self._store = store
        self._catalog = catalog

    def create(self, name: str, from_: str = MAIN) -> str:
        """A new branch at the head of another; its name, trimmed."""
        return self._store.branches.create(name, source=from_)

    def list(self) -> tuple[str, ...]:
        """Every branch, sorted by name."""
        return self._store.branches.list()

    def delete(self, name: str) -> None:
        """Remove a branch no other depends on."""
        self._store.branches.delete(name)

    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        actor: str | None = None,
        delete_source: bool = False,
        by: str = "entity",
        resolve: Resolve = None,
    ) -> MergeOutcome:
        """Merge a branch into another as one commit, or raise `MergeConflicts`."""
        asked = MergeRequest(source, into, actor, delete_source, by, resolve)
        return run_merge(self._store, self._catalog(), asked)


class CommitsView:
    """The history of a graph."""

    def __init__(self, store: Store, catalog: Callable[[], Catalog]) -> None:
        self._store = store
        self._catalog = catalog

    def list(
        self, branch: str = MAIN, *, actor: str | None = None, limit: int | None = None
    ) -> tuple[Commit, ...]:
        """The commits of a branch, inherited ones included, newest first."""
        return self._store.history.list(branch, actor=actor, limit=limit)

    def get(self, commit_id: str) -> Commit:
        """One commit of any branch."""
        return self._store.history.get(commit_id)

    def changes(
        self,
        commit_id: str,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> Changes:
        """What a commit changed against its first parent."""
        catalog = self._catalog()
        wanted = filters(catalog, kinds, types, ops)
        return commit_changes(self._store, catalog, self.get(commit_id), wanted)


class ChangesView:
    """The change feed of a graph."""

    def __init__(self, store: Store, catalog: Callable[[], Catalog]) -> None:
        self._store = store
        self._catalog = catalog

    def poll(
        self,
        branch: str = MAIN,
        *,
        start: str | None = None,
        cursor: str | None = None,
        page_token: str | None = None,
        limit: int = PAGE_CHANGES,
        commits: int = POLL_COMMITS,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> FeedPage:
        """The commits of a branch since a place, oldest first, with what each changed.

        `start` is `now`, `beginning` or `after:<commit id>`; a `cursor` goes on where a poll ended.
        """
        catalog = self._catalog()
        feed = Feed(self._store, catalog, branch, filters(catalog, kinds, types, ops))
        return feed.poll(
            start=start, cursor=cursor, page_token=page_token, limit=limit, commits=commits
        )


class RecoveriesView:
    """The recovery audit of a graph."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self) -> tuple[Recovery, ...]:
        """Every recovery, newest first."""
        return self._store.audit.list()


def init(
    uri: str | os.PathLike[str],
    schema: str | os.PathLike[str],
    *,
    storage_options: dict[str, str] | None = None,
    fold: bool = True,
) -> Graph:
    """A new graph. `schema` is the path of a `.pg` file, or its text."""
    text = _schema_text(schema)
    catalog = accept(text)
    files = {SCHEMA_TEXT: text.encode(), SCHEMA_IR: orjson.dumps(codec.encode(catalog))}
    store = create(
        uri,
        _tables(catalog),
        files=files,
        storage_options=storage_options,
        settings=Settings(fold=fold),
    )
    return Graph(store, SchemaView(text, catalog))


def open(
    uri: str | os.PathLike[str],
    *,
    read_only: bool = False,
    storage_options: dict[str, str] | None = None,
    fold: bool = True,
) -> Graph:
    """An existing graph. Read-write settles what dead writers left; read-only never writes.

    `fold=False` leaves small fragments as they are, for `optimize` to fold.
    """
    store = open_store(
        uri, read_only=read_only, storage_options=storage_options, settings=Settings(fold=fold)
    )
    return Graph(store, _read_schema(store))


def _tables(catalog: Catalog) -> list[tuple[TableKey, pa.Schema]]:
    nodes = [(table_key(Kind.NODE, n.name), node_schema(n)) for n in catalog.nodes.values()]
    edges = [(table_key(Kind.EDGE, e.name), edge_schema(e)) for e in catalog.edges.values()]
    return nodes + edges


def _schema_text(schema: str | os.PathLike[str]) -> str:
    if isinstance(schema, str) and (not schema.endswith(".pg") or "\n" in schema):
        return schema
    return _file_text("schema file", schema)


def _file_text(kind: str, path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(kind, os.fspath(path)) from None
    except (OSError, UnicodeDecodeError) as cause:
        raise BadRequest(f"cannot read the {kind} '{os.fspath(path)}': {cause}") from cause


def _query_text(query: str | Path) -> str:
    return query if isinstance(query, str) else _file_text("query file", query)


def _read_schema(store: Store) -> SchemaView:
    text, document = store.objects.get(SCHEMA_TEXT), store.objects.get(SCHEMA_IR)
    if text is None or document is None:
        missing = SCHEMA_TEXT if text is None else SCHEMA_IR
        raise StorageFailed("read the schema", f"{store.where.join(missing)} is missing")
    try:
        catalog = codec.decode(orjson.loads(document.data))
    except orjson.JSONDecodeError as cause:
        raise StorageFailed("read the schema", f"{SCHEMA_IR} is damaged ({cause})") from cause
    return SchemaView(text.data.decode(), catalog)
