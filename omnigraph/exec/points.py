"""Points in time: a text such as `main`, `v1.2`, `01M7FS6G`, `main~3` or `main@{2026-11-15}`
resolved to a commit.

    POINT  = NAME | POINT ~[N] | POINT @{MOMENT}
    NAME   = branch, else tag, else the id of a commit, else its beginning (8 characters or more)

`~N` walks N first parents back, `@{MOMENT}` to the newest first parent that is not younger.

Invariant: this is the one resolver. A branch costs what reading its head costs; a walk reads the
lineage as far back as it goes. What is said of a point that is not there names nothing else to
those who may not list branches.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from omnigraph.deferred import deferred
from omnigraph.errors import AmbiguousPoint, BadRequest, NotFound, UnknownPoint
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import Commit, Snapshot
from omnigraph.storage.store import Store

if TYPE_CHECKING:
    from difflib import get_close_matches

    from omnigraph.language.moments import format_datetime, parse_datetime
else:
    get_close_matches = deferred("difflib", "get_close_matches")
    format_datetime = deferred("omnigraph.language.moments", "format_datetime")
    parse_datetime = deferred("omnigraph.language.moments", "parse_datetime")

PREFIX_CHARS_MIN = 8
POINT = "branch or commit"
"""What an error calls a text that may be any point."""

_NEAR_MAX = 4
_SHORT_CHARS = 3
_ID_CHARS = 26
_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{4,26}")  # a ULID or its beginning
_STEP = re.compile(r"(?P<base>.*)(?:~(?P<count>\d{0,9})|@\{(?P<moment>[^{}]*)\})", re.S)


def named_branch(text: str) -> str | None:
    """The branch that a point begins with, if it is one; None for the id of a commit."""
    while (step := _STEP.fullmatch(text)) is not None:
        text = step["base"]
    is_id = len(text) >= PREFIX_CHARS_MIN and _ID.fullmatch(text.upper())
    return None if is_id else text


class Points:
    """Resolves points in time of one graph, for somebody who may list its branches or not."""

    def __init__(self, store: Store, may_list: Callable[[], bool] = lambda: True) -> None:
        self._store = store
        self._may_list = may_list

    def snapshot(self, text: str, *, kind: str = POINT, since: float | None = None) -> Snapshot:
        """What a read at a point sees; of a branch, as `Store.snapshot` does with `since`."""
        head = self._head(text, since)
        if head is not None:
            return head
        if _ID.fullmatch(text) and len(text) == _ID_CHARS and self._store.tags.target(text) is None:
            try:
                return self._store.history.snapshot(text)  # which remembers what it read
            except NotFound as missing:
                if missing.hint:
                    raise  # it says more
                raise self._unknown(text, text, kind) from None
        return self._store.history.snapshot_at(self._past(text, kind))

    def pinned(
        self, branch: str | None, snapshot: str | None, since: float | None = None
    ) -> Snapshot:
        """What a read sees that was given a branch or a snapshot, each as any point; main if none
        was given."""
        if branch is not None and snapshot is not None:
            raise BadRequest("request may specify branch or snapshot, not both")
        if snapshot is not None:
            return self.snapshot(snapshot, kind="commit", since=since)
        return self.snapshot(MAIN if branch is None else branch, kind="branch", since=since)

    def resolve(self, text: str, *, kind: str = POINT) -> Commit:
        """The commit at a point."""
        return self._resolved(text, text, kind)

    def history(
        self, text: str, *, actor: str | None = None, limit: int | None = None
    ) -> tuple[Commit, ...]:
        """The commits that lead to a point, newest first, with those that its branch inherited."""
        if self.branch_or_none(text) is not None:
            return self._store.history.list(text, actor=actor, limit=limit)
        last = self._past(text, "branch")
        line = self._store.history.list(last.branch or MAIN, actor=actor)
        until = [each for each in line if each.manifest_version <= last.manifest_version]
        return tuple(until if limit is None else until[:limit])

    def names(self) -> dict[str, tuple[str, ...]]:
        """Branches at their heads, main first, and then tags, by the id of the commit."""
        names: defaultdict[str, list[str]] = defaultdict(list)
        for branch in sorted(self._store.branches.list(), key=lambda name: (name != MAIN, name)):
            head = self._head(branch)
            if head is not None:  # else it was deleted meanwhile
                names[head.commit_id].append(branch)
        for tag in self._store.tags.list().values():
            names[tag.commit_id].append(tag.name)
        return {commit_id: tuple(each) for commit_id, each in names.items()}

    def branch_from(self, name: str, text: str) -> str:
        """Create a branch at a point; its name, trimmed."""
        try:
            return self._store.branches.create(name, source=text)
        except NotFound as missing:
            if missing.kind != "branch":
                raise
        commit = self._past(text, "branch")
        with self._store.history.lost.reading(commit):
            return self._store.branches.create_at(name, commit)

    def branch_or_none(self, text: str) -> str | None:
        """The branch that a text names; None if it names another point, or nothing."""
        return None if self._head(text) is None else text

    def _head(self, text: str, since: float | None = None) -> Snapshot | None:
        try:
            return self._store.snapshot(text, since=since)
        except NotFound as missing:
            if missing.kind != "branch":
                raise
            return None

    def _resolved(self, text: str, asked: str, kind: str) -> Commit:
        head = self._head(text)
        if head is None:
            return self._past(text, kind, asked)
        commits = self._store.history.find(text, [head.commit_id])
        return commits[0] if commits else self._store.history.get(head.commit_id)

    def _past(self, text: str, kind: str, asked: str | None = None) -> Commit:
        """The commit at a point that is no branch."""
        asked = text if asked is None else asked
        step = _STEP.fullmatch(text)
        if step is not None:
            start = self._resolved(step["base"], asked, kind)
            if step["moment"] is not None:
                return self._until(start, step["moment"], asked, kind)
            return self._back(start, int(step["count"] or "1"), asked, kind)
        return self._store.tags.target(text) or self._by_id(text, asked, kind)

    def _back(self, start: Commit, count: int, asked: str, kind: str) -> Commit:
        line = self._store.history.first_parents(start)
        commit = next(islice(line, count, None), None)
        if commit is None:
            length = sum(1 for _ in self._store.history.first_parents(start)) - 1
            raise self._missing(kind, asked, f"only {length} commits come before {start.id}")
        return commit

    def _until(self, start: Commit, moment: str, asked: str, kind: str) -> Commit:
        latest = _microseconds(moment)
        commit = start
        for commit in self._store.history.first_parents(start):
            if commit.created_at <= latest:
                return commit
        first = format_datetime(commit.created_at // 1000)
        raise self._missing(kind, asked, f"its first commit is of {first}")

    def _by_id(self, text: str, asked: str, kind: str) -> Commit:
        prefix = text.upper()
        if len(text) >= PREFIX_CHARS_MIN and _ID.fullmatch(prefix):
            if len(text) == _ID_CHARS:
                try:
                    return self._store.history.get(prefix)
                except NotFound:
                    raise self._unknown(text, asked, kind) from None
            commits = self._store.history.beginning_with(prefix, _NEAR_MAX + 1)
            if len(commits) == 1:
                return commits[0]
            if commits:
                raise AmbiguousPoint(asked, tuple(c.id for c in commits[:_NEAR_MAX]))
        raise self._unknown(text, asked, kind)

    def _missing(self, kind: str, asked: str, hint: str) -> UnknownPoint:
        return UnknownPoint(kind, asked, hint if self._may_list() else "")

    def _unknown(self, text: str, asked: str, kind: str) -> UnknownPoint:
        near = islice(self._near(text), _NEAR_MAX) if self._may_list() else ()
        return UnknownPoint(kind, asked, "", tuple(near))

    def _near(self, text: str) -> Iterator[str]:
        """Names that resemble a text, then ids that begin like it."""
        if text == "HEAD":  # of Git
            yield MAIN
            return
        names = [*self._store.branches.list(), *self._store.tags.list()]
        lowered = {name.lower(): name for name in names}
        # Of two letters one alike is much: v9 for v1.
        cutoff = 0.5 if len(text) <= _SHORT_CHARS else 0.6
        similar = get_close_matches(text.lower(), lowered, n=_NEAR_MAX, cutoff=cutoff)
        yield from (lowered[name] for name in similar)
        beginning = text.upper()[:PREFIX_CHARS_MIN]
        if _ID.fullmatch(beginning):
            yield from (c.id for c in self._store.history.beginning_with(beginning, _NEAR_MAX))


def _microseconds(moment: str) -> int:
    """The moment in `@{…}`, in microseconds since the epoch; without a zone it is UTC."""
    text = moment.strip()
    try:
        number = parse_datetime(text)
    except ValueError as cause:
        raise BadRequest(
            str(cause), "in @{…}, write a date or a moment such as 2026-11-15T10:00Z"
        ) from None
    finer = datetime.fromisoformat(text.replace("z", "Z"))  # the language cuts at milliseconds
    micros = (finer if finer.tzinfo else finer.replace(tzinfo=UTC)).microsecond % 1000
    return int(number) * 1000 + micros
