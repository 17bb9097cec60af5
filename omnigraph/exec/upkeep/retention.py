"""Retention policy: which commits stay readable, and the reasons why each of them does.

A commit stays when it is the head of a live branch or among its newest; when it was a head within
the time asked for, within the grace that readers get, or within what other processes rely on; when
a tag names it, a live branch forks off at it, or a registered feed consumer that is within its
largest lag has yet to read it; and when a merge of two of these starts from it, so that branches
made at any kept commits can be merged.

Invariant: a decision changes nothing. Every kept commit can be read and has a reason, and a commit
without one goes.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from omnigraph.exec.changes.consumers import Standing, standing
from omnigraph.exec.merge.shared_bases import SharedBase, shared_bases
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit, CommitId
from omnigraph.storage.store import Store


class Why(StrEnum):
    """The kinds of reasons for which a commit stays."""

    HEAD = "head"
    KEEP = "keep"
    OLDER_THAN = "older_than"
    GRACE = "grace"
    IN_USE = "in_use"
    TAG = "tag"
    BRANCH_POINT = "branch_point"
    MERGE_BASE = "merge_base"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class KeepReason:
    """One reason for which a commit stays; `names` are the branches, the tag or the consumer."""

    why: Why
    names: tuple[str, ...]

    def __str__(self) -> str:
        return _WORDS[self.why].format(*self.names)

    def to_json(self) -> dict[str, Any]:
        """The reason as `--json` shows it."""
        return {"reason": str(self.why), "names": list(self.names), "text": str(self)}


_WORDS = {
    Why.HEAD: "head of {0}",
    Why.KEEP: "among the newest of {0}",
    Why.OLDER_THAN: "younger than asked for on {0}",
    Why.GRACE: "within the grace of readers on {0}",
    Why.IN_USE: "just replaced on {0}",
    Why.TAG: "tag {0}",
    Why.BRANCH_POINT: "branch point of {0}",
    Why.MERGE_BASE: "merge base of {0} and {1}",
    Why.CONSUMER: "feed consumer {0}",
}


@dataclass(frozen=True, slots=True)
class KeptCommit:
    """A commit that stays, and why."""

    commit: Commit
    reasons: tuple[KeepReason, ...]

    def to_json(self) -> dict[str, Any]:
        """The commit and its reasons as `--json` shows them."""
        return {
            "graph_commit_id": self.commit.id,
            "authored_branch": self.commit.branch or MAIN,
            "authored_at": self.commit.created_at,
            "reasons": [reason.to_json() for reason in self.reasons],
        }


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The policy of one cleanup, in commits and seconds. `in_use_s` is what other processes rely
    on, whatever was asked for."""

    keep: int | None
    older_than_s: int | None
    grace_s: float
    in_use_s: float

    @property
    def window_s(self) -> float:
        """A commit that was a head within this time stays."""
        return max(self.grace_s, self.older_than_s or 0, self.in_use_s)

    def cause(self, replaced_s: float) -> Why:
        """The reason for a commit that was replaced so long ago, inside the window."""
        if self.older_than_s is not None and replaced_s <= self.older_than_s:
            return Why.OLDER_THAN
        return Why.GRACE if replaced_s <= self.grace_s else Why.IN_USE


@dataclass(frozen=True, slots=True)
class Retained:
    """What a policy comes to: the commits that stay, newest first, how many go, and by branch the
    manifest versions that stay and the one from which on all do. `losing` are the late feed
    consumers that lose commits."""

    kept: tuple[KeptCommit, ...]
    commits_gone: int
    versions: Mapping[str, list[int]]
    floors: Mapping[str, int]
    losing: tuple[Standing, ...]

    @property
    def ids(self) -> frozenset[CommitId]:
        """The commits that stay."""
        return frozenset(each.commit.id for each in self.kept)


class _Reasons:
    """Collects the reasons of every commit in the order they are given. What an earlier cleanup
    removed no reason brings back."""

    def __init__(self, is_readable: Callable[[Commit], bool]) -> None:
        self.commits: dict[CommitId, Commit] = {}
        self._reasons: dict[CommitId, dict[KeepReason, None]] = {}
        self._is_readable = is_readable

    def add(self, commit: Commit, why: Why, *names: str) -> None:
        if commit.id not in self.commits and not self._is_readable(commit):
            return
        self.commits[commit.id] = commit
        self._reasons.setdefault(commit.id, {})[KeepReason(why, names)] = None

    def kept(self) -> tuple[KeptCommit, ...]:
        commits = sorted(self.commits.values(), key=_age, reverse=True)
        return tuple(KeptCommit(c, tuple(self._reasons[c.id])) for c in commits)


def retain(store: Store, policy: RetentionPolicy) -> Retained:
    """Decide which commits of the live branches stay."""
    lines = {branch: store.history.list(branch) for branch in store.history.branches()}
    is_readable = store.history.lost.presence()
    reasons = _Reasons(is_readable)
    floors = {}
    for branch, line in lines.items():
        recent = dict(_recent(line, policy))
        reasons.add(line[0], Why.HEAD, branch)
        for commit in line[: policy.keep or 1]:
            if policy.keep is not None:
                reasons.add(commit, Why.KEEP, branch)
        for commit, cause in recent.items():
            if commit.id != line[0].id:
                reasons.add(commit, cause, branch)
        own = [c.manifest_version for c in recent if (c.branch or MAIN) == branch]
        floors[branch] = min(own, default=store.snapshot(branch).manifest_version)
    _tagged(store, lines, reasons)
    _branch_points(store, lines, reasons)
    standings = _consumers(store, reasons)
    _merge_bases(store, lines, reasons)
    losing = tuple(each for each in standings if each.lapse(reasons.commits.keys()) is not None)
    known = {commit.id: commit for line in lines.values() for commit in line}
    versions: dict[str, list[int]] = {branch: [] for branch in lines}
    for commit in reasons.commits.values():
        if (commit.branch or MAIN) in versions:
            versions[commit.branch or MAIN].append(commit.manifest_version)
    going = sum(is_readable(known[id_]) for id_ in known.keys() - reasons.commits.keys())
    return Retained(reasons.kept(), going, versions, floors, losing)


def _recent(line: Iterable[Commit], policy: RetentionPolicy) -> Iterator[tuple[Commit, Why]]:
    """The commits of a line, newest first, that were its head within the window, each with the
    part of the policy that says so."""
    now = time.time() * 1e6
    ended = now
    for commit in line:
        replaced_s = (now - ended) / 1e6
        if replaced_s <= policy.window_s:
            yield commit, policy.cause(replaced_s)
        ended = commit.created_at


def _tagged(store: Store, lines: Mapping[str, tuple[Commit, ...]], reasons: _Reasons) -> None:
    """The commits that tags name."""
    commits = {commit.id: commit for line in lines.values() for commit in line}
    for name, tag in store.tags.list().items():
        commit = commits.get(CommitId(tag.commit_id))
        if commit is not None:
            reasons.add(commit, Why.TAG, name)


def _branch_points(
    store: Store, lines: Mapping[str, tuple[Commit, ...]], reasons: _Reasons
) -> None:
    """The commits that live branches fork off from. Versions of a fork go on from its parent's, so
    a branch's own commits have later ones."""
    for branch, start in store.branches.starts().items():
        inherited = (c for c in lines.get(branch, ()) if c.manifest_version <= start)
        point = next(inherited, None)
        if point is not None:
            reasons.add(point, Why.BRANCH_POINT, branch)


def _merge_bases(store: Store, lines: Mapping[str, tuple[Commit, ...]], reasons: _Reasons) -> None:
    """The commits that a merge of two live branches reads beside their heads; then those that a
    merge of branches made at kept commits would read."""
    commits = {commit.id: commit for line in lines.values() for commit in line}
    heads: dict[CommitId, str] = {}
    for branch, line in lines.items():
        heads.setdefault(line[0].id, branch)
    tags = {CommitId(tag.commit_id): name for name, tag in store.tags.list().items()}
    points: Sequence[CommitId] = ()
    closed: Sequence[CommitId] = tuple(heads)
    while len(points) < len(closed):
        points = closed
        for base in shared_bases(commits, points):
            of_heads = base.ours in heads and base.theirs in heads
            names = [heads.get(id_) or tags.get(id_, id_) for id_ in (base.ours, base.theirs)]
            for commit in _read_by(base, commits):
                if of_heads or commit.id not in reasons.commits:
                    reasons.add(commit, Why.MERGE_BASE, *names)
        closed = (*points, *(reasons.commits.keys() - set(points)))


def _read_by(base: SharedBase, commits: Mapping[CommitId, Commit]) -> Iterator[Commit]:
    """What a merge with this base reads. Where the base is gone, that is what merges of it changed
    against their first parents."""
    if not base.is_gone:
        yield commits[base.id]
        return
    for merge in (commits[child] for child in base.children):
        yield merge
        if merge.parent is not None and merge.parent in commits:
            yield commits[merge.parent]


def _consumers(store: Store, reasons: _Reasons) -> tuple[Standing, ...]:
    """Keep what consumers within their lag need; where every consumer stands."""
    standings = tuple(standing(store, claim) for claim in store.feed_claims.list())
    for each in standings:
        for commit in () if each.is_late else each.needed:
            reasons.add(commit, Why.CONSUMER, each.claim.name)
    return standings


def _age(commit: Commit) -> tuple[int, int, str]:
    return commit.created_at, commit.manifest_version, commit.id
