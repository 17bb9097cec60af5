"""`RemoteGraph`: a graph that a server has, with the methods, results and errors of `Graph`.

Invariant: every public method of `Graph` is here, or refuses with `NotServed` and what to do
instead; a test compares the two. Nothing is kept between calls but connections and schemas.
"""

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, cast

import orjson

from omnigraph.arguments import checked
from omnigraph.errors import BadRequest, NotFound, NotServed, VersionMismatch
from omnigraph.exec.changes.diff import Changes
from omnigraph.exec.durations import GRACE, Duration
from omnigraph.exec.limits import Stop
from omnigraph.exec.mutate.run import MutationResult
from omnigraph.exec.progress import UpkeepProgress
from omnigraph.exec.read.result import QueryResult
from omnigraph.exec.upkeep.backup import BackupReport
from omnigraph.exec.upkeep.build_indexes import IndexReport
from omnigraph.exec.upkeep.check import CheckReport
from omnigraph.exec.upkeep.cleanup import CleanupReport
from omnigraph.exec.upkeep.optimize import OptimizeReport
from omnigraph.graph.door import Graph
from omnigraph.graph.handles import BranchHandle
from omnigraph.graph.source_text import query_text
from omnigraph.pipeline.frames import Frames
from omnigraph.remote.from_wire import mutation_of, snapshot_of
from omnigraph.remote.http_connection import IF_COMMIT, JSON, REPLAY, encoded, given
from omnigraph.remote.remote_entities import RemoteEntityVerbs
from omnigraph.remote.remote_looks import RemoteLookVerbs
from omnigraph.remote.remote_reviews import RemoteReviews
from omnigraph.remote.remote_schema import RemoteSchema
from omnigraph.remote.remote_session import RemoteSession, key_of
from omnigraph.remote.remote_verbs import RemoteVerbs
from omnigraph.remote.remote_views import (
    RemoteBranches,
    RemoteChangeFeed,
    RemoteCommits,
    RemoteRecoveries,
    RemoteTags,
    change_params,
)
from omnigraph.remote.sent_params import sent_params
from omnigraph.remote.served_changes import ServedChanges
from omnigraph.remote.served_jobs import RemoteJobs
from omnigraph.remote.served_rows import ARROW, result_of
from omnigraph.remote.stored_queries import RemoteStoredQueries
from omnigraph.remote.unserved_verbs import UnservedEmbedVerbs
from omnigraph.storage.names import MAIN, require_text
from omnigraph.storage.records import CommitNote, Snapshot
from omnigraph.storage.stats import StatsView
from omnigraph.storage.upkeep.repair import RepairReport

_USE_SHELL = "run `omnigraph {} GRAPH` where the files of the graph are"
_USE_JOB = "let the server do it: `omnigraph jobs start {} {} --wait`, or graph.jobs.start(…)"
_JOBS = {"optimize": "", "cleanup": " --set keep=10 --set confirm=true"}


class RemoteGraph(RemoteVerbs, RemoteEntityVerbs, RemoteLookVerbs, UnservedEmbedVerbs):
    """One graph of a server, safe to share between threads."""

    def __init__(self, session: RemoteSession) -> None:
        # Not that of `Graph`, which opens a store.
        self.session = session
        self.schema = RemoteSchema(session)
        self.branches = RemoteBranches(session)
        self.tags = RemoteTags(session)
        self.commits = RemoteCommits(session)
        self.recoveries = RemoteRecoveries(session)
        self.changes = RemoteChangeFeed(session, self.schema)
        self.reviews = RemoteReviews(session)
        self.stored_queries = RemoteStoredQueries(session)
        self.jobs = RemoteJobs(session)
        self.spark = cast(Frames, _NoFrames(self.uri))

    def _in_transaction(
        self, branch: str, note: CommitNote
    ) -> tuple[Graph, CommitNote, Callable[[], None]]:
        """What a transaction works on. The server asks its policy itself."""
        return self, note, lambda: None

    @property
    def uri(self) -> str:
        """The address of the graph."""
        return self.session.http.uri

    @property
    def read_only(self) -> bool:
        """Whether this handle refuses to write."""
        return self.session.read_only

    @checked
    def query(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        branch: str | None = None,
        snapshot: str | None = None,
        engine: str = "auto",
        spark: Any = None,
        stop: Stop | None = None,
    ) -> QueryResult:
        """The rows of a read, from the head of a branch (`main` by default) or from a commit."""
        self.session.require_local_engine(engine, spark)
        self.session.require_branch(branch, snapshot)
        text = query_text(query)
        body = {
            "query": text,
            "params": sent_params(params, text, name),
            "name": name,
            "branch": branch,
            "snapshot": snapshot,
        }
        headers = {"Accept": ARROW}
        if stop is not None and stop.time_ms_max is not None:
            headers["Omnigraph-Timeout-Ms"] = str(max(stop.time_ms_max, 1))
        answer = self.session.http.ask("/query", body, **headers)
        return result_of(answer, self.uri)

    @checked
    def snapshot(self, branch: str = MAIN, *, commit: str | None = None) -> Snapshot:
        """Every table with its version and row count, now or at a commit."""
        self.session.require_branch(branch, commit)
        pinned = given(branch=branch) if commit is None else given(snapshot=commit)
        return snapshot_of(self.session.http.document("/snapshot", pinned))

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
        embed: str = "now",
    ) -> MutationResult:
        """Run a mutation as one commit; with `if_commit` only on that head of the branch. One that
        lost to another writer is sent again up to `retries` times."""
        if coalesce:
            raise NotServed("mutate(coalesce=True)", self.uri, "leave it out")
        self.session.require_writable()
        self.session.require_own_actor(actor)
        self.session.require_branch(branch)
        if retries is not None and retries < 0:
            raise BadRequest(f"retries is {retries}", "pass 0 or more")
        if retries and if_commit is not None:
            raise BadRequest(
                "retries does not go with if_commit: a write for one head is not prepared on "
                "another",
                "pass one of them",
            )
        if once is not None:
            require_text("the name of a mutation `once`", once)
        text = query_text(query)
        body = encoded(
            {
                "query": text,
                "params": sent_params(params, text, name),
                "name": name,
                "branch": branch,
                "message": message,
                "metadata": metadata,
                **({} if embed == "now" else {"embed": embed}),
            }
        )
        path, headers = "/mutate", dict(JSON)
        if if_commit is not None:
            path, headers = "/mutate/if-graph-commit", {**JSON, IF_COMMIT: if_commit}
        key = None if once is None else key_of(once)
        left = retries or 0
        while True:
            try:
                answer = self.session.http.write_once(path, body, headers, key=key)
            except VersionMismatch:
                if not left:
                    raise
                left -= 1
                continue
            document = orjson.loads(answer.content)
            return mutation_of(document, repeated=REPLAY in answer.headers)

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
        """Changes that turn one point in time into another."""
        params = [*given(from_=before, to=after), *change_params(kinds, types, ops)]
        return ServedChanges(
            self.session.http,
            "/diff",
            params,
            lambda page: (page["from_commit_id"], page["to_commit_id"]),
        )

    @checked
    def branch(self, name: str) -> BranchHandle:
        """A handle whose reads and writes are on one branch, which must exist."""
        if name not in self.branches.list():
            raise NotFound("branch", name)
        return BranchHandle(self, name)

    def refresh(self) -> None:
        """Nothing to do: every call asks the server."""
        self.session.http.document("/branches")

    def close(self) -> None:
        """Close the connections. A later call raises `GraphClosed`."""
        self.session.http.close()

    # ---- where the files are

    @checked
    def ensure_indices(
        self,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> IndexReport:
        """Refused: indexes are built where the files are."""
        self._refuse("ensure_indices", "optimize")

    @checked
    def optimize(
        self,
        branch: str = MAIN,
        *,
        engine: str = "auto",
        spark: Any = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        progress: Callable[[UpkeepProgress], None] | None = None,
    ) -> OptimizeReport:
        """Refused: upkeep runs where the files are."""
        self._refuse("optimize", "optimize")

    @checked
    def cleanup(
        self,
        keep: int | None = None,
        older_than: Duration | None = None,
        confirm: bool = False,
        *,
        grace: Duration = GRACE,
        engine: str = "auto",
        spark: Any = None,
    ) -> CleanupReport:
        """Refused: upkeep runs where the files are."""
        self._refuse("cleanup", "cleanup")

    @checked
    def repair(
        self,
        confirm: bool = False,
        force: bool = False,
        *,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        engine: str = "auto",
        spark: Any = None,
    ) -> RepairReport:
        """Refused: upkeep runs where the files are."""
        self._refuse("repair", "repair")

    def check(self) -> CheckReport:
        """Refused: a check reads the files."""
        self._refuse("check", "check")

    @checked
    def backup(
        self,
        target: str | os.PathLike[str],
        *,
        storage_options: dict[str, str] | None = None,
        check: bool = True,
        dry_run: bool = False,
        progress: Callable[[UpkeepProgress], None] | None = None,
    ) -> BackupReport:
        """Refused: a backup copies the files."""
        self._refuse("backup", "backup")

    def stats(self) -> StatsView:
        """Refused: a server counts for all of its clients."""
        raise NotServed("stats", self.uri, f"read {self.session.http.url}/metrics")

    @property
    def cache_bytes(self) -> int:
        """Zero: nothing is kept in memory between queries here."""
        return 0

    def _refuse(self, verb: str, command: str) -> NoReturn:
        members = _JOBS.get(command)
        if members is not None:
            raise NotServed(verb, self.uri, _USE_JOB.format(command, f"{self.uri}{members}"))
        raise NotServed(verb, self.uri, _USE_SHELL.format(command))


class _NoFrames:
    """`graph.spark` of a served graph: every use is refused."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotServed(f"graph.spark.{name}", self._url, "open the files of the graph with Spark")
