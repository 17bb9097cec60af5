"""`__manifest`: the states of every branch that this process has seen, and snapshots of them.

Invariant: a refresh costs what was published since, and nothing but a version check when nothing
was. A writer that looks under its locks anyway whether its base is current may begin at a recent
state and spare the first look; its publisher builds on that second look.
"""

import math
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock

from omnigraph.costs import COSTS
from omnigraph.errors import NotFound, Reclaimed
from omnigraph.lru import Lru
from omnigraph.storage import stamp
from omnigraph.storage.lance.datasets import Datasets, Handle, has_version
from omnigraph.storage.lance.parallel import both
from omnigraph.storage.lance.refs import ForkId, Ref
from omnigraph.storage.lance.strict_commit import now_s
from omnigraph.storage.lance.tag_refs import TagRefs
from omnigraph.storage.manifest.state import LOCATION, State, read_state
from omnigraph.storage.manifest.state_copies import StateCopies
from omnigraph.storage.names import MAIN, POINT_MARKS, owner_of
from omnigraph.storage.records import Commit, Snapshot

RECLAIM_AGE_S = 120.0
"""Cleanup removes no version, of the manifest or of a table, that was published or replaced more
recently. Processes that look at least twice as often rely on it: they take the absence of the next
version for the proof that nothing happened, and Lance takes the versions between two commits for
the proof that they do not conflict."""

RECENT_S = 5.0
"""How long a state may be built on without a look, and how long to look after others published."""


def _is_ulid(name: str) -> bool:
    return len(name) == 26 and name.isascii() and name.isalnum() and name.isupper()


class Manifest:
    """The manifest of one graph, on all its branches."""

    def __init__(
        self, uri: str, datasets: Datasets, tag_refs: TagRefs, copies: StateCopies | None = None
    ) -> None:
        self._uri = uri
        self._datasets = datasets
        self._tag_refs = tag_refs
        self._copies = copies
        self._states: dict[str, State] = {}
        self._looked: dict[str, float] = {}  # when this process last saw a branch
        self._shared: dict[
            str, tuple[float, State]
        ] = {}  # the last look: when it began, `monotonic`
        self._contested: dict[str, float] = {}  # when it last saw that others publish there too
        self._snapshots: dict[str, tuple[State, Snapshot]] = {}
        self._past: Lru[str, State] = Lru(COSTS.past_states_max)
        self._turn = Lock()

    # Reading

    def state(self, branch: str, *, own: bool = False, since: float | None = None) -> State:
        """The branch as it is now. What is new is this process's `own` work, or that of others. For
        a read that was asked for at `since`, a look that began later is new enough: it saw all that
        was published before."""
        shared = self._shared.get(branch) if since is not None else None
        if since is not None and shared is not None and shared[0] >= since:
            return shared[1]
        began = time.monotonic()
        state = self._state_now(branch, self._states.get(branch), own=own)
        self._shared[branch] = began, state
        return state

    def _state_now(self, branch: str, known: State | None, *, own: bool) -> State:
        # A version that this process has not seen is there for `RECLAIM_AGE_S` at least, so
        # versions can be counted up from the one it knows.
        counts = now_s() - self._looked.get(branch, -math.inf) <= RECLAIM_AGE_S / 2
        identity, version = _looked_at(self, self._datasets, branch, known, counts=counts)
        if known is not None and known.identity != identity:
            known = version = None
        if known is not None:
            if version == known.version and counts:
                self._looked[branch] = now_s()
                return known
            version = None if version == known.version else version
        with self.reading(branch, identity):
            handle = self._datasets.open(LOCATION, owner_of(branch), version)
            if known is not None and int(handle.version) == known.version:
                self._looked[branch] = now_s()
                return known
            state = self._read(branch, identity, handle, known)
        self._remember(state)
        self._looked[branch] = now_s()
        if known is not None and not own:
            self._contested[branch] = now_s()
        return state

    def recent(self, branch: str) -> State:
        """The branch as this process saw it a moment ago, if it seemed to be the only publisher;
        else as it is now. Only for callers whose commit fails when the state was overtaken."""
        known, now = self._states.get(branch), now_s()
        looked = self._looked.get(branch, -math.inf)
        contested = self._contested.get(branch, -math.inf)
        if known is None or now - looked > RECENT_S or now - contested <= RECENT_S:
            return self.state(branch)
        return known

    def seen_at(self, state: State) -> float | None:
        """When a state was last seen to be the newest of its branch, if it is the one known."""
        is_known = self._states.get(state.branch) is state
        return self._looked.get(state.branch) if is_known else None

    def known(self, branch: str) -> State | None:
        """The branch as this process last saw it, without a look."""
        return self._states.get(branch)

    def branched(self, branch: str, source: State, made: tuple[Handle, Ref] | None = None) -> None:
        """A branch was created at a state of another, and shows what that shows. `made` is what its
        creator knows of it."""
        self.forget(branch)
        if made is None:
            handle = self._datasets.open(LOCATION, branch, source.version)
            identity = self.identity(branch)
        else:
            handle, identity = made[0], made[1].identity
        self.published(replace(source, branch=branch, identity=identity, handle=handle))

    def _remember(self, state: State) -> None:
        """Keep the newest state of a branch; threads that read at once may finish in any order."""
        with self._turn:
            known = self._states.get(state.branch)
            if known is None or known.identity != state.identity or known.version <= state.version:
                self._states[state.branch] = state

    def identity(self, branch: str) -> ForkId | None:
        """The incarnation of a branch: None for main, `NotFound` when there is no such branch."""
        if branch == MAIN:
            return None
        ref = self._datasets.ref(LOCATION, branch)
        if ref is None:
            raise NotFound("branch", branch, _point_hint(self._tag_refs, branch))
        return ref.identity

    @contextmanager
    def reading(self, branch: str, identity: ForkId | None) -> Iterator[None]:
        """Say of a branch that was deleted while it was read that there is none."""
        try:
            yield
        except (NotFound, Reclaimed) as cause:
            try:
                is_there = self.identity(branch) == identity
            except NotFound:
                is_there = False
            if is_there:
                raise
            raise NotFound("branch", branch, "it was deleted meanwhile") from cause

    def snapshot(self, state: State) -> Snapshot:
        """What a read of this state sees: of one state always the same value."""
        known = self._snapshots.get(state.branch)
        if known is None or known[0] is not state:
            known = self._snapshots[state.branch] = (state, self._snapshot(state))
        return known[1]

    def _snapshot(self, state: State) -> Snapshot:
        return Snapshot(
            branch=state.branch,
            commit_id=state.head,
            manifest_version=state.version,
            internal_schema_version=stamp.read(state.handle.schema, uri=self._uri),
            tables=dict(state.pins),
            schema=state.schema,
            embedded=state.embedded,
        )

    def at_commit(self, commit: Commit) -> Snapshot:
        """Return what a read at a past commit sees. Raises `Reclaimed` if it is gone, also when
        its branch was deleted and another of its name has a version of that number."""
        try:
            handle = self._datasets.open(LOCATION, commit.branch, commit.manifest_version)
        except NotFound as cause:
            raise Reclaimed("commit", commit.id) from cause
        state = self._past_state(commit, handle)
        if state.head != commit.id:
            raise Reclaimed("commit", commit.id)
        return replace(self._snapshot(state), commit_id=commit.id)

    def require_whole(self, commit: Commit) -> None:
        """Pass if a past commit can be read: its version of the manifest and of every table. A
        cleanup that was stopped may have removed a part."""
        for pin in self.at_commit(commit).tables.values():
            if not has_version(self._datasets, pin):
                raise Reclaimed("commit", commit.id)

    def _past_state(self, commit: Commit, handle: Handle) -> State:
        """A branch as it was, read from an earlier state of it that was read before: a walk through
        history commit by commit reads what each of them added."""
        branch = commit.branch or MAIN
        identity = self.identity(branch)
        known = self._past.get(branch)
        if known is None or known.identity != identity or known.version > int(handle.version):
            known = None
        state = self._read(branch, identity, handle, known)
        self._past.put(branch, state)
        return state

    def _read(
        self, branch: str, identity: ForkId | None, handle: Handle, known: State | None
    ) -> State:
        return read_state(
            self._datasets,
            handle,
            branch=branch,
            identity=identity,
            known=known,
            uri=self._uri,
            copies=self._copies,
        )

    def published(self, state: State) -> None:
        """Remember a state that this process just published."""
        self._looked[state.branch] = now_s()
        self._remember(state)

    def leave_checkpoint(self, *, commits: int | None = None) -> None:
        """Leave the state of main for machines that never read the graph, if the one that is there
        lacks so many commits, or as many as a threshold."""
        if self._copies is not None:
            self._copies.leave(self._states.get(MAIN), commits=commits)

    def close(self, *, but: Collection[str] = ()) -> None:
        """Drop everything remembered, but that of these branches."""
        with self._turn:
            looks = (self._looked, self._shared, self._contested)
            for each in (self._states, self._snapshots, *looks):
                for branch in set(each).difference(but):
                    each.pop(branch, None)
            self._past.discard(lambda branch: branch not in but)

    def forget(self, branch: str) -> None:
        """Drop what is remembered of a branch."""
        with self._turn:
            self._states.pop(branch, None)
            self._looked.pop(branch, None)
            self._shared.pop(branch, None)
            self._contested.pop(branch, None)
            self._snapshots.pop(branch, None)
            self._past.pop(branch)


def _point_hint(tag_refs: TagRefs, name: str) -> str:
    """Advice for a caller that needs a branch and was given a point in time."""
    is_point = any(mark in name for mark in POINT_MARKS) or _is_ulid(name)
    if not is_point and tag_refs.get(LOCATION, name) is None:
        return ""
    return (
        "it is a point in time, and this needs a branch: make one with "
        f"`omnigraph branch create NAME --from {name}`"
    )


def _looked_at(
    manifest: Manifest, datasets: Datasets, branch: str, known: State | None, *, counts: bool
) -> tuple[ForkId | None, int | None]:
    """The incarnation of a branch, and its version where one is known to count from."""
    if known is None:
        return manifest.identity(branch), None
    owner = owner_of(branch)
    version = partial(datasets.latest_version, LOCATION, owner, known.version, counts=counts)
    try:
        if branch != MAIN and datasets.is_remote:
            return both(partial(manifest.identity, branch), version)
        identity = manifest.identity(branch)
        return identity, version() if known.identity == identity else None
    except (NotFound, Reclaimed):
        with manifest.reading(branch, known.identity):
            raise
