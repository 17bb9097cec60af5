"""Files of a Lance transaction: what a staged write or a version put on disk, by path.

    data/<name>.lance, data/<name>/*.blob     rows
    _deletions/<fragment>-<version>-<id>.*    which rows are gone
    _indices/<uuid>/*                         index segments
    _transactions/<version>-<uuid>.txn        what a commit did; a version's file holds it too
    _versions/<number>.manifest               the version itself

Invariant: every file that a version names and its base does not name is listed, whether or not it
exists, so a flush of them makes the version whole or fails. A file of a parent branch is the
parent's own and is left out. Cost follows the fragments that changed, except where Lance committed
by itself. On an object store no staged file is listed: what a put has answered is there.
"""

import os
from collections.abc import Collection, Iterable, Iterator

from lance.dataset import LanceOperation, Transaction
from lance.fragment import FragmentMetadata

from omnigraph.errors import StorageFailed
from omnigraph.storage.lance.base_paths import version_file
from omnigraph.storage.lance.datasets import Datasets, Handle
from omnigraph.storage.lance.refs import BRANCH_REFS
from omnigraph.storage.names import encode
from omnigraph.storage.records import TablePin


def staged_files(
    datasets: Datasets, folder: str, handle: Handle, transaction: Transaction
) -> list[str]:
    """The files that a staged transaction brings, below the root."""
    operation = transaction.operation
    if datasets.is_remote:
        return []
    new: list[FragmentMetadata] = []
    changed: list[FragmentMetadata] = []
    paths: list[str] = []
    if isinstance(operation, LanceOperation.Append | LanceOperation.Overwrite):
        new = list(operation.fragments)
    elif isinstance(operation, LanceOperation.Update):
        new, changed = operation.new_fragments, operation.updated_fragments
    elif isinstance(operation, LanceOperation.Delete):
        changed = list(operation.updated_fragments)
    elif isinstance(operation, LanceOperation.Merge):
        paths += _added_columns(datasets, folder, handle, operation.fragments)
    elif isinstance(operation, LanceOperation.CreateIndex):
        for index in operation.new_indices:
            paths += _index_files(datasets, folder, str(index.uuid))
    paths += (path for each in new for path in _data_files(datasets, folder, each))
    return [*paths, *(path for each in (*new, *changed) for path in _deletions(folder, each))]


def refused_files(
    datasets: Datasets, folder: str, handle: Handle, transaction: Transaction
) -> list[str]:
    """The files of rows that were staged and will never be committed: none that the version they
    were staged on names."""
    operation = transaction.operation
    brought: list[FragmentMetadata] = []
    if isinstance(operation, LanceOperation.Append):
        brought = list(operation.fragments)
    elif isinstance(operation, LanceOperation.Update):
        brought = [*operation.new_fragments, *operation.updated_fragments]
    elif isinstance(operation, LanceOperation.Delete):
        brought = list(operation.updated_fragments)
    known = _known(folder, _fragments(handle))
    return [path for each in brought for path in _new_files(datasets, folder, each, known)]


def version_files(folder: str, transaction: Transaction, version: int) -> list[str]:
    """The files that the commit of a transaction wrote."""
    name = f"{transaction.read_version}-{transaction.uuid}.txn"
    return [f"{folder}/_transactions/{name}", version_path(folder, version)]


def version_path(folder: str, version: int) -> str:
    """The file of a version."""
    return f"{folder}/_versions/{version_file(version)}"


def files_since(datasets: Datasets, base: TablePin, head: Handle) -> list[str]:
    """The files of every version after a pin, up to a head. On an object store without blobs."""
    folder, before = datasets.folder(base), datasets.handle(base)
    return _between(datasets, folder, before, head)


def missing_since(datasets: Datasets, base: TablePin, head: Handle) -> list[str]:
    """The files of every version after a pin, up to a head, that do not exist."""
    files = files_since(datasets, base, head)
    if datasets.is_remote:
        return [path for path in files if not datasets.objects.has(path)]
    return [path for path in files if not os.path.lexists(datasets.uri(path, None))]


def _between(datasets: Datasets, folder: str, before: Handle, head: Handle) -> list[str]:
    versions = range(int(before.version) + 1, int(head.version) + 1)
    paths = [version_path(folder, version) for version in versions]
    known = _known(folder, _fragments(before))
    for each in _fragments(head):
        paths += _new_files(datasets, folder, each, known)
    for uuid in _segments(head) - _segments(before):
        paths += _index_files(datasets, folder, uuid)
    return paths


def rewritten_files(
    datasets: Datasets, folder: str, fragments: Iterable[FragmentMetadata]
) -> list[str]:
    """The files of fragments that were rewritten and are not committed yet."""
    return [path for each in fragments for path in _data_files(datasets, folder, each)]


def fork_files(location: str, branch: str, version: int) -> list[str]:
    """The files of a new branch of a dataset."""
    folder = f"{location}/tree/{encode(branch)}"
    return [f"{location}/{BRANCH_REFS}/{encode(branch)}.json", version_path(folder, version)]


def owe_base(datasets: Datasets, pin: TablePin) -> None:
    """Owe the version that a write builds on, and the fork it is the first version of."""
    folder = datasets.folder(pin)
    fork = fork_files(pin.location, pin.branch, pin.version)[:1] if pin.branch else []
    datasets.flusher.owe_head(folder, version_path(folder, pin.version), *fork)


def _fragments(handle: Handle) -> list[FragmentMetadata]:
    return [fragment.metadata for fragment in handle.get_fragments()]


def _segments(handle: Handle) -> set[str]:
    return {str(segment.uuid) for index in handle.describe_indices() for segment in index.segments}


def _known(folder: str, fragments: Iterable[FragmentMetadata]) -> Collection[str]:
    """The data files and deletion files of the fragments of a version."""
    return {p for each in fragments for p in (*_data(folder, each), *_deletions(folder, each))}


def _new_files(
    datasets: Datasets, folder: str, fragment: FragmentMetadata, known: Collection[str]
) -> Iterator[str]:
    """The files of a fragment, without those that are known, and their blobs."""
    yield from _data_files(datasets, folder, fragment, known)
    yield from (path for path in _deletions(folder, fragment) if path not in known)


def _data_files(
    datasets: Datasets, folder: str, fragment: FragmentMetadata, known: Collection[str] = ()
) -> Iterator[str]:
    for path in _data(folder, fragment):
        if path not in known:
            yield path
            yield from _below(datasets, path.removesuffix(".lance"))  # blobs


def _data(folder: str, fragment: FragmentMetadata) -> Iterator[str]:
    return (f"{folder}/data/{each._path}" for each in fragment.files if each.base_id is None)


def _deletions(folder: str, fragment: FragmentMetadata) -> Iterator[str]:
    gone = fragment.deletion_file
    if gone is not None and gone.base_id is None:
        yield f"{folder}/{gone.path(fragment.id)}"


def _added_columns(
    datasets: Datasets, folder: str, handle: Handle, fragments: Iterable[FragmentMetadata]
) -> Iterator[str]:
    known = _known(folder, _fragments(handle))
    for each in fragments:
        yield from _new_files(datasets, folder, each, known)


def _index_files(datasets: Datasets, folder: str, uuid: str) -> list[str]:
    """The files of an index segment; its folder if there are none, which a barrier fails for."""
    segment = f"{folder}/_indices/{uuid}"
    if datasets.is_remote:
        return list(datasets.objects.list(segment)) or [segment]
    return _below(datasets, segment) or [segment]


def _below(datasets: Datasets, folder: str) -> list[str]:
    """The files right below a folder, if it is there: on local disk alone."""
    try:
        return [f"{folder}/{name}" for name in os.listdir(datasets.uri(folder, None))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as cause:
        raise StorageFailed(f"listed {folder}", str(cause)) from cause
