"""Views of a graph: branches, commit history, change feed and recoveries.

Invariant: a view asks one part and keeps nothing.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import TYPE_CHECKING

from omnigraph.arguments import checked
from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest, OmnigraphError
from omnigraph.exec.changes.page_sizes import PAGE_CHANGES, POLL_COMMITS
from omnigraph.exec.durations import Duration, seconds
from omnigraph.exec.schemas import Schemas
from omnigraph.graph.late_reading import LateReading
from omnigraph.graph.merge_rules import MergeRules
from omnigraph.graph.merge_verb import MergeVerb
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.graph.review_records import ReviewRecords
from omnigraph.policy.actions import Action
from omnigraph.preview import ROWS_SHOWN, html_preview, text_preview
from omnigraph.storage.manifest.tags import Tag
from omnigraph.storage.names import MAIN, require_text
from omnigraph.storage.records import Commit
from omnigraph.storage.recovery_records import Recovery
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from omnigraph.exec.changes.baseline import Baseline
    from omnigraph.exec.changes.commit_steps import with_schema_steps
    from omnigraph.exec.changes.consumers import Consumers, FeedConsumer
    from omnigraph.exec.changes.diff import Changes, commit_changes, filters, readable
    from omnigraph.exec.changes.feed import Feed, FeedPage
else:
    Baseline = deferred("omnigraph.exec.changes.baseline", "Baseline")
    with_schema_steps = deferred("omnigraph.exec.changes.commit_steps", "with_schema_steps")
    Consumers = deferred("omnigraph.exec.changes.consumers", "Consumers")
    FeedConsumer = deferred("omnigraph.exec.changes.consumers", "FeedConsumer")
    Changes = deferred("omnigraph.exec.changes.diff", "Changes")
    commit_changes = deferred("omnigraph.exec.changes.diff", "commit_changes")
    filters = deferred("omnigraph.exec.changes.diff", "filters")
    readable = deferred("omnigraph.exec.changes.diff", "readable")
    Feed = deferred("omnigraph.exec.changes.feed", "Feed")
    FeedPage = deferred("omnigraph.exec.changes.feed", "FeedPage")

_NEWEST_FIRST = "Commits of main, newest first"
_LOOK_S = 0.1


def described(name: str, facts: Callable[[], str]) -> str:
    """A `repr` that reads the graph, and says why it cannot instead of failing."""
    try:
        return f"{name}({facts()})"
    except OmnigraphError as cause:
        return f"{name}({type(cause).__name__})"


class BranchesView(MergeVerb):
    """The branches of a graph."""

    def __init__(
        self,
        store: Store,
        schemas: Schemas,
        guard: PolicyGuard,
        reading: LateReading,
        rules: MergeRules,
        reviews: ReviewRecords,
    ) -> None:
        self._store = store
        self._schemas = schemas
        self._guard = guard
        self._late_reading = reading
        self._rules = rules
        self._reviews = reviews

    def __repr__(self) -> str:
        return described("Branches", lambda: ", ".join(self.list()))

    @checked
    def create(self, name: str, from_: str = MAIN) -> str:
        """A new branch at the head of another, or at any point in time; its name, trimmed.

        >>> graph.branches.create("review/age", from_="main~1")
        'review/age'
        """
        self._guard.creates(name, from_)
        return self._guard.points.branch_from(name, from_)

    def list(self) -> tuple[str, ...]:
        """Every branch, sorted by name.

        >>> graph.branches.list()
        ('main',)
        """
        self._guard.reads_graph()
        return self._store.branches.list()

    def owned(self, name: str) -> AbstractContextManager[None]:
        """A block in which this process owns a branch: one that it leaves by dying is removed."""
        return self._store.owned_branches.owned(name)

    @checked
    def delete(self, name: str) -> None:
        """Remove a branch no other depends on.

        >>> name = graph.branches.create("idea")
        >>> graph.branches.delete(name)
        """
        self._guard.deletes(name)
        self._store.branches.delete(name)


class TagsView:
    """The tags of a graph: names of commits that do not move."""

    def __init__(self, store: Store, guard: PolicyGuard) -> None:
        self._store = store
        self._guard = guard

    def __repr__(self) -> str:
        return described("Tags", lambda: ", ".join(f"{t.name}@{t.commit_id}" for t in self.list()))

    @checked
    def create(self, name: str, point: str = MAIN) -> Tag:
        """Name a commit, that of any point in time; cleanup keeps it while the tag is there.

        >>> graph.tags.create("v1").commit_id == graph.commits.get("main").id
        True
        """
        self._guard.creates(name, point)
        commit = self._guard.points.resolve(point)
        with self._store.history.lost.reading(commit):
            return self._store.tags.create(name, commit)

    def list(self) -> tuple[Tag, ...]:
        """Every tag, sorted by name.

        >>> made = graph.tags.create("v1", "main~1")
        >>> [tag.name for tag in graph.tags.list()]
        ['v1']
        """
        self._guard.reads_graph()
        return tuple(self._store.tags.list().values())

    @checked
    def get(self, name: str) -> Tag:
        """One tag, or `UnknownPoint`.

        >>> graph.tags.create("v1") == graph.tags.get("v1")
        True
        """
        self._guard.reads_graph()
        return self._store.tags.get(name)

    @checked
    def delete(self, name: str) -> None:
        """Remove a tag.

        >>> made = graph.tags.create("v1")
        >>> graph.tags.delete("v1")
        """
        self._guard.deletes(name)
        self._store.tags.delete(name)


class CommitsView:
    """The history of a graph."""

    def __init__(self, store: Store, schemas: Schemas, guard: PolicyGuard) -> None:
        self._store = store
        self._guard = guard
        self._points = guard.points
        self._schemas = schemas

    def __repr__(self) -> str:
        try:
            return text_preview(_NEWEST_FIRST, *self._preview())
        except OmnigraphError as cause:
            return f"Commits({type(cause).__name__})"

    def _repr_html_(self) -> str:
        return html_preview(_NEWEST_FIRST, *self._preview())

    def _preview(self) -> tuple[Sequence[str], Sequence[Sequence[str | None]], int | None]:
        """The newest commits of main as columns and rows, and how many there are if all fit."""
        commits = self.list(limit=ROWS_SHOWN + 1)
        rows = [(c.id, c.when, c.actor, c.changed, c.message) for c in commits[:ROWS_SHOWN]]
        columns = ("commit", "when", "actor", "rows", "message")
        return columns, rows, None if len(commits) > ROWS_SHOWN else len(commits)

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
        or those of every branch. Newest first.

        >>> newest, first = graph.commits.list()
        >>> newest.changed
        '+2 Person +1 Knows'
        """
        if limit is not None and limit < 0:
            raise BadRequest(f"limit is {limit}", "give a whole number from 0 on")
        if not all_branches:
            self._guard.reads_point(branch)
            return self._stepped(self._points.history(branch, actor=actor, limit=limit))
        self._guard.reads_graph()
        if branch != MAIN:
            raise BadRequest("all_branches= leaves no branch to choose", "pass one of the two")
        return self._stepped(self._store.history.list_all(actor=actor, limit=limit))

    def _stepped(self, commits: tuple[Commit, ...]) -> tuple[Commit, ...]:
        return with_schema_steps(self._store, self._schemas, commits)

    @checked
    def get(self, commit_id: str) -> Commit:
        """One commit of any branch, by its id or as any point in time.

        >>> graph.commits.get("main~1").id == graph.commits.list()[-1].id
        True
        """
        self._guard.reads_graph()
        return self._stepped((self._points.resolve(commit_id, kind="commit"),))[0]

    def names(self) -> dict[str, tuple[str, ...]]:
        """The branches whose heads are at a commit and the tags that name it, by its id.

        >>> graph.commits.names()[graph.commits.get("main").id]
        ('main',)
        """
        self._guard.reads_graph()
        return self._points.names()

    @checked
    def once(self, name: str, branch: str = MAIN) -> Commit | None:
        """The commit of a branch that a write `once` of this name made, if there is one.

        >>> done = graph.load([{"name": "Fay"}], "merge", type="Person", once="monday")
        >>> graph.commits.once("monday").id == done.commit.id
        True
        """
        self._guard.reads(branch)
        require_text("the name of a write `once`", name)
        return self._store.marked(branch, name)

    @checked
    def changes(
        self,
        commit_id: str,
        *,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> Changes:
        """Changes of a commit against its first parent.

        >>> [change.id for change in graph.commits.changes("main", types=["Person"])]
        ['Ada', 'Bob']
        """
        commit = self._readable(commit_id)
        with readable(commit.id):
            catalog = self._schemas.of(self._store.history.snapshot_at(commit)).catalog
        change_filter = filters(catalog, kinds, types, ops)
        return commit_changes(self._store, self._schemas, commit, change_filter)

    def _readable(self, commit_id: str) -> Commit:
        """One commit whose changes may be read: its branch is asked about."""
        self._guard.require_ever(Action.READ)
        commit = self._points.resolve(commit_id, kind="commit")
        self._guard.reads(commit.branch or MAIN)
        return commit


class ChangesView:
    """The change feed of a graph, and its registered consumers."""

    def __init__(self, store: Store, schemas: Schemas, guard: PolicyGuard) -> None:
        self._store = store
        self._schemas = schemas
        self._guard = guard

    @cached_property
    def _consumers(self) -> Consumers:
        return Consumers(self._store, self._schemas)

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
        """The commits of a branch since a place, oldest first, with what each changed.

        `start` is `now`, `beginning` or `after:<point>`; a `cursor` goes on where a poll ended.
        With `consumer`, a registered one, its feed goes on behind what it acknowledged; `ack` the
        page's cursor once its changes are kept.

        >>> page = graph.changes.poll(start="beginning", types=["Knows"])
        >>> [change.op for block in page.blocks for change in block.changes]
        ['insert']
        """
        if consumer is not None:
            _require_only_consumer(branch, kinds, types, ops, start, cursor)
            self._reads_consumer(consumer)
            feed, claim = self._consumers.feed(consumer)
            cursor = self._consumers.cursor(feed, claim) if page_token is None else None
        else:
            feed = self._feed(branch, kinds, types, ops)
        return feed.poll(
            start=start, cursor=cursor, page_token=page_token, limit=limit, commits=commits
        )

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
        """The pages of a branch's feed as commits come, for ever: a page that has none is not
        given. Leave the loop to stop; the cursor of the last page that has one goes on later.

        >>> pages = graph.changes.follow(start="beginning")
        >>> [len(block.changes) for block in next(pages).blocks]
        [3]
        """
        self._guard.reads(branch)
        poll = partial(self.poll, branch, kinds=kinds, types=types, ops=ops)

        def pages() -> Iterator[FeedPage]:
            seen = self._head(branch)  # before the poll, so that no commit falls between the two
            page = poll(start=start, cursor=cursor)
            while True:
                if page.blocks:
                    yield page
                if page.next_page_token is not None:
                    page = poll(page_token=page.next_page_token)
                    continue
                while (head := self._head(branch)) == seen:
                    time.sleep(_LOOK_S)
                seen = head
                page = poll(cursor=page.cursor)

        return pages()

    def _head(self, branch: str) -> str:
        return self._store.snapshot(branch).commit_id

    def _feed(
        self, branch: str, kinds: Collection[str], types: Collection[str], ops: Collection[str]
    ) -> Feed:
        self._guard.reads(branch)
        change_filter = filters(self._schemas.current(branch).catalog, kinds, types, ops)
        return Feed(self._store, self._schemas, branch, change_filter, self._guard.points)

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
        """Everything at the head of a branch, and the cursor from which polls go on.

        `ops` narrows the changes that the cursor tells, not the baseline. With `consumer`, a
        registered one, it is a baseline of its feed: `ack` the cursor once the data is kept.

        >>> whole = graph.changes.baseline(types=["Person"])
        >>> graph.changes.poll(cursor=whole.cursor, types=["Person"]).caught_up
        True
        """
        if consumer is not None:
            _require_only_consumer(branch, kinds, types, ops)
            self._reads_consumer(consumer, Action.EXPORT)
            return self._consumers.feed(consumer)[0].baseline()
        self._guard.require(Action.EXPORT, branch)
        change_filter = filters(self._schemas.current(branch).catalog, kinds, types, ops)
        return Feed(self._store, self._schemas, branch, change_filter).baseline()

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
        """Register a consumer of a branch's feed, for which cleanup keeps what it has not read.

        It stands at `start`, by default the head. Once it is further behind than `max_lag` (`7d`)
        or `max_lag_commits`, cleanup may go on without it, and its next poll raises
        `ConsumerLapsed`.

        >>> graph.changes.register("search", max_lag="7d", start="beginning").behind_commits
        1
        """
        self._guard.reads(branch)
        return self._consumers.register(
            name,
            branch,
            max_commits=max_lag_commits,
            max_seconds=None if max_lag is None else seconds(max_lag),
            start=start,
            kinds=kinds,
            types=types,
            ops=ops,
        )

    def consumers(self) -> tuple[FeedConsumer, ...]:
        """Every registered consumer, sorted by name, and how far each is behind.

        >>> graph.changes.consumers()
        ()
        """
        self._guard.reads_graph()
        return self._consumers.list()

    @checked
    def ack(self, name: str, cursor: str) -> FeedConsumer:
        """Acknowledge that a consumer keeps everything up to a cursor; its next poll goes on
        there. The cursor of a baseline lets a lapsed consumer begin again.

        >>> made = graph.changes.register("index", max_lag_commits=100, start="beginning")
        >>> page = graph.changes.poll(consumer="index")
        >>> graph.changes.ack("index", page.cursor).behind_commits
        0
        """
        self._reads_consumer(name)
        return self._consumers.ack(name, cursor)

    @checked
    def unregister(self, name: str) -> None:
        """Remove a consumer; nothing is kept for it any longer.

        >>> made = graph.changes.register("feed", max_lag="7d")
        >>> graph.changes.unregister("feed")
        """
        self._reads_consumer(name)
        self._consumers.unregister(name)

    def _reads_consumer(self, name: str, action: Action = Action.READ) -> None:
        """A read of the branch that a registered consumer is about."""
        if self._guard.policy is not None:
            self._guard.require_ever(action)
            self._guard.require(action, self._store.feed_claims.get(name).branch)


def _require_only_consumer(branch: str, *others: object) -> None:
    """A registered consumer has its own branch, filters and position."""
    if branch != MAIN or any(others):
        raise BadRequest(
            "a registered consumer has its own branch, filters and cursor",
            "pass consumer alone, with limit, commits or page_token",
        )


class RecoveriesView:
    """The recovery audit of a graph."""

    def __init__(self, store: Store, guard: PolicyGuard) -> None:
        self._store = store
        self._guard = guard

    def list(self) -> tuple[Recovery, ...]:
        """Every recovery, newest first.

        >>> graph.recoveries.list()
        ()
        """
        self._guard.reads_graph()
        return self._store.audit.list()
