"""Fast path of: Lance's own commit — compare-and-swap on an object store, by one conditional put.

Lance lists the versions, writes a transaction file and puts the version: three calls, and it
rebases over what it lists. Here Lance makes the same commit in a scratch folder that holds nothing
but the version it builds on, and the version file it wrote there is put beside the others unless
there is one of that number. A branch is made in the same way.

Reference: `Datasets.commit`, which calls `LanceDataset.commit`.
Held equal by: `test_versions_are_those_that_lance_would_have_made`.
Falls back: on local disk, for operations that change more than rows, for branches of branches, when
the file of the base is gone, and when the base was seen to be the head too long ago.

Invariant: the version that is made follows the one it was staged on, or nothing is made. The caller
has seen, no longer than `SEEN_MAX_S` ago, that this one was the head: a number that cleanup freed
would seem unused. The file holds its transaction, so nothing misses the one that is not written.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import lance
import pyarrow as pa
from lance.dataset import LanceOperation, Transaction
from lance.fragment import FragmentMetadata, LanceFragment
from lance.lance import _Session as Session

from omnigraph.storage.lance.base_paths import cloned, version_file
from omnigraph.storage.lance.refs import BRANCH_REFS
from omnigraph.storage.names import encode
from omnigraph.storage.objects import Objects, Root, StorageOptions

SEEN_MAX_S = 30.0
_PLAIN = (LanceOperation.Append, LanceOperation.Update, LanceOperation.Delete)


def now_s() -> float:
    """A clock that only counts up, also while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class FreshHandle(lance.LanceDataset):
    """A version that this process has just committed, known by heart: its schema, its fragments and
    its number. It is opened at the first read of rows, by one call."""

    def __init__(
        self,
        uri: str,
        known: lance.LanceDataset,
        data: bytes,
        writer: lance.LanceDataset | None,
        storage_options: StorageOptions | None,
        session: Session,
    ) -> None:
        self.known = known
        self.data = data
        self.writer = writer
        self._uri = uri
        self._storage_options = storage_options
        self._base_store_params = None
        self._session = session
        self._turn = Lock()
        self._opened: lance.LanceDataset | None = None
        self._default_scan_options = None
        self._read_params = None

    def _open(self) -> lance.LanceDataset:
        with self._turn:
            if self._opened is None:
                self._opened = lance.LanceDataset(
                    self._uri,
                    self.version,
                    storage_options=self._storage_options,
                    serialized_manifest=self.known._ds.serialized_manifest(),
                    session=self._session,
                )
            return self._opened

    def __getattr__(self, name: str) -> Any:
        """Whatever is not known by heart, the store knows."""
        if name.startswith("__") or name == "_opened":
            raise AttributeError(name)
        return getattr(self._open(), name)

    def __reduce__(self) -> Any:
        return lance.LanceDataset.__reduce__(self._open())  # type: ignore[no-untyped-call]

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def version(self) -> int:
        return int(self.known.version)

    @property
    def schema(self) -> pa.Schema:
        return self.known.schema

    @property
    def lance_schema(self) -> Any:
        return self.known.lance_schema

    def base_paths(self) -> Any:
        return self.known.base_paths()

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        whole = filter is None and not options
        return int((self.known if whole else self._open()).count_rows(filter, **options))


def known_fragments(handle: lance.LanceDataset) -> list[LanceFragment]:
    """The fragments of a version, for what is written about them and not for their rows, which
    costs no call. A scanner takes them too."""
    return known_handle(handle).get_fragments()


def known_handle(handle: lance.LanceDataset) -> lance.LanceDataset:
    """A handle that knows what is written about a version; its rows may lie elsewhere."""
    return handle.known if isinstance(handle, FreshHandle) else handle


def writer_of(handle: lance.LanceDataset) -> lance.LanceDataset:
    """A handle to write files beside a version with: an earlier one of the same schema will do."""
    if isinstance(handle, FreshHandle) and handle.writer is not None:
        return handle.writer
    return handle


class StrictCommits:
    """Commits through conditional puts, below the root of a graph on an object store."""

    def __init__(self, where: Root, objects: Objects, session: Session) -> None:
        self._where = where
        self._objects = objects
        self._session = session

    def serves(self, transaction: Transaction, seen_at: float | None) -> bool:
        """Whether a transaction can be committed this way: it changes rows alone, and its base was
        the head a moment ago."""
        return (
            not self._where.is_local
            and seen_at is not None
            and now_s() - seen_at <= SEEN_MAX_S
            and isinstance(transaction.operation, _PLAIN)
        )

    def base(self, handle: lance.LanceDataset) -> bytes | None:
        """The file of a version that is built on; None when it is gone."""
        if isinstance(handle, FreshHandle):
            return handle.data
        name = version_file(int(handle.version))
        stored = self._objects.get(f"{self._folder(handle)}/_versions/{name}")
        return None if stored is None else stored.data

    def commit(
        self, handle: lance.LanceDataset, base: bytes, transaction: Transaction
    ) -> FreshHandle | None:
        """The version after the base; None when there is another one of its number."""
        folder, version = self._folder(handle), int(handle.version)
        with _scratch(folder, version, base) as beside:
            local = lance.dataset(str(beside), version=version)
            known = lance.LanceDataset.commit(local, transaction, max_retries=0)
            data = _version_path(beside, version + 1).read_bytes()
        path = f"{folder}/_versions/{version_file(version + 1)}"
        if self._objects.put_if_absent(path, data) is None and not self._is_ours(path, data):
            return None
        return self._fresh(handle.uri, known, data, writer_of(handle))

    def fork(
        self, handle: lance.LanceDataset, location: str, branch: str
    ) -> tuple[FreshHandle, bytes] | None:
        """A new branch of a dataset at a version of its main line, with its ref; None when anything
        is in its place, or the version is gone."""
        version, base = int(handle.version), self.base(handle)
        name = encode(branch)
        folder = f"{location}/tree/{name}"
        if base is None or self._objects.list(folder):
            return None
        with _scratch(location, version, base) as beside:
            lance.dataset(str(beside), version=version).create_branch(name, (None, version))
            made = _version_path(beside / "tree" / name, version)
            data = cloned(made.read_bytes(), location, self._where)
            made.write_bytes(data)
            known = lance.dataset(str(beside / "tree" / name), version=version)
            ref = (beside / BRANCH_REFS / f"{name}.json").read_bytes()
        # As Lance does it: the ref, which says that there is a branch, comes last.
        path = f"{folder}/_versions/{version_file(version)}"
        if self._objects.put_if_absent(path, data) is None and not self._is_ours(path, data):
            return None
        path = f"{location}/{BRANCH_REFS}/{name}.json"
        if self._objects.put_if_absent(path, ref) is None and not self._is_ours(path, ref):
            return None
        # Files of the branch are written through a handle of its own.
        fresh = self._fresh(self._where.join(folder), known, data, None)
        return fresh, ref

    def without_row(
        self, handle: lance.LanceDataset, address: int
    ) -> tuple[FragmentMetadata | None, int] | None:
        """A fragment without one of its rows, None if that was its last one, and how many were
        deleted before. None where Lance has to look at the store for it."""
        if not isinstance(handle, FreshHandle):
            return None
        fragment = handle.known.get_fragment(address >> 32)
        if fragment is None or fragment.metadata.deletion_file is not None:
            return None
        beside = Path(handle.known.uri)
        try:
            left = fragment.delete_rows([address & 0xFFFFFFFF])
            if left is not None and left.deletion_file is not None:
                path = left.deletion_file.path(left.id)
                self._objects.put_unflushed(
                    f"{self._folder(handle)}/{path}", (beside / path).read_bytes()
                )
        finally:
            shutil.rmtree(_top(beside, self._folder(handle)), ignore_errors=True)
        return left, 0

    def _fresh(
        self, uri: str, known: lance.LanceDataset, data: bytes, writer: lance.LanceDataset | None
    ) -> FreshHandle:
        return FreshHandle(uri, known, data, writer, self._where.storage_options, self._session)

    def _folder(self, handle: lance.LanceDataset) -> str:
        return str(handle.uri).removeprefix(f"{self._where.uri}/")

    def _is_ours(self, path: str, data: bytes) -> bool:
        """Whether a put that lost has lost against itself: a client repeats one whose answer it
        did not get."""
        stored = self._objects.get(path)
        return stored is not None and stored.data == data


@contextmanager
def _scratch(folder: str, version: int, data: bytes) -> Iterator[Path]:
    """A dataset of one version in a folder of its own, at the place below it that the dataset has
    below the root: Lance knows a branch by where it lies."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-commit-") as scratch:
        beside = Path(scratch, folder)
        path = _version_path(beside, version)
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        yield beside


def _version_path(folder: Path, version: int) -> Path:
    return folder / "_versions" / version_file(version)


def _top(beside: Path, folder: str) -> Path:
    """The scratch folder that a dataset lies below."""
    return beside.parents[len(Path(folder).parts) - 1]
