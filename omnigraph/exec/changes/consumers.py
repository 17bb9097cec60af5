"""Registered feed consumers: named cursors with a claim that retention (cleanup) honours.

    register ─▶ poll(consumer) ─▶ keep the data ─▶ ack(cursor) ─▶ poll(consumer) …

Invariant: at-least-once. A poll goes on behind the last acknowledged commit and acknowledges
nothing, so what was delivered and not acknowledged comes again. An acknowledgement only moves
forward. While a consumer is within its largest lag, cleanup keeps every commit it needs; beyond it
the claim may end, which is recorded before anything is removed and raised by the next poll.
"""

import time
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from omnigraph.errors import BadRequest, ConsumerLapsed, NotFound
from omnigraph.exec.changes.diff import filters
from omnigraph.exec.changes.feed import NOW, Feed, first_parents
from omnigraph.exec.schemas import Schemas
from omnigraph.storage.manifest.feed_claims import FeedClaim, Lapse, checked_consumer
from omnigraph.storage.records import Commit, CommitId
from omnigraph.storage.store import Store

ACTIVE, LATE, LAPSED, NO_BRANCH = "active", "late", "lapsed", "branch gone"


_LAG_MAX = 1 << 40  # commits or seconds: more than anybody waits for


@dataclass(frozen=True, slots=True)
class FeedConsumer:
    """A registered consumer as it stands now.

    `state` is `active`; `late` when it is past its largest lag, so that the next cleanup may end
    its claim; `lapsed` when one did; `branch gone` when its branch was deleted. Moments count
    microseconds.

    >>> graph.changes.register("search", max_lag="7d").state
    'active'
    >>> graph.changes.unregister("search")
    """

    name: str
    branch: str
    state: str
    acknowledged: str
    behind_commits: int
    behind_seconds: int
    max_lag_commits: int | None
    max_lag_seconds: int | None
    kinds: tuple[str, ...]
    types: tuple[str, ...]
    ops: tuple[str, ...]
    registered_at: int
    acknowledged_at: int

    def to_json(self) -> dict[str, Any]:
        """The consumer as a server or `--json` shows it."""
        return {
            "name": self.name,
            "branch": self.branch,
            "state": self.state,
            "acknowledged_commit_id": self.acknowledged,
            "behind_commits": self.behind_commits,
            "behind_secs": self.behind_seconds,
            "max_lag_commits": self.max_lag_commits,
            "max_lag_secs": self.max_lag_seconds,
            "kinds": list(self.kinds),
            "types": list(self.types),
            "ops": list(self.ops),
            "registered_at": self.registered_at,
            "acknowledged_at": self.acknowledged_at,
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """A claim beside the history of its branch: the commits it has not acknowledged, oldest first,
    or None when they cannot be told, because its branch is gone or another one."""

    claim: FeedClaim
    acknowledged: Commit | None
    behind: tuple[Commit, ...] | None

    @property
    def behind_seconds(self) -> int:
        """How long the oldest unacknowledged commit has been there."""
        if not self.behind:
            return 0
        return max(0, int((time.time() * 1e6 - self.behind[0].created_at) / 1e6))

    @property
    def is_late(self) -> bool:
        """Whether it is past its largest lag."""
        commits, seconds = self.claim.max_commits, self.claim.max_seconds
        return (commits is not None and len(self.behind or ()) > commits) or (
            seconds is not None and self.behind_seconds > seconds
        )

    @property
    def state(self) -> str:
        """One word for it, as `FeedConsumer` lists them."""
        if self.behind is None:
            return NO_BRANCH  # also of a claim that lapsed before: there is nothing to go back to
        if self.claim.lapse is not None:
            return LAPSED
        return LATE if self.is_late else ACTIVE

    @property
    def needed(self) -> tuple[Commit, ...]:
        """The commits that its next polls read."""
        if self.acknowledged is None or self.behind is None or self.claim.lapse is not None:
            return ()
        return (self.acknowledged, *self.behind)

    def lapse(self, kept: Collection[CommitId]) -> Lapse | None:
        """What it loses when only the kept commits stay; None if it loses nothing."""
        gone = {commit.id for commit in self.needed} - set(kept)
        lost = [c.id for c in self.behind or () if c.id in gone or c.parent in gone]
        return Lapse(now_us(), lost[0], len(lost)) if lost else None

    def described(self) -> FeedConsumer:
        """The consumer for its users."""
        claim = self.claim
        return FeedConsumer(
            claim.name,
            claim.branch,
            self.state,
            claim.commit,
            len(self.behind or ()),
            self.behind_seconds,
            claim.max_commits,
            claim.max_seconds,
            claim.kinds,
            claim.types,
            claim.ops,
            claim.registered_at,
            claim.acknowledged_at,
        )


def standing(store: Store, claim: FeedClaim) -> Standing:
    """How far a claim is behind the head of its branch."""
    try:
        if store.branches.identity(claim.branch) != claim.identity:
            return Standing(claim, None, None)
        chain = first_parents(store, claim.branch, store.snapshot(claim.branch).commit_id)
    except NotFound:
        return Standing(claim, None, None)
    for index, commit in enumerate(chain):
        if commit.id == claim.commit:
            return Standing(claim, commit, tuple(chain[index + 1 :]))
    return Standing(claim, None, None)


def end_claim(store: Store, claim: FeedClaim, kept: Collection[CommitId]) -> None:
    """Record that a late claim ended, decided anew if the consumer acknowledged meanwhile."""

    def decide(now: FeedClaim) -> FeedClaim:
        lapse = standing(store, now).lapse(kept)
        return now if lapse is None else replace(now, lapse=lapse)

    store.feed_claims.change(claim.name, decide)


class _LapsedMeanwhile(Exception):
    """A cleanup ended the claim between the look at it and its change."""


class Consumers:
    """The registered consumers of one graph."""

    def __init__(self, store: Store, schemas: Schemas) -> None:
        self._store = store
        self._schemas = schemas

    def register(
        self,
        name: str,
        branch: str,
        *,
        max_commits: int | None,
        max_seconds: int | None,
        start: str | None = None,
        kinds: Collection[str] = (),
        types: Collection[str] = (),
        ops: Collection[str] = (),
    ) -> FeedConsumer:
        """A new consumer that stands at a start of a branch's feed."""
        name = checked_consumer(name)
        self._store.require_writable()
        if max_commits is None and max_seconds is None:
            raise BadRequest(
                "a feed consumer names its largest lag",
                "pass max_lag (such as '7d'), max_lag_commits, or both",
            )
        if max_commits is not None and max_commits < 1:
            raise BadRequest(f"max_lag_commits is {max_commits}", "allow at least 1 commit")
        if max(max_commits or 0, max_seconds or 0) > _LAG_MAX:
            raise BadRequest("the largest lag is too large", f"give at most {_LAG_MAX}")
        # What is older than the head may be going this moment, unless cleanup waits.
        is_now = start is None or start == NOW
        with nullcontext() if is_now else self._store.feed_claims.on_the_past():
            change_filter = filters(self._schemas.current(branch).catalog, kinds, types, ops)
            feed = Feed(self._store, self._schemas, branch, change_filter)
            commit = feed.start_at(start)
            self._store.history.lost.require_readable([commit, *feed.after(commit.id)])
            moment = now_us()
            claim = FeedClaim(
                name,
                branch,
                self._store.branches.identity(branch),
                commit.id,
                max_commits,
                max_seconds,
                tuple(kinds),
                tuple(types),
                tuple(ops),
                moment,
                moment,
            )
            self._store.feed_claims.add(claim)
        return standing(self._store, claim).described()

    def list(self) -> tuple[FeedConsumer, ...]:
        """Every consumer, sorted by name."""
        return tuple(standing(self._store, c).described() for c in self._store.feed_claims.list())

    def feed(self, name: str) -> tuple[Feed, FeedClaim]:
        """The feed that a consumer reads, and its claim."""
        claim = self._store.feed_claims.get(name)
        if self._store.branches.identity(claim.branch) != claim.identity:
            hint = f"remove the consumer '{name}' and register it again"
            raise NotFound("branch", claim.branch, f"it was deleted and made again; {hint}")
        catalog = self._schemas.current(claim.branch).catalog
        change_filter = filters(catalog, claim.kinds, claim.types, claim.ops)
        return Feed(self._store, self._schemas, claim.branch, change_filter), claim

    def cursor(self, feed: Feed, claim: FeedClaim) -> str:
        """The cursor behind what a consumer acknowledged; `ConsumerLapsed` if its claim ended."""
        if claim.lapse is not None:
            gone = self._store.history.lost.reclaimed(claim.lapse.first_lost, claim.branch)
            raise ConsumerLapsed(
                "commit",
                claim.lapse.first_lost,
                gone.branch,
                gone.oldest,
                consumer=claim.name,
                acknowledged=claim.commit,
                lost_commits=claim.lapse.lost_commits,
                max_lag=claim.max_lag,
            )
        return feed.cursor_at(claim.commit)

    def ack(self, name: str, cursor: str) -> FeedConsumer:
        """Acknowledge everything up to a cursor. One of a baseline ends a lapse."""
        self._store.require_writable()
        feed, claim = self.feed(name)
        reached = feed.commit_at(cursor)
        was_lapsed = claim.lapse is not None

        def decide(now: FeedClaim) -> FeedClaim:
            if now.lapse is not None and not was_lapsed:
                raise _LapsedMeanwhile
            if feed.number(reached.id) < feed.number(now.commit):
                raise BadRequest(
                    f"the feed consumer '{name}' has acknowledged a later commit, '{now.commit}'",
                    "go on from there; to read older commits again, poll with a cursor of your own",
                )
            return replace(now, commit=reached.id, acknowledged_at=now_us(), lapse=None)

        try:
            # A lapsed claim on older commits begins again: cleanup must not be removing them.
            with self._store.feed_claims.on_the_past() if was_lapsed else nullcontext():
                if was_lapsed:
                    self._store.history.lost.require_readable([reached, *feed.after(reached.id)])
                changed = self._store.feed_claims.change(name, decide)
        except _LapsedMeanwhile:
            return self.ack(name, cursor)
        return standing(self._store, changed).described()

    def unregister(self, name: str) -> None:
        """Remove a consumer and its claim."""
        self._store.feed_claims.remove(name)


def now_us() -> int:
    """Microseconds since the epoch."""
    return int(time.time() * 1e6)
