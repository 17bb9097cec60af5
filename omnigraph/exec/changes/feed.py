"""Change feed: the commits of one branch, oldest first, each with its changes.

    start ─▶ blocks … next_page_token ─▶ blocks … cursor ─▶ (later) blocks …

Invariant: each poll ends at the head it found, so it always ends. Nothing is kept between polls:
a token carries where to go on and is valid in any process, for the graph, the branch as it was
created and the filters it was made with. Every commit is delivered, at least once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from omnigraph.errors import BadRequest, ChangeFeedGap, LimitExceeded, NotFound
from omnigraph.exec.changes.baseline import Baseline
from omnigraph.exec.changes.commit_steps import stepped
from omnigraph.exec.changes.diff import (
    Change,
    Filters,
    Position,
    bounded,
    commit_changes,
    position_of,
    require_page_size,
)
from omnigraph.exec.changes.export import Exporting, choose_owners, stored_batches
from omnigraph.exec.changes.page_sizes import PAGE_CHANGES, POLL_COMMITS, POLL_COMMITS_MAX
from omnigraph.exec.changes.tokens import sealed, unsealed
from omnigraph.exec.points import Points
from omnigraph.exec.progress import Meter
from omnigraph.exec.schemas import Schemas
from omnigraph.preview import ROWS_SHOWN, counted, text_preview
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit, CommitId
from omnigraph.storage.store import Store

NOW, BEGINNING, AFTER = "now", "beginning", "after:"


def cause_document(cause: Commit) -> dict[str, Any]:
    """The commit behind changes as a server sends it; what is not there has no key."""
    shown = {
        "graph_commit_id": cause.id,
        "parent_commit_id": cause.parent,
        "merged_parent_commit_id": cause.merged_parent,
        "authored_branch": cause.branch or MAIN,
        "actor_id": cause.actor,
        "authored_at": cause.created_at,
        "schema_steps": [step.to_json() for step in cause.schema_steps] or None,
    }
    return {name: value for name, value in shown.items() if value is not None}


@dataclass(frozen=True, slots=True)
class FeedBlock:
    """One commit, `cause`, and its changes; a commit that a page cuts comes again on the next.

    >>> block = graph.changes.poll(start="beginning", limit=2).blocks[0]
    >>> block.cause.changed, len(block.changes)
    ('+2 Person +1 Knows', 2)
    """

    cause: Commit
    changes: tuple[Change, ...]

    def __repr__(self) -> str:
        return f"FeedBlock({self.cause!r}, {counted(len(self.changes), 'change')})"

    def to_json(self, dates: str = "numbers") -> dict[str, Any]:
        """The block as a server sends it; with `dates="iso"` dates are text."""
        changes = [change.to_json(dates) for change in self.changes]
        return {"cause": cause_document(self.cause), "changes": changes}


@dataclass(frozen=True, slots=True)
class FeedPage:
    """A page of a poll: with `next_page_token`, or as its last one with `cursor`.

    >>> page = graph.changes.poll(start="beginning", limit=2)
    >>> [change.id for change in page.blocks[0].changes], page.caught_up
    (['Ada', 'Bob'], None)
    """

    blocks: tuple[FeedBlock, ...]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None

    def __repr__(self) -> str:
        changes = [change for block in self.blocks for change in block.changes]
        blocks, count = counted(len(self.blocks), "commit"), counted(len(changes), "change")
        goes_on = "next_page_token" if self.cursor is None else "cursor"
        title = f"FeedPage({blocks}, {count}, with {goes_on})"
        rows = [(c.op, c.kind, c.type, c.id) for c in changes[:ROWS_SHOWN]]
        return text_preview(title, ("op", "kind", "type", "id"), rows, len(changes))


@dataclass(frozen=True, slots=True)
class _PageBounds:
    """The range of a page: from beyond a commit, or inside the next, up to a last commit."""

    beyond: CommitId
    last: CommitId
    inside: Position | None = None


class Feed:
    """The feed of one branch with one set of filters."""

    def __init__(
        self,
        store: Store,
        schemas: Schemas,
        branch: str,
        filters: Filters,
        points: Points | None = None,
    ) -> None:
        self._store = store
        self._schemas = schemas
        self._filters = filters
        self._points = Points(store) if points is None else points
        identity = store.branches.identity(branch)
        self._head = store.snapshot(branch)
        self._chain = first_parents(store, branch, self._head.commit_id)
        self._by_id = {commit.id: commit for commit in self._chain}
        self._scope = [self._chain[0].id, branch, identity, filters.to_json()]

    def baseline(self) -> Baseline:
        """A baseline of the head, and the cursor that goes on from it."""
        head = self._head
        owners = choose_owners(self._schemas.of(head).catalog, None)
        chosen = tuple(filter(self._filters.take, owners))
        exporting = Exporting(stored_batches(self._store, head), head.commit_id, chosen, Meter())
        return Baseline(head.commit_id, self.cursor_at(head.commit_id), exporting)

    def poll(
        self,
        *,
        start: str | None = None,
        cursor: str | None = None,
        page_token: str | None = None,
        limit: int = PAGE_CHANGES,
        commits: int = POLL_COMMITS,
    ) -> FeedPage:
        """The commits since a start or a cursor: at most `commits` of them, `limit` changes."""
        try:
            return self._poll(start, cursor, page_token, limit, commits)
        except ChangeFeedGap as gap:
            raise replace(gap, cursor=cursor or page_token) from gap

    def _poll(
        self,
        start: str | None,
        cursor: str | None,
        page_token: str | None,
        limit: int,
        commits: int,
    ) -> FeedPage:
        if sum(each is not None for each in (start, cursor, page_token)) > 1:
            raise BadRequest("a poll has one of start, cursor and page_token")
        require_page_size(limit)
        if not 0 < commits <= POLL_COMMITS_MAX:
            raise LimitExceeded("change_feed_commits_per_poll", commits, POLL_COMMITS_MAX)
        if page_token is not None:
            beyond, last, inside = unsealed(page_token, "page", self._scope)
            page = _PageBounds(beyond, last, None if inside is None else tuple(inside))
        else:
            beyond = self._beginning(start, cursor)
            ahead = self.after(beyond)[:commits]
            page = _PageBounds(beyond, ahead[-1].id if ahead else beyond)
        return self._page(page, limit)

    def cursor_at(self, commit_id: CommitId) -> str:
        """The cursor behind a commit."""
        return sealed("cursor", self._scope, commit_id)

    def commit_at(self, cursor: str) -> Commit:
        """The commit that a cursor of this feed stands behind."""
        reached = CommitId(unsealed(cursor, "cursor", self._scope))
        if reached not in self._by_id:
            raise ChangeFeedGap("commit", reached, cursor=cursor)
        return self._by_id[reached]

    def number(self, commit_id: CommitId) -> int:
        """How many commits of this feed come before one; -1 if it is not on it."""
        numbers = (n for n, commit in enumerate(self._chain) if commit.id == commit_id)
        return next(numbers, -1)

    def start_at(self, start: str | None) -> Commit:
        """The commit behind which a start stands: now, beginning or after:<commit id>."""
        beyond = self._beginning(start, None)
        self.after(beyond)
        return self._by_id[beyond]

    def _beginning(self, start: str | None, cursor: str | None) -> CommitId:
        if cursor is not None:
            return self.commit_at(cursor).id
        if start is None or start == NOW:
            return self._chain[-1].id
        if start == BEGINNING:
            return self._chain[0].id
        if not start.startswith(AFTER):
            raise BadRequest(
                f"a feed cannot start at '{start}'", "use now, beginning or after:<point>"
            )
        after = CommitId(start.removeprefix(AFTER))
        return after if after in self._by_id else self._points.resolve(after, kind="commit").id

    def after(self, commit_id: CommitId) -> Sequence[Commit]:
        """The commits of this feed that follow one."""
        for index, commit in enumerate(self._chain):
            if commit.id == commit_id:
                return self._chain[index + 1 :]
        raise NotFound("commit", commit_id, "it is not on this branch")

    def _page(self, page: _PageBounds, limit: int) -> FeedPage:
        blocks: list[FeedBlock] = []
        beyond, inside = page.beyond, page.inside
        for commit in self._until(page):
            rest = self._changes(commit, inside)
            changes = tuple(bounded(rest, limit)) if limit else ()
            more = next(rest, None) is not None
            if changes or not more:
                cause = stepped(self._schemas, commit, self._parent(commit))
                blocks.append(FeedBlock(cause, changes))
            if more:
                inside = position_of(changes[-1]) if changes else inside
                token = sealed("page", self._scope, [beyond, page.last, inside])
                return FeedPage(tuple(blocks), next_page_token=token)
            limit -= len(changes)
            beyond, inside = commit.id, None
        caught_up = page.last == self._chain[-1].id
        return FeedPage(tuple(blocks), cursor=self.cursor_at(page.last), caught_up=caught_up)

    def _until(self, page: _PageBounds) -> Iterator[Commit]:
        ahead = self.after(page.beyond)
        if page.beyond == page.last:
            return iter(())
        count = next((n for n, c in enumerate(ahead, start=1) if c.id == page.last), None)
        if count is None:
            raise NotFound("commit", page.last, "it is not on this branch")
        return islice(iter(ahead), count)

    def _changes(self, commit: Commit, inside: Position | None) -> Iterator[Change]:
        parent = self._parent(commit)
        changes = commit_changes(self._store, self._schemas, commit, self._filters, parent=parent)
        return changes.beyond(inside)

    def _parent(self, commit: Commit) -> Commit | None:
        return self._by_id.get(CommitId(commit.parent or ""))


def first_parents(store: Store, branch: str, head: CommitId) -> list[Commit]:
    """The commits a branch went through, oldest first."""
    commits = store.history.dag(branch)
    if head not in commits:
        raise NotFound("branch", branch, "it was deleted and made again meanwhile")
    chain = [commits[head]]
    while chain[-1].parent is not None:
        chain.append(commits[chain[-1].parent])
    return chain[::-1]
