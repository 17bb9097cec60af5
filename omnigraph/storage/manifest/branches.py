"""Graph branches, and the Lance branches tables get on their first write there.

Invariant: a graph branch is a Lance branch of `__manifest`, and that ref alone says it exists.
Forks of tables are derived state: made before a write is published, removed after the ref is gone.
A fork no manifest row names is either exactly the branch's base, and used as it is, or a leftover
of a crash or of a deleted branch, and made again under the table's lock.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from omnigraph.errors import (
    AlreadyExists,
    BadRequest,
    InUse,
    NotFound,
    OmnigraphError,
    StorageFailed,
    VersionMismatch,
)
from omnigraph.storage import failpoints
from omnigraph.storage.derived.derived_folder import DerivedFiles
from omnigraph.storage.lance.datasets import Datasets, dataset_folder
from omnigraph.storage.lance.parallel import together
from omnigraph.storage.lance.refs import BRANCH_REFS, Ref
from omnigraph.storage.lance.remote_forks import forked, refs_beside, remove_forks
from omnigraph.storage.lance.tag_refs import TagRefs
from omnigraph.storage.locks.locks import NONE_KEPT, Kept, Locks, hold
from omnigraph.storage.manifest.manifest import Manifest
from omnigraph.storage.manifest.state import LOCATION, State, publish_lock
from omnigraph.storage.names import (
    MAIN,
    RESERVED_BRANCHES,
    checked_branch,
    decode,
    encode,
    lock_name,
    owner_of,
)
from omnigraph.storage.records import Commit, CommitId, TablePin, WriteBase, base_of
from omnigraph.storage.stats import Stats
from omnigraph.types import TableKey

RETENTION_LOCK = lock_name("a-retention", "")
"""Taken first by cleanup, and by those that name a past version, which cleanup must then keep."""

BRANCHES_LOCK = lock_name("branches", "")
BACKUP_LOCK = lock_name("backup", "")


class Branches:
    """The branches of one graph."""

    def __init__(
        self,
        datasets: Datasets,
        tag_refs: TagRefs,
        manifest: Manifest,
        locks: Locks,
        stats: Stats,
        require_writable: Callable[[], None],
        derived: DerivedFiles,
    ) -> None:
        self._require_writable = require_writable
        self._derived = derived
        self._datasets = datasets
        self._tag_refs = tag_refs
        self._manifest = manifest
        self._locks = locks
        self._stats = stats

    def list(self) -> tuple[str, ...]:
        """Every branch, `main` included, sorted by name."""
        names = {decode(segment) for segment in self._datasets.refs(LOCATION)}
        return tuple(sorted({MAIN, *names} - RESERVED_BRANCHES))

    def identity(self, name: str) -> str | None:
        """The incarnation of a branch: another one after it was deleted and created again."""
        return self._manifest.identity(name)

    def starts(self) -> dict[str, int]:
        """Every named branch with the manifest version that it forked from."""
        refs = self._datasets.refs(LOCATION)
        return {decode(segment): ref.parent_version for segment, ref in refs.items()}

    def create(self, name: str, *, source: str = MAIN) -> str:
        """A new branch at the head of another. Copies nothing."""
        name = checked_branch(name)
        self._require_writable()
        with hold(self._locks, [BRANCHES_LOCK]):
            self._require_no_tag(name)
            state = self._manifest.state(source)
            failpoints.hit("branch.create_before")
            made = None
            if self._datasets.is_remote and owner_of(source) is None:
                made = forked(self._datasets, state.handle, LOCATION, name)
            if made is None:
                if self._datasets.ref(LOCATION, name) is not None:
                    raise AlreadyExists("branch", name)
                self._make(LOCATION, name, source=owner_of(source), version=state.version)
                self._datasets.flusher.barrier()
            failpoints.hit("branch.create_after")
            self._manifest.branched(name, state, made)
            self._locks.presume_new(name)
        self._stats.event("branch.created", branch=name, source=source)
        return name

    def create_at(self, name: str, commit: Commit) -> str:
        """A new branch at a commit of any live branch. Copies nothing.

        No cleanup runs meanwhile, so a commit that can be read now stays: the new ref keeps it.
        """
        name = checked_branch(name)
        self._require_writable()
        with hold(self._locks, [RETENTION_LOCK, BRANCHES_LOCK]):
            if self._datasets.ref(LOCATION, name) is not None:
                raise AlreadyExists("branch", name)
            self._require_no_tag(name)
            self._manifest.require_whole(commit)
            failpoints.hit("branch.create_before")
            self._make(LOCATION, name, source=commit.branch, version=commit.manifest_version)
            self._datasets.flusher.barrier()
            failpoints.hit("branch.create_after")
            self._manifest.forget(name)
        self._stats.event("branch.created", branch=name, source=commit.id)
        return name

    def delete(self, name: str, *, expected_head: CommitId | None = None) -> None:
        """Remove a branch no other depends on, while nobody writes to it; with `expected_head` only
        if it is still at that commit."""
        name = name.strip()
        if name == MAIN:
            raise BadRequest("cannot delete branch 'main'")
        self._require_writable()
        state = self._manifest.known(name) or self._manifest.state(name)
        while not self._deleted(name, self._writers_locks(state), expected_head):
            state = self._manifest.state(name)
        self._stats.event("branch.deleted", branch=name)

    def _deleted(self, name: str, tables: set[str], expected_head: CommitId | None) -> bool:
        """Remove a branch under these locks of tables; False when its writers need others too."""
        locks = [*tables, publish_lock(name)]
        with hold(self._locks, [BRANCHES_LOCK, *locks]):
            state = self._manifest.state(name)
            if not self._writers_locks(state) <= tables:
                return False
            state.require({}, expected_head)
            self._require_unused(name)
            failpoints.hit("branch.delete_before")
            if self._datasets.is_remote:
                self._delete_remotely(name, state)
            else:
                self._datasets.delete_branch(LOCATION, name)
                failpoints.hit("branch.ref_gone")
                self._manifest.forget(name)
                self._drop_forks(name, _tables_written(state))
            for pin in state.pins.values():
                if pin.branch == name:
                    self._derived.remove_line(pin)
            # Names of transactions never come again: their locks would pile up.
            self._locks.discard(locks)
        return True

    def _writers_locks(self, state: State) -> set[str]:
        """The locks of tables of which a writer to a branch has one, or the publish lock: who forks
        a table has that from before its sidecar on. Where a lock costs nothing it is all tables."""
        own = (k for k, p in state.pins.items() if p.branch == owner_of(state.branch))
        keys = own if self._datasets.is_remote else state.pins
        return {lock_name(key, state.branch) for key in keys}

    def _delete_remotely(self, name: str, state: State) -> None:
        self._datasets.objects.delete(f"{LOCATION}/{BRANCH_REFS}/{encode(name)}.json")
        failpoints.hit("branch.ref_gone")
        self._manifest.forget(name)
        owned = {pin.location: pin for pin in _tables_written(state) if pin.branch == name}
        try:
            folder = dataset_folder(LOCATION, name)
            left = remove_forks(self._datasets, list(owned), name, also=[folder])
        except OmnigraphError as cause:
            self._stats.event("branch.fork_left", level=logging.WARNING, table="", cause=cause)
        else:
            self._drop_forks(name, (owned[location] for location in left))

    def _require_no_tag(self, name: str) -> None:
        if self._tag_refs.get(LOCATION, name) is not None:
            raise AlreadyExists("tag", name, "a branch would hide it; use another name")

    def _require_unused(self, name: str) -> None:
        segment = encode(name)
        if self._datasets.is_remote:
            names, refs = refs_beside(self._datasets, LOCATION, name)
            read = together([partial(self._tag_refs.get, LOCATION, tag) for tag in names])
            tags = {tag: ref for tag, ref in zip(names, read, strict=True) if ref is not None}
        else:
            tags = self._tag_refs.every(LOCATION)
            refs = self._datasets.refs(LOCATION)
        for tag, tagged in tags.items():
            if tagged.branch == segment:
                raise InUse("branch", name, tag, "tag")
        for other, ref in refs.items():
            if ref.parent_branch == segment:
                raise InUse("branch", name, decode(other))

    def _drop_forks(self, name: str, pins: Iterable[TablePin]) -> None:
        """Best effort: a fork that stays is reclaimed by the next write of a branch of that name,
        or by cleanup."""
        for pin in pins:
            try:
                if pin.branch == name or self._datasets.ref(pin.location, name) is not None:
                    self._datasets.delete_branch(pin.location, name)
            except OmnigraphError as cause:
                self._stats.event(
                    "branch.fork_left", level=logging.WARNING, table=pin.table_key, cause=cause
                )

    # Forks

    def fork(self, state: State, table_key: TableKey, kept: Kept = NONE_KEPT) -> WriteBase:
        """Return the base of a write: the table's version on this branch's own Lance branch, which
        is forked if there is none. `kept` are the locks that the writer holds already."""
        pin = state.pins.get(table_key)
        if pin is None:
            raise NotFound("table", table_key)
        owner = owner_of(state.branch)
        if owner is None or pin.branch == owner:
            return base_of(pin, owner)
        failpoints.hit("fork.before")
        # Of two looks for a fork the one without the lock saves taking it, on a disk, for nothing.
        fork = None if self._datasets.is_remote else self._adopted(pin, owner)
        fork = fork or self._forked(state, pin, kept)
        failpoints.hit("fork.after")
        self._stats.event("branch.forked", table=table_key, branch=owner, version=pin.version)
        return base_of(fork, owner)

    def _adopted(self, pin: TablePin, owner: str) -> TablePin | None:
        """The fork that is there, if it is exactly the base."""
        ref = self._datasets.ref(pin.location, owner)
        if ref is None or not _starts_at(ref, pin):
            return None
        try:
            head = self._datasets.head(pin.location, owner)
        except NotFound:
            return None
        return replace(pin, branch=owner, fork=ref.identity) if head == pin.version else None

    def _forked(self, state: State, pin: TablePin, kept: Kept) -> TablePin:
        """A new fork. Under the table's lock what is in its place is nobody's, and no other writer
        is half-way through making one."""
        owner = state.branch
        with hold(self._locks, [lock_name(pin.table_key, owner)], kept=kept):
            if self._datasets.is_remote and pin.branch is None:
                made = forked(self._datasets, self._datasets.handle(pin), pin.location, owner)
                if made is not None:
                    own = replace(pin, branch=owner, fork=made[1].identity)
                    self._datasets.keep(own, made[0])
                    return own
            now = self._manifest.state(owner).pins.get(pin.table_key)
            if now is None or now.version != pin.version:
                raise VersionMismatch(pin.table_key, pin.version, 0 if now is None else now.version)
            fork = self._adopted(pin, owner)
            if fork is None:
                self._make(pin.location, owner, source=pin.branch, version=pin.version)
                fork = self._adopted(pin, owner)
        if fork is None:
            raise StorageFailed(f"forked {pin.table_key} for {owner}", "the fork does not hold")
        return fork

    def _make(self, location: str, name: str, *, source: str | None, version: int) -> None:
        """Create a Lance branch, over what an unfinished or forgotten one left in its place."""
        try:
            self._datasets.create_branch(location, name, source=source, version=version)
        except (StorageFailed, NotFound, AlreadyExists):
            self._datasets.delete_branch(location, name)
            self._stats.event("branch.leftover_reclaimed", location=location, branch=name)
            self._datasets.create_branch(location, name, source=source, version=version)


def _starts_at(ref: Ref, pin: TablePin) -> bool:
    parent = None if pin.branch is None else encode(pin.branch)
    return ref.parent_branch == parent and ref.parent_version == pin.version


def _tables_written(state: State) -> Iterator[TablePin]:
    """The tables of a branch, and those that it ended, which are its own up to there."""
    yield from state.pins.values()
    visible = {pin.location for pin in state.pins.values()}
    for ended in state.tombstones:
        if ended.branch == state.branch and ended.location not in visible:
            yield TablePin(ended.table_key, ended.location, ended.version, ended.branch)
