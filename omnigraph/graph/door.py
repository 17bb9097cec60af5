"""`Graph`, the facade: queries, mutations, loads, branches, history and upkeep of one open graph.

Invariant: this file decides which parts are asked in which order and nothing else. A read-only
graph writes nothing.
"""

import copy
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from omnigraph.arguments import checked
from omnigraph.catalog.model import Catalog
from omnigraph.errors import BadRequest, NotFound
from omnigraph.exec.limits import Stop, Watch, watched, watched_by
from omnigraph.exec.progress import Progress
from omnigraph.exec.schemas import Schemas, under_schema
from omnigraph.graph.backup_verb import BackupVerb
from omnigraph.graph.embed_verb import EmbedVerb
from omnigraph.graph.entity_verbs import EntityVerbs
from omnigraph.graph.export_verbs import ExportVerbs
from omnigraph.graph.handles import BranchHandle, Transaction
from omnigraph.graph.index_verb import IndexVerb
from omnigraph.graph.late_reading import LateReading
from omnigraph.graph.later_rooms import (
    Changes,
    CheckReport,
    Coalescer,
    Frames,
    LoadResult,
    MutationResult,
    Order,
    Policy,
    QueryResult,
    ReadPlan,
    bind_parameters,
    changes_between,
    check,
    compile_query,
    filters,
    load,
    query_on_spark,
    reads_by_match,
    request,
    require_sharing,
    require_window,
    run_mutation,
    shares_commit,
    unknown_branch,
)
from omnigraph.graph.look_verbs import LookVerbs
from omnigraph.graph.merge_rules import ChecksVerb, MergeRules
from omnigraph.graph.planning import planned
from omnigraph.graph.policy_guard import PolicyGuard, may_list
from omnigraph.graph.review_records import ReviewRecords
from omnigraph.graph.reviews import ReviewsView
from omnigraph.graph.schema import SchemaView, stored_catalog
from omnigraph.graph.source_text import USE_MUTATE, USE_QUERY, query_text
from omnigraph.graph.undo_verbs import UndoVerbs
from omnigraph.graph.upkeep_verbs import UpkeepVerbs
from omnigraph.graph.views import (
    BranchesView,
    ChangesView,
    CommitsView,
    RecoveriesView,
    TagsView,
    described,
)
from omnigraph.preview import counted
from omnigraph.storage.names import MAIN
from omnigraph.storage.opening import open_store
from omnigraph.storage.protocol.intent import noted
from omnigraph.storage.records import CommitNote, Snapshot
from omnigraph.storage.retry import HEAD_READ, retried
from omnigraph.storage.store import Settings, Store
from omnigraph.types import DuplicateRule, EngineName, LoadMode, Timing

if TYPE_CHECKING:
    from omnigraph.plan.ir import Constant

_ENGINES = ("auto", "local", "spark")


class Graph(
    ExportVerbs,
    EntityVerbs,
    LookVerbs,
    UndoVerbs,
    IndexVerb,
    EmbedVerb,
    ChecksVerb,
    BackupVerb,
    UpkeepVerbs,
):
    """One open graph, safe to share between threads.

    >>> graph.query("query q() { match { $p: Person } return { count($p) as n } }").scalar()
    2
    """

    def __init__(
        self,
        store: Store,
        *,
        coalesce_ms: int | None = None,
        policy: "Policy | None" = None,
        actor: str | None = None,
    ) -> None:
        if coalesce_ms is not None:
            require_window(coalesce_ms)
        guard = PolicyGuard(store, policy, actor)
        self._store = store
        self._coalesces = coalesce_ms is not None
        self._coalesce_ms = coalesce_ms or 0
        self._late_reading = LateReading(store)
        self._schemas = Schemas(store)
        self._rules = MergeRules()
        self._reviews = ReviewRecords(store.beside)
        self._schemas.opened()
        self.beside = store.beside
        self._bind(guard)

    def _bind(self, guard: PolicyGuard) -> None:
        """Do everything from now on as the actor of a guard."""
        store, schemas = self._store, self._schemas
        self._guard = guard
        self._points = guard.points
        self.schema = SchemaView(store, schemas, guard, self._late_reading.forget)
        self.branches = BranchesView(
            store, schemas, guard, self._late_reading, self._rules, self._reviews
        )
        self.reviews = ReviewsView(store, schemas, guard, self._reviews, self.branches)
        self.tags = TagsView(store, guard)
        self.commits = CommitsView(store, schemas, guard)
        self.recoveries = RecoveriesView(store, guard)
        self.changes = ChangesView(store, schemas, guard)

    def _acting(self, guard: PolicyGuard) -> "Graph":
        """This open graph under another guard. What is open and in memory is shared."""
        other = copy.copy(self)
        other.__dict__["_coalescer"] = self._coalescer  # else it would have one of its own
        other.__dict__.pop("spark", None)  # it reads as its owner may
        other._bind(guard)
        return other

    def _reopened(self, *, derived: bool) -> "Graph":
        where = self._store.where
        settings, options = Settings(derived=derived), where.storage_options
        return Graph(
            open_store(where.uri, read_only=True, storage_options=options, settings=settings)
        )

    def _in_transaction(
        self, branch: str, note: CommitNote
    ) -> "tuple[Graph, CommitNote, Callable[[], None]]":
        """What a transaction works on, once it is allowed as a whole: the graph, the note with the
        actor, and the question of a read."""
        guard = self._guard
        actor = guard.changes(branch, note.actor)
        work = self._acting(guard.lifted())
        return work, replace(note, actor=actor), lambda: guard.reads(branch)

    @cached_property
    def _coalescer(self) -> Coalescer:
        return Coalescer(self._store, self._coalesce_ms)

    @cached_property
    def spark(self) -> Frames:
        """Tables of the graph as Spark DataFrames.

        >>> frames = graph.spark  # frames.read("Person") is a DataFrame
        """
        return Frames(
            self._store, self._schemas, self._guard.pinned, self._reading, self._planned_read
        )

    def __repr__(self) -> str:
        return described("Graph", self._facts)

    def _facts(self) -> str:
        head, catalog = self.snapshot(MAIN), self.schema.catalog
        rows = {
            kind: sum(head.tables[t.table].row_count for t in types if t.table in head.tables)
            for kind, types in (("node", catalog.nodes.values()), ("edge", catalog.edges.values()))
        }
        types = counted(len(catalog.nodes), "node type")
        counts = ", ".join(counted(number, kind) for kind, number in rows.items())
        return f"{self.uri!r}, {MAIN}@{head.commit_id}, {types}, {counts}"

    @property
    def uri(self) -> str:
        """Where the graph lives.

        >>> graph.uri.endswith("people.omni")
        True
        """
        return self._store.where.uri

    @property
    def read_only(self) -> bool:
        """Whether this handle refuses to write.

        >>> graph.read_only
        False
        """
        return self._store.read_only

    @checked
    def query(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str | None = None,
        snapshot: str | None = None,
        engine: EngineName = "auto",
        spark: Any = None,
        stop: Stop | None = None,
    ) -> QueryResult:
        """The rows of a read, from the head of a branch (`main` by default) or from a commit.

        It runs in this process, with `engine="spark"` or a session passed as `spark` on executors.
        `stop` gives it an earlier deadline, and ends it when another thread cancels it.

        >>> young = "query q($n: I32) { match { $p: Person  $p.age < $n } return { $p.name } }"
        >>> graph.query(young, {"n": 40}).rows
        [{'p.name': 'Ada'}]
        """
        if engine not in _ENGINES:
            raise BadRequest(f"'{engine}' is no engine", f"use {', '.join(_ENGINES)}")

        def attempt(losses: int) -> QueryResult:
            since = stop.asked_at if stop is not None and not losses else None
            watch = Watch(self._reading.limits, stop)
            watch.operator = "planning"
            with watched_by(watch):
                plan, given, pinned = self._planned_read(
                    query, params, name, branch, snapshot, since
                )
            if engine == "spark" or (engine == "auto" and spark is not None):
                return query_on_spark(self._store, self._reading, plan, given, pinned, spark)
            return self._reading.run(plan, given, pinned, stop, watch.started)

        return retried(HEAD_READ, attempt, counts=lambda loss: snapshot is None)

    def _planned_read(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, Any] | None,
        name: str | None,
        branch: str | None,
        snapshot: str | None,
        since: float | None = None,
    ) -> "tuple[ReadPlan, dict[str, Constant], Snapshot]":
        """A read with its parameters and its snapshot, if the policy allows it."""
        pinned = self._guard.pinned(branch, snapshot, since=since)
        is_head = snapshot is None and branch in (None, pinned.branch)
        plan, pinned = planned(self._schemas, query_text(query), name, pinned, is_head=is_head)
        if not isinstance(plan, ReadPlan):
            raise BadRequest(
                f"query '{plan.name}' contains mutations (insert/update/delete)", USE_MUTATE
            )
        return plan, bind_parameters(plan.parameters, params), pinned

    @checked
    def snapshot(self, branch: str = MAIN, *, commit: str | None = None) -> Snapshot:
        """Every table with its version and row count, now or at a commit; and the topology file
        of each table that has one.

        >>> graph.snapshot().tables["edge:Knows"].row_count
        1
        """
        snapshot = self._guard.pinned(branch if commit is None else None, commit)
        states = {key: self._store.derived.state(pin) for key, pin in snapshot.tables.items()}
        topology = {key: state for key, state in states.items() if state is not None}
        # The store shares its own tables.
        return replace(snapshot, tables=dict(snapshot.tables), topology=topology)

    @checked
    def mutate(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str = MAIN,
        actor: str | None = None,
        if_commit: str | None = None,
        retries: int | None = None,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        once: str | None = None,
        coalesce: bool | None = None,
        embed: Timing = "now",
    ) -> MutationResult:
        """Run a mutation as one commit; with `if_commit` only on that head of the branch.

        An update or delete that lost to another writer runs again, whole and on the new head, up to
        `retries` times; by default `OMNIGRAPH_WRITE_RETRIES`, which is 0. `message` and `metadata`,
        a map of texts, are kept with the commit. `once` names this mutation: if a commit of the
        branch has that name, it is returned and nothing is done. With `coalesce`, mutations of
        other threads that wait at the same time share the commit; by default as `open` was told.
        With `embed="later"`, vectors of new texts wait for `graph.embed`.

        >>> done = graph.mutate('query q() { insert Person { name: "Cy" } }', actor="act-me")
        >>> done.affected_nodes, done.commit.actor
        (1, 'act-me')
        """
        note = noted(self._guard.changes(branch, actor), message, metadata)
        text = query_text(query)

        def attempt(catalog: Catalog) -> MutationResult:
            with watched(self._reading.limits):
                plan = compile_query(text, catalog, name)
            if isinstance(plan, ReadPlan):
                raise BadRequest(
                    f"'{plan.name}' is a read — use omnigraph query {plan.name}", USE_QUERY
                )
            if reads_by_match(plan):
                self._guard.reads(branch)
            asked = request(
                plan,
                params,
                branch=branch,
                note=note,
                if_commit=if_commit,
                retries=retries,
                external=self._store.external_blobs(),
                once=once,
                fill=self._vector_fill(catalog, embed),
                reading=self._reading,
            )
            if coalesce:
                require_sharing(asked)
            shares = self._coalesces if coalesce is None else coalesce
            if shares and shares_commit(asked) and asked.fill is None:
                return self._coalescer.run(catalog, asked)
            return run_mutation(self._store, catalog, asked)

        return under_schema(self._schemas, attempt, branch)

    @checked
    def diff(
        self,
        before: str,
        after: str,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> Changes:
        """Changes that turn one point in time into another.

        >>> [(change.op, change.id) for change in graph.diff("main~1", "main")]
        [('insert', 'Ada'), ('insert', 'Bob'), ('insert', 'k1')]
        """
        old, new = self._guard.seen(before), self._guard.seen(after)
        change_filter = filters(self._schemas.of(new).catalog, kinds, types, ops)
        return changes_between(self._store, self._schemas, old, new, change_filter)

    @checked
    def load(
        self,
        source: Any,
        mode: LoadMode,
        *,
        type: str | None = None,
        edge: str | None = None,
        branch: str = MAIN,
        from_branch: str | None = None,
        engine: EngineName = "auto",
        spark: Any = None,
        columns: Mapping[str, str | None] | None = None,
        rejects: str | os.PathLike[str] | None = None,
        progress: Callable[[Progress], None] | None = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        permissive: bool = False,
        once: str | None = None,
        on_duplicate: DuplicateRule | None = None,
        order_by: str | Sequence[str] | None = None,
        indexes: Timing = "now",
        embed: Timing = "now",
    ) -> LoadResult:
        """Load bulk data as one commit, of any size. `mode` is append, merge, patch or
        overwrite; a patch sets the properties that a row gives and keeps the others.

        `once` names this load: if a commit of the branch has that name, it is returned and nothing
        is done. `permissive` reads the older format, which forgives, as one text. Of rows with one
        id a merge keeps the last, by the order of the input; `on_duplicate="refuse"` refuses them,
        as the other modes do. A DataFrame has an order only where `order_by` names its columns.
        `columns` names the property of a column, None leaves it out. `from_branch` makes a branch.

        The indexes that the schema asks for are built after the commit, as a commit of their own,
        where a table has 10,000 rows without them; `indexes="later"` leaves them to `optimize`.

        >>> done = graph.load([{"name": "Dee", "age": 51}], "merge", type="Person")
        >>> done.nodes
        {'Person': 1}
        """
        actor, from_branch = self._guard.loads(branch, from_branch, actor)
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
            note=noted(actor, message, metadata),
            permissive=permissive,
            once=once,
            on_duplicate=on_duplicate,
            order_by=order_by,
            indexes=indexes,
        )
        catalog = self._loaded_under(branch, from_branch)
        return load(self._store, catalog, replace(order, fill=self._vector_fill(catalog, embed)))

    def _loaded_under(self, branch: str, from_branch: str | None) -> Catalog:
        """The schema of a branch that a load may be about to create."""
        try:
            return self._schemas.current(branch).catalog
        except NotFound as missing:
            if from_branch is None:
                known = self._store.branches.list() if may_list(self._guard) else ()
                raise unknown_branch(known, missing) from None
            return self._schemas.of(self._points.snapshot(from_branch, kind="branch")).catalog

    @checked
    def branch(self, name: str) -> BranchHandle:
        """A handle whose reads and writes are on one branch, which must exist.

        >>> graph.branch("main").name
        'main'
        """
        self._store.snapshot(name)
        return BranchHandle(self, name)

    @checked
    def transaction(
        self,
        actor: str | None = None,
        *,
        branch: str = MAIN,
        if_commit: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        once: str | None = None,
    ) -> Transaction:
        """A block whose writes become one commit of a branch, or none; with `if_commit` only on
        that head of the branch. `once` names it: if a commit of the branch has that name, what the
        block writes is dropped, and `outcome` is that of the commit.

        >>> with graph.transaction(actor="act-me") as tx:
        ...     done = tx.mutate('query q() { insert Person { name: "Eve" } }')
        >>> tx.outcome.kind
        'fast_forward'
        """
        return Transaction(self, noted(actor, message, metadata), branch, if_commit, once)

    def check(self) -> CheckReport:
        """Whether everything on disk fits together: reads all of it, writes nothing.

        >>> graph.check().ok
        True
        """
        self._guard.reads_graph()
        self._store.lifetime.require_open()  # else it would be told as damage
        return check(self._store, self._schemas, lambda: stored_catalog(self._store))

    def refresh(self) -> None:
        """Settle what dead writers left, and see what others changed.

        >>> graph.refresh()
        """
        if not self.read_only:
            self._store.heal()
        self._schemas.current()

    def close(self) -> None:
        """Let go of everything held open, once commits under way have ended. A later call that
        would read or write raises `GraphClosed`; to close again does nothing.

        >>> og.open("people.omni").close()
        """
        self._store.close()
        self._late_reading.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def graph_for(graph: Graph, actor: str | None, policy: "Policy | None" = None) -> Graph:
    """An open graph for one actor, under a policy if one is given; without either, for anything.
    To close it closes it for all."""
    return graph._acting(graph._guard.another(policy, actor))


def reopened(graph: Graph, *, derived: bool) -> Graph:
    """Open the same graph read-only with empty caches; without `derived` it reads tables alone."""
    return graph._reopened(derived=derived)
