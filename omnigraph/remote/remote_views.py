"""Views of a served graph: branches, tags, commit history, change feed and recoveries over HTTP.

Invariant: a view sends one request for one call, or a page at a time, and keeps nothing. An option
that the API has no word for is `NotServed`, never ignored.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from difflib import get_close_matches
from functools import partial
from typing import Any, NoReturn

import orjson

from omnigraph.arguments import checked
from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest, NotFound, NotServed, UnknownPoint
from omnigraph.exec.changes.baseline import Baseline
from omnigraph.exec.changes.consumers import FeedConsumer
from omnigraph.exec.changes.diff import Changes
from omnigraph.exec.changes.feed import FeedPage
from omnigraph.exec.changes.page_sizes import PAGE_CHANGES, POLL_COMMITS
from omnigraph.exec.durations import Duration
from omnigraph.exec.merge.resolve import Resolve
from omnigraph.exec.merge.run import MERGED, MergeOutcome
from omnigraph.exec.progress import Progress
from omnigraph.graph.views import (
    BranchesView,
    ChangesView,
    CommitsView,
    RecoveriesView,
    TagsView,
)
from omnigraph.remote.answers import settled
from omnigraph.remote.branch_lease import BranchLeases
from omnigraph.remote.event_stream import followed
from omnigraph.remote.from_wire import commit_of, commit_or_none, merge_of, page_of, tag_of
from omnigraph.remote.http_connection import JSON, REPLAY, encoded, given, segment
from omnigraph.remote.remote_schema import RemoteSchema
from omnigraph.remote.remote_session import RemoteSession, key_of
from omnigraph.remote.served_changes import ServedChanges, baseline_of
from omnigraph.storage.manifest.tags import Tag
from omnigraph.storage.names import MAIN, require_text
from omnigraph.storage.records import Commit
from omnigraph.storage.recovery_records import Recovery


class RemoteBranches(BranchesView):
    """The branches of a served graph."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._http = session.http
        self._leases = BranchLeases(session.http)

    @checked
    def create(self, name: str, from_: str = MAIN) -> str:
        """A new branch at the head of another, or at any point in time; its name, trimmed."""
        self._session.require_writable()
        self._session.require_branch(from_)
        return self._leases.create(name, from_)

    def list(self) -> tuple[str, ...]:
        """Every branch, sorted by name."""
        return tuple(self._http.document("/branches")["branches"])

    @checked
    def delete(self, name: str) -> None:
        """Remove a branch no other depends on."""
        self._session.require_writable()
        if not name:  # no path holds it
            raise NotFound("branch", name)
        self._http.write("DELETE", f"/branches/{segment(name)}")

    def owned(self, name: str) -> AbstractContextManager[None]:
        """A block in which the server keeps a branch for this client: one that it leaves by dying
        is removed."""
        return self._leases.owned(name)

    @checked
    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        delete_source: bool = False,
        by: str = "entity",
        resolve: Resolve = None,
        progress: Callable[[Progress], None] | None = None,
        dry_run: bool = False,
        if_source: str | None = None,
        if_target: str | None = None,
        once: str | None = None,
        checks: Sequence[str | os.PathLike[str]] = (),
    ) -> MergeOutcome:
        """Merge a branch into another as one commit, or raise `MergeConflicts`. `dry_run` writes
        nothing. `once` names this merge: if a commit of the target has that name, its outcome is
        returned and nothing is merged. Checks are those that the server has declared."""
        if checks:
            raise NotServed("branches.merge(checks=)", self._http.uri, "the server has its own")
        if once is not None:
            require_text("the name of a merge `once`", once)
        if not dry_run:
            self._session.require_writable()
        self._session.require_own_actor(actor)
        self._session.require_branch(source, into)
        body = {
            "source": source,
            "target": into,
            "delete_branch": delete_source,
            "by": by,
            "if_source_commit": if_source,
            "if_target_commit": if_target,
            "dry_run": dry_run,
            "message": message,
            "metadata": metadata,
        }

        def send(resolutions: list[dict[str, Any]], **more: Any) -> MergeOutcome:
            asked = encoded({**body, "resolutions": resolutions, **more})
            key = None if once is None or more else key_of(once)
            answer = self._http.write_once("/branches/merge", asked, JSON, key=key)
            document, repeated = orjson.loads(answer.content), REPLAY in answer.headers
            return merge_of(document, self._http.uri, repeated=repeated)

        try:
            return settled(send, resolve, partial(send, dry_run=True))
        except BadRequest:
            # The key may be of a merge of another branch: that of an earlier transaction `once`.
            done = None if once is None else RemoteCommits(self._session).once(once, into)
            if done is None:
                raise
            return MergeOutcome(MERGED, source, into, done, done.actor, repeated=True)


class RemoteTags(TagsView):
    """The tags of a served graph."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._http = session.http

    @checked
    def create(self, name: str, point: str = MAIN) -> Tag:
        """Name a commit, that of any point in time; cleanup keeps it while the tag is there."""
        self._session.require_writable()
        return tag_of(self._http.write("POST", "/tags", {"name": name, "point": point}))

    def list(self) -> tuple[Tag, ...]:
        """Every tag, sorted by name."""
        return tuple(map(tag_of, self._http.document("/tags")["tags"]))

    @checked
    def get(self, name: str) -> Tag:
        """One tag, or `UnknownPoint`."""
        tags = {tag.name: tag for tag in self.list()}
        if name not in tags:
            raise UnknownPoint("tag", name, "", tuple(get_close_matches(name, tags)))
        return tags[name]

    @checked
    def delete(self, name: str) -> None:
        """Remove a tag."""
        self._session.require_writable()
        if not name:  # no path holds it
            raise UnknownPoint("tag", name)
        self._http.write("DELETE", f"/tags/{segment(name)}")


class RemoteCommits(CommitsView):
    """The history of a served graph."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self._http = session.http

    @checked
    def list(
        self,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        limit: int | None = None,
        all_branches: bool = False,
    ) -> tuple[Commit, ...]:
        """The commits that lead to a branch, inherited ones included, or to another point in time;
        or those of every branch. Newest first."""
        if limit is not None and limit < 0:
            raise BadRequest(f"limit is {limit}", "give a whole number from 0 on")
        if all_branches and branch != MAIN:
            raise BadRequest("all_branches= leaves no branch to choose", "pass one of the two")
        self._session.require_branch(branch)
        commits: list[Commit] = []
        token = None
        while limit is None or len(commits) < limit:
            size = (
                COSTS.remote_page_commits
                if limit is None
                else min(COSTS.remote_page_commits, limit - len(commits))
            )
            params = given(
                branch=branch,
                actor=actor,
                all_branches=all_branches or None,
                limit=size,
                page_token=token,
            )
            page = self._http.document("/commits", params)
            commits += map(commit_of, page["commits"])
            token = page.get("next_page_token")
            if token is None:
                break
        return tuple(commits)

    @checked
    def get(self, commit_id: str) -> Commit:
        """One commit of any branch, by its id or as any point in time."""
        return commit_of(self._http.document(_commit_path(commit_id)))

    def names(self) -> dict[str, tuple[str, ...]]:
        """The branches whose heads are at a commit and the tags that name it, by its id."""
        heads = self._http.document("/branches", given(heads=True)).get("heads", {})
        names: dict[str, tuple[str, ...]] = {}
        for name in sorted(heads, key=lambda name: (name != MAIN, name)):
            names[heads[name]] = (*names.get(heads[name], ()), name)
        for tag in self._http.document("/tags")["tags"]:
            commit = tag["graph_commit_id"]
            names[commit] = (*names.get(commit, ()), tag["name"])
        return names

    @checked
    def once(self, name: str, branch: str = MAIN) -> Commit | None:
        """The commit of a branch that a write `once` of this name made, if there is one."""
        require_text("the name of a write `once`", name)
        path = f"/operations/{segment(key_of(name))}"
        return commit_or_none(self._http.document(path, given(branch=branch))["commit"])

    @checked
    def changes(
        self,
        commit_id: str,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> Changes:
        """Changes of a commit against its first parent."""
        path = f"{_commit_path(commit_id)}/changes"
        return ServedChanges(
            self._http,
            path,
            change_params(kinds, types, ops),
            lambda page: (
                page["cause"].get("parent_commit_id", ""),
                page["cause"]["graph_commit_id"],
            ),
        )


def _commit_path(commit_id: str) -> str:
    if not commit_id:  # no path holds it
        raise UnknownPoint("commit", commit_id)
    return f"/commits/{segment(commit_id)}"


def change_params(
    kinds: Collection[str], types: Collection[str], ops: Collection[str]
) -> list[tuple[str, str]]:
    """The filters of a listing of changes, as query parameters."""
    return given(kind=list(kinds), type=list(types), op=list(ops))


class RemoteChangeFeed(ChangesView):
    """The change feed of a served graph. Consumers are registered where its files are."""

    def __init__(self, session: RemoteSession, schema: RemoteSchema) -> None:
        self._session = session
        self._http = session.http
        self._schema = schema

    @checked
    def poll(
        self,
        branch: str = MAIN,
        *,
        consumer: str | None = None,
        start: str | None = None,
        cursor: str | None = None,
        page_token: str | None = None,
        limit: int = PAGE_CHANGES,
        commits: int = POLL_COMMITS,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> FeedPage:
        """The commits of a branch since a start or a cursor, oldest first, with what each
        changed."""
        if consumer is not None:
            self._refuse(
                "a poll of a registered consumer", "keep its cursor, and poll with cursor="
            )
        if commits != POLL_COMMITS:
            self._refuse("poll(commits=)", "bound a page with limit=")
        self._session.require_branch(branch)
        params = given(
            branch=branch, start=start, cursor=cursor, page_token=page_token, limit=limit
        )
        page = self._http.document("/changes", [*params, *change_params(kinds, types, ops)])
        return page_of(page)

    @checked
    def follow(
        self,
        branch: str = MAIN,
        *,
        start: str | None = None,
        cursor: str | None = None,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> Iterator[FeedPage]:
        """The pages of a branch's feed as commits come, for ever: sent by the server, without
        asking again. A connection that breaks is made again where the last cursor stands."""
        if start is not None and cursor is not None:
            raise BadRequest("a poll has one of start, cursor and page_token")
        self._session.require_branch(branch)
        asked = [*given(branch=branch), *change_params(kinds, types, ops)]
        if start is None and cursor is None:
            cursor = self.poll(branch, start="now", kinds=kinds, types=types, ops=ops).cursor
        return followed(self._http, asked, start, cursor)

    @checked
    def baseline(
        self,
        branch: str = MAIN,
        *,
        consumer: str | None = None,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> Baseline:
        """Everything at the head of a branch, and the cursor from which polls go on."""
        if consumer is not None:
            self._refuse("a baseline of a registered consumer")
        self._session.require_branch(branch)
        body = {"branch": branch, "kind": list(kinds), "type": list(types), "op": list(ops)}
        return baseline_of(self._http, body, self._schema.at)

    @checked
    def register(
        self,
        name: str,
        branch: str = MAIN,
        *,
        max_lag: Duration | None = None,
        max_lag_commits: int | None = None,
        start: str | None = None,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> FeedConsumer:
        """Refused: consumers are registered where the files are."""
        self._refuse("changes.register")

    def consumers(self) -> tuple[FeedConsumer, ...]:
        """Refused: consumers are registered where the files are."""
        self._refuse("changes.consumers")

    @checked
    def ack(self, name: str, cursor: str) -> FeedConsumer:
        """Refused: consumers are registered where the files are."""
        self._refuse("changes.ack")

    @checked
    def unregister(self, name: str) -> None:
        """Refused: consumers are registered where the files are."""
        self._refuse("changes.unregister")

    def _refuse(self, verb: str, instead: str = "") -> NoReturn:
        raise NotServed(verb, self._http.uri, instead)


class RemoteRecoveries(RecoveriesView):
    """The recovery audit of a served graph, which is read where its files are."""

    def __init__(self, session: RemoteSession) -> None:
        self._http = session.http

    def list(self) -> tuple[Recovery, ...]:
        """Refused: the audit is read where the files are."""
        raise NotServed("recoveries.list", self._http.uri)
