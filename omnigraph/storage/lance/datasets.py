"""Lance datasets of one graph: opened, looked at, committed, branched.

Invariant: every call into Lance passes `lance_call`, which counts it and turns Lance's errors into
ours, so no other module reads an error text of Lance. A handle is pinned to one version for its
whole life, and a branch is only ever reached through a handle opened below its own `tree/` folder:
committing a branch's transaction through the root would silently change main.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePosixPath
from threading import Lock
from typing import Any, NewType

import lance
import orjson
import pyarrow as pa
from lance.commit import CommitConflictError
from lance.dataset import Transaction
from lance.fragment import LanceFragment
from lance.lance import _Session as Session

from omnigraph.errors import AlreadyExists, NotFound, Reclaimed, StorageFailed
from omnigraph.storage.names import encode
from omnigraph.storage.objects import Objects, Root
from omnigraph.storage.records import DATASET, TablePin
from omnigraph.storage.stats import Stats

Handle = lance.LanceDataset
ForkId = NewType("ForkId", str)

OPERATION_PROPERTY = "omnigraph:operation"
_HANDLES_MAX = 512
_NEVER = timedelta(days=36_500)


class CommitRaced(Exception):
    """Another commit came first. Nothing of this one is durable."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A Lance branch: the point it starts from, and its identity."""

    parent_branch: str | None  # as Lance names it
    parent_version: int
    identity: ForkId
    created_at: float  # seconds since the epoch


class Datasets:
    """The datasets below one graph's root."""

    def __init__(self, where: Root, objects: Objects, stats: Stats) -> None:
        self._where = where
        self._objects = objects
        self._stats = stats
        self._session = Session()
        self._handles: OrderedDict[tuple[str, str, str, int], Handle] = OrderedDict()
        self._turn = Lock()

    # Opening

    def address(self, location: str, branch: str | None) -> str:
        """Where a dataset, or its branch, lives."""
        root = self._where.join(location)
        return root if branch is None else f"{root}/tree/{encode(branch)}"

    def folder(self, pin: TablePin) -> str:
        """Where the files of a pin's branch lie, below the root."""
        return _folder(pin.location, pin.branch)

    def open(self, location: str, branch: str | None = None, version: int | None = None) -> Handle:
        """A new handle, pinned to a version or to the latest one."""
        with self.lance_call("open", f"{location} on {branch or 'main'}"):
            return lance.dataset(
                self.address(location, branch),
                version=version,
                storage_options=self._where.storage_options,
                session=self._session,
            )

    def at(self, pin: TablePin) -> Handle:
        """The handle of a published version, opened at most once while it is in use."""
        key = (pin.location, pin.branch or "", pin.fork, pin.version)
        with self._turn:
            handle = self._handles.get(key)
            if handle is not None:
                self._handles.move_to_end(key)
                return handle
        try:
            handle = self.open(pin.location, pin.branch, pin.version)
        except NotFound as cause:
            raise Reclaimed("version", f"{pin.version} of {pin.table_key}") from cause
        self.keep(pin, handle)
        return handle

    def own(self, pin: TablePin) -> Handle:
        """A handle nobody else has: building an index locks other threads out of its handle."""
        return self.open(pin.location, pin.branch, pin.version)

    def keep(self, pin: TablePin, handle: Handle) -> None:
        """Remember the handle of a version this process wrote or opened."""
        with self._turn:
            self._handles[(pin.location, pin.branch or "", pin.fork, pin.version)] = handle
            while len(self._handles) > _HANDLES_MAX:
                self._handles.popitem(last=False)

    def forget(self, location: str) -> None:
        """Forget the handles of one dataset."""
        with self._turn:
            for key in [key for key in self._handles if key[0] == location]:
                del self._handles[key]

    def close(self) -> None:
        """Forget every handle."""
        with self._turn:
            self._handles.clear()

    # Versions

    def latest_version(self, location: str, branch: str | None, known: int) -> int:
        """The head of a dataset or branch whose version `known` was seen.

        Versions are named by number and leave no gap, so one look for the next name tells that
        nothing happened. Lance would list every version there is.
        """
        folder = _folder(location, branch)
        if not self._objects.has(f"{folder}/_versions/{version_file(known + 1)}"):
            return known
        return self.head(location, branch)

    def head(self, location: str, branch: str | None) -> int:
        """The head of a dataset or branch no handle is at hand for."""
        return int(self.open(location, branch).version)

    def operation_of(self, handle: Handle, version: int) -> str | None:
        """The operation that wrote a version, if it was one of ours."""
        with self.lance_call("read_transaction", handle.uri):
            found = handle.read_transaction(version)
        return (
            None if found is None else (found.transaction_properties or {}).get(OPERATION_PROPERTY)
        )

    def operations(self, pin: TablePin, head: int) -> tuple[str, ...]:
        """What Lance did in each version after a pin, up to a head."""
        handle = self.open(pin.location, pin.branch, head)
        names = []
        for version in range(pin.version + 1, head + 1):
            with self.lance_call("read_transaction", handle.uri):
                names.append(_operation_name(handle, version))
        return tuple(names)

    # Reclaiming

    def versions(self, location: str, branch: str | None) -> list[int]:
        """Every version that is there, the oldest first. A branch's list starts where it forked."""
        handle = self.open(location, branch)
        with self.lance_call("versions", location):
            return sorted(int(each["version"]) for each in handle.version_refs())

    def reclaim(
        self, location: str, branch: str | None, versions: list[int], *, confirm: bool
    ) -> tuple[int, int, int]:
        """Remove versions and the files that only they name, and files that no version has named
        for long; or only count: versions, bytes, files."""
        handle = self.open(location, branch)
        which: dict[str, Any] = {"versions": versions} if versions else {"older_than": _NEVER}
        with self.lance_call("reclaim", location):
            if confirm:
                done = handle.cleanup_old_versions(error_if_tagged_old_versions=False, **which)
            else:
                done = handle.explain_cleanup_old_versions(
                    error_if_tagged_old_versions=False, **which
                ).stats
        files = done.data_files_removed + done.index_files_removed + done.deletion_files_removed
        return int(done.old_versions), int(done.bytes_removed), int(files)

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

    def create_or_replace(self, location: str, rows: pa.Table) -> Handle:
        """A new dataset, in place of one that an unfinished init left behind."""
        try:
            return self.create(location, rows)
        except AlreadyExists:
            return self.create(location, rows, replace=True)

    def commit(self, handle: Handle, transaction: Transaction) -> Handle:
        """Commit through exactly the handle it was staged on, without a retry by Lance."""
        with self.lance_call("commit", handle.uri):
            return lance.LanceDataset.commit(handle, transaction, max_retries=0)

    # Branches

    def refs(self, location: str) -> dict[str, Ref]:
        """Every Lance branch of a dataset, by its encoded name."""
        try:
            with self.lance_call("list_branches", location):
                found: dict[str, Any] = dict(self.open(location).branches.list())
        except NotFound:
            # Lance lists names and then reads each; one that was deleted in between fails it.
            return self._refs_one_by_one(location)
        return {
            name: Ref(
                facts["parent_branch"],
                int(facts["parent_version"]),
                ForkId(facts["branch_identifier"][-1][1]),
                float(facts["create_at"]),
            )
            for name, facts in found.items()
        }

    def _refs_one_by_one(self, location: str) -> dict[str, Ref]:
        paths = self._objects.list(f"{location}/_refs/branches")
        refs = {PurePosixPath(path).stem: self._read_ref(path) for path in paths}
        return {name: ref for name, ref in refs.items() if ref is not None}

    def ref(self, location: str, branch: str) -> Ref | None:
        """One Lance branch, by one small read: listing would read them all."""
        return self._read_ref(f"{location}/_refs/branches/{encode(branch)}.json")

    def _read_ref(self, path: str) -> Ref | None:
        found = self._objects.get(path)
        if found is None:
            return None
        facts = orjson.loads(found.data)
        identity = facts["identifier"]["version_mapping"][-1][1]
        return Ref(
            facts["parentBranch"],
            int(facts["parentVersion"]),
            ForkId(identity),
            float(facts["createAt"]),
        )

    def create_branch(
        self, location: str, branch: str, *, source: str | None, version: int
    ) -> None:
        """A Lance branch that starts at a version of the dataset or of another branch."""
        start = (None if source is None else encode(source), version)
        root = self.open(location)
        with self.lance_call("create_branch", f"{location} {branch}"):
            root.create_branch(encode(branch), start, self._where.storage_options)

    def delete_branch(self, location: str, branch: str) -> None:
        """Remove a Lance branch and whatever an unfinished creation of it left behind."""
        root = self.open(location)
        if self.ref(location, branch) is not None:
            with self.lance_call("delete_branch", f"{location} {branch}"):
                root.branches.delete(encode(branch))
        self._objects.delete_prefix(f"{location}/tree/{encode(branch)}")

    # The one place Lance is called from

    @contextmanager
    def lance_call(self, name: str, subject: str) -> Iterator[None]:
        """Count a call into Lance and translate what it raises."""
        self._stats.call(f"lance.{name}")
        try:
            yield
        except CommitConflictError as cause:
            raise CommitRaced(str(cause)) from cause
        except (OSError, ValueError, RuntimeError) as cause:
            raise _translated(name, subject, cause) from cause


def files_of(fragment: LanceFragment) -> tuple[str, ...]:
    """The files of a fragment, which tell fragments apart: their numbers come again after a
    restore."""
    # Lance makes a new class whenever `path` is asked for, which takes longer than all the rest.
    return tuple(file._path for file in fragment.metadata.files)


def _folder(location: str, branch: str | None) -> str:
    return location if branch is None else f"{location}/tree/{encode(branch)}"


def version_file(version: int) -> str:
    """The name of a version's file: numbers count down, so that the newest is listed first."""
    return f"{2**64 - 1 - version:020d}.manifest"


def _operation_name(handle: Handle, version: int) -> str:
    try:
        found = handle.read_transaction(version)
    except TypeError:
        # Lance cannot show a rewrite that moved indexes along, and fails at nothing else.
        return "Rewrite"
    if found is None:
        raise OSError(f"version {version} has no transaction")
    name = type(found.operation).__name__
    # The only operation of upkeep that Lance gives no name of its own.
    return "ReserveFragments" if name == "BaseOperation" else name


# Files are told by their names: a graph may lie anywhere, below a folder called `data` too.
_FILE = r"/(data/\w+\.lance|_deletions/\d+-\d+-\d+\.(arrow|bin)|_indices/[0-9a-f-]{36}/\w+\.\w+)"
_MISSING_FILE = re.compile(rf"not found.*{_FILE}(?![\w/])", re.I | re.S)


def _translated(name: str, subject: str, cause: Exception) -> Exception:
    text = str(cause)
    if _MISSING_FILE.search(text):
        return Reclaimed("data", f"that {name} of {subject} reads")
    if "was not found" in text or "Not found: " in text:
        return NotFound(DATASET, subject, "it was never written, or cleanup reclaimed it")
    if "already exists" in text:
        return AlreadyExists(DATASET, subject)
    return StorageFailed(f"ran {name} on {subject}", text.split(", /")[0])
