"""Branch handles and transactions: reads and writes bound to one branch.

Invariant: a handle adds the branch to a call of the graph and nothing else. A transaction is a
branch for the length of a block: merged at its end or deleted, never left.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from omnigraph.arguments import checked
from omnigraph.deferred import deferred
from omnigraph.errors import MergeConflicts, OmnigraphError, PreconditionFailed
from omnigraph.exec.progress import Progress
from omnigraph.exec.schemas import Accepted
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import noted
from omnigraph.storage.records import TRANSACTIONS, Commit, CommitNote, Snapshot
from omnigraph.types import EngineName, ExportFormat, LoadMode, MergeUnit

if TYPE_CHECKING:
    from ulid import ULID

    from omnigraph.exec.changes.export import ExportResult
    from omnigraph.exec.load.request import LoadResult
    from omnigraph.exec.merge.resolve import Resolve
    from omnigraph.exec.merge.run import MergeOutcome
    from omnigraph.exec.merge.undo import UndoOutcome
    from omnigraph.exec.mutate.run import MutationResult
    from omnigraph.exec.read.result import QueryResult
else:
    ULID = deferred("ulid", "ULID")
    ExportResult = deferred("omnigraph.exec.changes.export", "ExportResult")
    LoadResult = deferred("omnigraph.exec.load.request", "LoadResult")
    Resolve = deferred("omnigraph.exec.merge.resolve", "Resolve")
    MergeOutcome = deferred("omnigraph.exec.merge.run", "MergeOutcome")
    UndoOutcome = deferred("omnigraph.exec.merge.undo", "UndoOutcome")
    MutationResult = deferred("omnigraph.exec.mutate.run", "MutationResult")
    QueryResult = deferred("omnigraph.exec.read.result", "QueryResult")

if TYPE_CHECKING:
    from omnigraph.graph.door import Graph

_RUN_AGAIN = "others wrote the same meanwhile and nothing was committed; run the block again"


class BranchHandle:
    """One branch of a graph: what `Graph` offers, without saying each time where."""

    def __init__(self, graph: "Graph", name: str) -> None:
        self._graph = graph
        self.name = name

    def __repr__(self) -> str:
        return f"BranchHandle({self.name!r} of {self._graph.uri!r})"

    @checked
    def mutate(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        actor: str | None = None,
        if_commit: str | None = None,
        retries: int | None = None,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        coalesce: bool | None = None,
    ) -> MutationResult:
        """Run a mutation on this branch as one commit; `coalesce` as in `Graph.mutate`.

        >>> review = graph.branch(graph.branches.create("review"))
        >>> review.mutate('query add() { insert Person { name: "Eve" } }').affected_nodes
        1
        """
        return self._graph.mutate(
            query,
            params,
            name,
            branch=self.name,
            actor=actor,
            if_commit=if_commit,
            message=message,
            metadata=metadata,
            retries=retries,
            coalesce=coalesce,
        )

    @checked
    def query(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        engine: EngineName = "auto",
    ) -> QueryResult:
        """The rows of a read, from the head of this branch.

        >>> review = graph.branch(graph.branches.create("review"))
        >>> review.query("query n() { match { $p: Person } return { count(*) as n } }").scalar()
        2
        """
        return self._graph.query(query, params, name, branch=self.name, engine=engine)

    @checked
    def merge_into(
        self,
        target: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        delete_source: bool = False,
        by: MergeUnit = "entity",
        resolve: Resolve = None,
        progress: Callable[[Progress], None] | None = None,
        dry_run: bool = False,
    ) -> MergeOutcome:
        """Merge this branch into another as one commit.

        >>> review = graph.branch(graph.branches.create("review"))
        >>> done = review.load([{"name": "Fay"}], "merge", type="Person")
        >>> review.merge_into("main").kind
        'fast_forward'
        """
        return self._graph.branches.merge(
            self.name,
            target,
            actor=actor,
            message=message,
            metadata=metadata,
            delete_source=delete_source,
            by=by,
            resolve=resolve,
            progress=progress,
            dry_run=dry_run,
        )

    @checked
    def revert(self, commit: str, to: str | None = None, **options: Any) -> UndoOutcome:
        """Undo a commit, or a range, on this branch; `options` are those of `Graph.revert`.

        >>> review = graph.branch(graph.branches.create("review"))
        >>> review.revert("main").kind
        'reverted'
        """
        return self._graph.revert(commit, to, onto=self.name, **options)

    @checked
    def restore(
        self, point: str, types: Collection[str] | None = None, **options: Any
    ) -> UndoOutcome:
        """Make this branch's content that of a point; `options` are those of `Graph.restore`.

        >>> review = graph.branch(graph.branches.create("review"))
        >>> review.restore("main~1", dry_run=True).kind
        'restored'
        """
        return self._graph.restore(point, types, branch=self.name, **options)

    @checked
    def load(self, source: Any, mode: LoadMode, **options: Any) -> LoadResult:
        """Load bulk data into this branch as one commit; `options` are those of `Graph.load`.

        >>> review = graph.branch(graph.branches.create("review"))
        >>> review.load([{"name": "Fay"}], "merge", type="Person").inserted
        1
        """
        return self._graph.load(source, mode, branch=self.name, **options)

    @checked
    def export(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        format: ExportFormat | None = None,
        types: Iterable[str] | None = None,
    ) -> ExportResult:
        """Write the head of this branch as files.

        >>> review = graph.branch(graph.branches.create("review"))
        >>> review.export("people.csv", types=["Person"]).nodes
        {'Person': 2}
        """
        return self._graph.export(target, format, types=types, branch=self.name)

    @property
    def schema(self) -> Accepted:
        """The schema of this branch.

        >>> review = graph.branch(graph.branches.create("review"))
        >>> review.schema.text == graph.schema.text
        True
        """
        return self._graph.schema.on(self.name)

    def snapshot(self) -> Snapshot:
        """Every table with its version and row count.

        >>> review = graph.branch(graph.branches.create("review"))
        >>> review.snapshot().tables["node:Person"].row_count
        2
        """
        return self._graph.snapshot(self.name)

    def delete(self) -> None:
        """Remove the branch.

        >>> review = graph.branch(graph.branches.create("review"))
        >>> review.delete()
        >>> graph.branches.list()
        ('main',)
        """
        self._graph.branches.delete(self.name)


class Transaction:
    """A branch for the length of a block: merged at its end, or deleted with the error. Its actor
    is asked about the branch that it ends in, when it is made and for every read.

    >>> with graph.transaction() as tx:
    ...     done = tx.load([{"name": "Fay"}], "merge", type="Person")
    >>> tx
    Transaction(into 'main', fast_forward)
    """

    def __init__(
        self,
        graph: "Graph",
        note: CommitNote,
        branch: str = MAIN,
        if_commit: str | None = None,
        once: str | None = None,
    ) -> None:
        self._graph, self._note, self._ask_to_read = graph._in_transaction(branch, note)
        self._once = once
        self._branch = branch
        self._if_commit = if_commit
        self._name = f"{TRANSACTIONS}{ULID()}"
        self._owned = contextlib.ExitStack()
        self._has_ended = False
        self.outcome: MergeOutcome | None = None

    def __repr__(self) -> str:
        if self.outcome is not None:
            state = self.outcome.kind
        else:
            state = "ended, nothing committed" if self._has_ended else f"open on {self._name!r}"
        return f"Transaction(into {self._branch!r}, {state})"

    def __enter__(self) -> Self:
        head = self._graph.branch(self._branch).snapshot().commit_id
        if self._if_commit is not None and head != self._if_commit:
            raise PreconditionFailed(self._branch, self._if_commit, head)
        with contextlib.ExitStack() as entered:
            entered.enter_context(self._graph.branches.owned(self._name))
            self._graph.branches.create(self._name, from_=self._if_commit or self._branch)
            self._owned = entered.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._has_ended = True
        with self._owned:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            self._discard()
            return
        try:
            self.outcome = self._graph.branches.merge(
                self._name,
                self._branch,
                **self._note.stated,
                delete_source=True,
                if_target=self._if_commit,
                once=self._once,
            )
            if self.outcome.repeated:
                self._discard()
        except MergeConflicts as lost:
            self._discard()
            raise MergeConflicts(lost.conflicts, "transaction", _RUN_AGAIN) from None
        except BaseException:
            self._discard()
            raise

    def done_before(self) -> Commit | None:
        """The commit that a transaction `once` of this name made, if there is one.

        >>> with graph.transaction() as tx:
        ...     tx.done_before() is None
        True
        """
        return None if self._once is None else self._graph.commits.once(self._once, self._branch)

    @checked
    def annotate(self, metadata: Mapping[str, str]) -> None:
        """Add texts to the metadata of the commit.

        >>> with graph.transaction() as tx:
        ...     done = tx.load([{"name": "Fay"}], "merge", type="Person")
        ...     tx.annotate({"source": "phone"})
        >>> tx.outcome.commit.metadata["source"]
        'phone'
        """
        texts = {**self._note.metadata, **metadata}
        self._note = noted(self._note.actor, self._note.message, texts)

    def _discard(self) -> None:
        # The error that ends the block is what the caller must see, whatever the branch does.
        with contextlib.suppress(OmnigraphError):
            self._graph.branches.delete(self._name)

    @checked
    def mutate(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> MutationResult:
        """Run a mutation inside the transaction.

        >>> with graph.transaction() as tx:
        ...     done = tx.mutate('query add() { insert Person { name: "Eve" } }')
        >>> done.affected_nodes
        1
        """
        return self._graph.mutate(query, params, name, branch=self._name, actor=self._note.actor)

    @checked
    def query(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        engine: EngineName = "auto",
    ) -> QueryResult:
        """The rows of a read, which sees what the transaction wrote.

        >>> with graph.transaction() as tx:
        ...     tx.query("query n() { match { $p: Person } return { count(*) as n } }").scalar()
        2
        """
        self._ask_to_read()
        return self._graph.query(query, params, name, branch=self._name, engine=engine)

    @checked
    def load(self, source: Any, mode: LoadMode, **options: Any) -> LoadResult:
        """Load bulk data inside the transaction; `options` are those of `Graph.load`. Indexes wait
        for upkeep: the branch of the transaction is gone at its end.

        >>> with graph.transaction() as tx:
        ...     done = tx.load([{"name": "Fay"}], "merge", type="Person")
        >>> tx.outcome.commit.changed
        '+1 Person'
        """
        options = {"indexes": "later", **options}
        return self._graph.load(source, mode, branch=self._name, actor=self._note.actor, **options)
