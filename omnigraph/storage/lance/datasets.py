"""Lance dataset handles of one graph: opened, kept in an LRU, committed through, branched.

Invariant: every call into Lance passes `lance_call`, which counts it and translates Lance's errors
into ours, so no other module reads an error text of Lance. A handle is pinned to one version for
its whole life, and a branch is only ever reached through a handle opened below its own `tree/`
folder: committing a branch's transaction through the root would silently change main.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import lance
import pyarrow as pa
from lance.commit import CommitConflictError
from lance.dataset import Transaction
from lance.fragment import LanceFragment, write_fragments
from lance.lance import _Session as Session

from omnigraph import environment
from omnigraph.costs import COSTS
from omnigraph.errors import AlreadyExists, InUse, NotFound, Reclaimed, StorageFailed
from omnigraph.lru import Lru
from omnigraph.storage.lance.base_paths import Homes, version_file
from omnigraph.storage.lance.parallel import both
from omnigraph.storage.lance.refs import (
    BRANCH_REFS,
    ForkRefs,
    Ref,
    TornRef,
    listed_ref,
    read_ref,
    read_refs,
    whole_refs,
)
from omnigraph.storage.lance.root_handles import RootHandles
from omnigraph.storage.lance.strict_commit import StrictCommits
from omnigraph.storage.lance.version_files import newest_whole, versions_since
from omnigraph.storage.names import decode, encode
from omnigraph.storage.objects import Objects, Root
from omnigraph.storage.records import DATASET, TablePin
from omnigraph.storage.stats import Stats

Handle = lance.LanceDataset
_VersionKey = tuple[str, str, str, int]

OPERATION_PROPERTY = "omnigraph:operation"
_LOCAL_BLOCK_BYTES = 32 << 10
"""Rows that lie closer than this are read at once. Lance's own 4 KiB for disks reads scattered rows
of a table one by one: a thousand of 100,000 with embeddings take 22 ms, with this 14."""
_PANIC = "PanicException"
"""The name of what a panic of Rust raises: not an `Exception`, and of no module."""


class CommitRaced(Exception):
    """Commit conflict: another commit came first. Nothing of this one is durable."""


class VersionTaken(CommitRaced):
    """The commit that a compare-and-swap refused: the table's head had moved before."""


class Datasets:
    """The datasets below one graph's root. Safe to share between threads."""

    def __init__(self, where: Root, objects: Objects, stats: Stats) -> None:
        self._where = where
        self.objects = objects
        self.flusher = objects.flusher
        self.is_remote = not where.is_local
        """Whether every call goes to an object store, where each takes its time."""
        self._stats = stats
        # Every commit adds what Lance knows of its version, for which it would take a gigabyte.
        self._session = Session(metadata_cache_size_bytes=environment.METADATA_CACHE.read())
        self._homes = Homes(where)
        self.strict = StrictCommits(where, objects, self._session)
        self.is_wary = False
        """Whether the newest versions may be torn: the machine was restarted, and nothing was
        opened for writing since."""
        self._handles: Lru[_VersionKey, Handle] = Lru(COSTS.handles_max)
        self._roots = RootHandles(partial(self.open, branching=True))
        self.fork_refs = ForkRefs(objects, keeps=self.is_remote)

    # Opening

    def uri(self, location: str, branch: str | None) -> str:
        """The URI of a dataset, or of its branch."""
        root = self._where.join(location)
        return root if branch is None else f"{root}/tree/{encode(branch)}"

    def folder(self, pin: TablePin) -> str:
        """Where the files of a pin's branch lie, below the root."""
        return dataset_folder(pin.location, pin.branch)

    def open(
        self,
        location: str,
        branch: str | None = None,
        version: int | None = None,
        *,
        branching: bool = False,
    ) -> Handle:
        """A new handle, pinned to a version or to the latest one. With `branching` it is only for
        listing, making and deleting branches."""
        uri = self._where.branching(location) if branching else self.uri(location, branch)
        if version is None and self.is_wary and self._where.path is not None:
            folder = dataset_folder(location, branch)
            version = newest_whole(self._where.path, folder, self.objects)
        with self.lance_call("open", f"{location} on {branch or 'main'}"):
            handle = lance.dataset(
                uri,
                version=version,
                block_size=None if self.is_remote else _LOCAL_BLOCK_BYTES,
                storage_options=self._where.storage_options,
                session=self._session,
            )
        if branch is not None:
            self._homes.require(location, handle.base_paths().values())
        return handle

    def handle(self, pin: TablePin) -> Handle:
        """The handle of a published version, opened at most once while it is in use."""
        handle = self._handles.get(_version_key(pin))
        if handle is not None:
            return handle
        handle = self.own(pin)
        self.keep(pin, handle)
        return handle

    def remove(self, location: str) -> None:
        """Remove a dataset's folder."""
        self.forget(location)
        self.objects.delete_prefix(location)

    def own(self, pin: TablePin) -> Handle:
        """Open a handle that is not shared: building an index locks other threads out of its
        handle. Raises `Reclaimed` if the version is gone, also when its branch was deleted and
        another of its name has a version of that number."""
        opened = partial(self.open, pin.location, pin.branch, pin.version)
        try:
            if pin.branch is None or not pin.fork:
                return opened()
            ref = partial(self.ref, pin.location, pin.branch)
            handle, now = both(opened, ref) if self.is_remote else (opened(), ref())
        except NotFound as cause:
            raise Reclaimed("version", f"{pin.version} of {pin.table_key}") from cause
        if now is None or now.identity != pin.fork:
            raise Reclaimed("version", f"{pin.version} of {pin.table_key}", pin.branch)
        return handle

    def keep(self, pin: TablePin, handle: Handle) -> None:
        """Remember the handle of a version this process wrote or opened."""
        self._handles.put(_version_key(pin), handle)

    def forget(self, location: str) -> None:
        """Forget the handles of one dataset."""
        self._handles.discard(lambda key: key[0] == location)
        self._roots.forget(location)

    def close(self) -> None:
        """Forget every handle."""
        self._handles.clear()
        self._roots.clear()
        self.fork_refs.clear()
        self._homes.clear()

    # Versions

    def latest_version(
        self, location: str, branch: str | None, known: int, *, counts: bool = False
    ) -> int:
        """The head of a dataset or branch whose version `known` was seen.

        Versions are named by number and leave no gap, so one look for the next name tells that
        nothing happened. Lance would list every version there is. With `counts` none of the later
        ones can have been removed yet, so on local disk they are counted up too.
        """
        folder = f"{dataset_folder(location, branch)}/_versions"
        names = f"{folder}/{version_file(known)}", f"{folder}/{version_file(known + 1)}"
        if self.objects.is_newest(*names):
            return known
        more = 0
        if counts and self._where.path is not None and not self.is_wary:
            more = versions_since(self._where.path / dataset_folder(location, branch), known)
        return known + more if more else self.head(location, branch)

    def head(self, location: str, branch: str | None) -> int:
        """The head of a dataset or branch, by opening it."""
        return int(self.open(location, branch).version)

    # Writing

    def create(self, location: str, rows: pa.Table, *, replace: bool = False) -> Handle:
        """A new dataset with stable row ids; of two creators one gets `AlreadyExists`."""
        with self.lance_call("create", location):
            return lance.write_dataset(
                rows,
                self._where.join(location),
                mode="overwrite" if replace else "create",
                enable_stable_row_ids=True,
                storage_options=self._where.storage_options,
            )

    def create_named_last(self, location: str, rows: pa.Table) -> Handle:
        """A new dataset whose first version is named once its rows are on disk, so that a power cut
        leaves the whole dataset or none."""
        if not self.flusher.is_on:
            return self.create(location, rows)
        uri = self._where.join(location)
        with self.lance_call("create", location):
            staged = write_fragments(
                rows, uri, mode="create", return_transaction=True, enable_stable_row_ids=True
            )
        self.flusher.owe_below(location)
        self.flusher.barrier()
        with self.lance_call("create", location):
            return lance.LanceDataset.commit(uri, staged, max_retries=0, enable_stable_row_ids=True)

    def commit(
        self, handle: Handle, transaction: Transaction, *, seen_at: float | None = None
    ) -> Handle:
        """Commit through exactly the handle it was staged on, without a retry by Lance. `seen_at`
        is the moment at which the version of the handle was seen to be the head."""
        with self.lance_call("commit", handle.uri):
            base = self.strict.base(handle) if self.strict.serves(transaction, seen_at) else None
            if base is None:
                return lance.LanceDataset.commit(handle, transaction, max_retries=0)
            made = self.strict.commit(handle, base, transaction)
        if made is None:
            raise VersionTaken(f"{handle.uri} has a version after {handle.version}")
        return made

    # Branches

    def refs(self, location: str) -> dict[str, Ref]:
        """Every Lance branch of a dataset, by its encoded name."""
        if self.is_wary:
            refs = whole_refs(self.objects, location)
            return {
                name: ref
                for name, ref in refs.items()
                if _is_begun(self._where, self.objects, location, name)
            }
        try:
            with self._roots.taken(location) as root, self.lance_call("list_branches", location):
                listed: dict[str, Any] = dict(root.branches.list())
        except NotFound:
            # Lance lists names and then reads each; one that was deleted in between fails it.
            return read_refs(self.objects, location)
        return {name: listed_ref(facts) for name, facts in listed.items()}

    def ref(self, location: str, branch: str) -> Ref | None:
        """One Lance branch, by one small read: listing would read them all."""
        try:
            ref = read_ref(self.objects, location, branch)
        except TornRef:
            if self.is_wary:
                return None
            raise
        is_torn = (
            self.is_wary
            and ref is not None
            and not _is_begun(self._where, self.objects, location, encode(branch))
        )
        return None if is_torn else ref

    def create_branch(
        self, location: str, branch: str, *, source: str | None, version: int
    ) -> None:
        """A Lance branch that starts at a version of the dataset or of another branch."""
        self._where.require_branchable()
        start = (None if source is None else encode(source), version)
        with (
            self._roots.taken(location) as root,
            self.lance_call("create_branch", f"{location} {branch}"),
        ):
            root.create_branch(encode(branch), start, self._where.storage_options)
        folder = dataset_folder(location, branch)
        ref = f"{location}/{BRANCH_REFS}/{encode(branch)}.json"
        self.flusher.owe([ref, f"{folder}/_versions/{version_file(version)}"])

    def delete_branch(self, location: str, branch: str) -> None:
        """Remove a Lance branch and whatever an unfinished creation of it left behind.

        Its name goes first: Lance would remove name and files together, and a power cut may bring
        the one back without the others.
        """
        segment = encode(branch)
        if self.ref(location, branch) is not None:
            for other, ref in self.refs(location).items():
                if ref.parent_branch == segment:
                    raise InUse("branch", branch, decode(other))
        self.objects.delete(f"{location}/{BRANCH_REFS}/{segment}.json")
        self.flusher.owe([f"{location}/{BRANCH_REFS}"])
        self.flusher.barrier()
        self.objects.delete_prefix(f"{location}/tree/{segment}")

    # The one place Lance is called from

    @contextmanager
    def lance_call(self, name: str, subject: str) -> Iterator[None]:
        """Count a call into Lance and translate what it raises."""
        self._stats.call(f"lance.{name}")
        try:
            with no_panic(name, subject):
                yield
        except CommitConflictError as cause:
            raise CommitRaced(str(cause)) from cause
        except (OSError, ValueError, RuntimeError) as cause:
            raise _translated(name, subject, cause) from cause


@contextmanager
def no_panic(name: str, subject: str) -> Iterator[None]:
    """Translate a panic of Lance, over bytes that it takes for its own and makes no sense of."""
    try:
        yield
    except BaseException as cause:
        if type(cause).__name__ != _PANIC:
            raise
        raise _translated(name, subject, cause) from cause


def has_version(datasets: Datasets, pin: TablePin) -> bool:
    """Whether a published version is on disk, by one look."""
    return datasets.objects.has(f"{datasets.folder(pin)}/_versions/{version_file(pin.version)}")


def create_or_replace(datasets: Datasets, location: str, rows: pa.Table) -> Handle:
    """A new dataset, in place of one that an unfinished init left behind."""
    try:
        return datasets.create(location, rows)
    except AlreadyExists:
        return datasets.create(location, rows, replace=True)


def files_of(fragment: LanceFragment) -> tuple[str, ...]:
    """The files of a fragment, which identify it: a fragment id may be used again after a
    restore."""
    # Lance makes a new class whenever `path` is asked for, which takes longer than all the rest.
    return tuple(file._path for file in fragment.metadata.files)


def _version_key(pin: TablePin) -> _VersionKey:
    return pin.location, pin.branch or "", pin.fork, pin.version


def _is_begun(where: Root, objects: Objects, location: str, segment: str) -> bool:
    """Whether a branch has a version that no power cut tore."""
    folder = f"{location}/tree/{segment}"
    return where.path is not None and newest_whole(where.path, folder, objects) is not None


def dataset_folder(location: str, branch: str | None) -> str:
    """Where the files of a dataset, or of its branch, lie below the root."""
    return location if branch is None else f"{location}/tree/{encode(branch)}"


# Only the last folders of a path tell: a graph may lie below a folder called `data` too.
_FILE = (
    r"/(data/\w+(\.lance|/\w+\.blob)|_deletions/\d+-\d+-\d+\.(arrow|bin)"
    r"|_indices/[0-9a-f-]{36}/\w+\.\w+)"
)
_MISSING_FILE = rf"(?is)not found.*{_FILE}(?![\w/])"  # compiled by who has an error to explain


def _translated(name: str, subject: str, cause: BaseException) -> Exception:
    text = str(cause)
    if re.search(_MISSING_FILE, text):
        return Reclaimed("data", f"that {name} of {subject} reads")
    if "was not found" in text or "Not found: " in text:
        return NotFound(DATASET, subject, "it was never written, or cleanup reclaimed it")
    if "already exists" in text:
        return AlreadyExists(DATASET, subject)
    return StorageFailed(f"ran {name} on {subject}", text.split(", /")[0])
