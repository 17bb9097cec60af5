"""Files that a table version names: those that are missing, and deletion files that lie elsewhere.

    data/<name>.lance              rows, in the folder of the branch that wrote them
    _deletions/<fragment>-<…>.*    which rows are gone, in the same or a later branch's folder

An earlier program wrote the deletion files of a branch's first bulk write into the folder of its
parent. Such a file is moved by `placed`; nothing is published, since the version names it already.

Invariant: nothing that exists is changed. A file is placed only where none was, and stays there
only if the version then reads as many rows as it names.
"""

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.errors import NotFound, OmnigraphError, Reclaimed, StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.lance.base_paths import split
from omnigraph.storage.lance.columns import ROW_ID
from omnigraph.storage.lance.datasets import Datasets, Handle
from omnigraph.storage.objects import Objects
from omnigraph.storage.records import TablePin

BRING_BACK = (
    "bring the files back from a copy of the graph, or go back to a commit before them with "
    "`omnigraph restore`"
)


@dataclass(frozen=True, slots=True)
class MissingFile:
    """A file that a version names and that does not exist. `found` is the same file in the folder
    of another branch, where there is one."""

    version: TablePin
    path: str
    fragment: int
    found: str | None = None


def missing_files(datasets: Datasets, pin: TablePin) -> list[MissingFile]:
    """Return the files of a version that do not exist; the first version of a branch is looked at
    too, for misplaced deletion files that later versions of the branch do not name."""
    missing = _missing(datasets, pin)
    ref = None if pin.branch is None else datasets.ref(pin.location, pin.branch)
    if ref is not None and ref.parent_version + 1 < pin.version:
        first = replace(pin, version=ref.parent_version + 1)
        try:
            of_first = _missing(datasets, first)
        except (Reclaimed, NotFound):  # removed by cleanup
            return missing
        paths = {each.path for each in missing}
        missing += (each for each in of_first if each.found and each.path not in paths)
    return missing


def _missing(datasets: Datasets, pin: TablePin) -> list[MissingFile]:
    handle, present = datasets.own(pin), _Present(datasets)
    homes = _homes(datasets, pin, handle)
    missing = []
    for fragment in handle.get_fragments():
        number = int(fragment.fragment_id)
        for file in fragment.metadata.files:
            path = f"{homes[file.base_id]}/data/{file._path}"
            if path not in present:
                missing.append(MissingFile(pin, path, number))
        gone = fragment.metadata.deletion_file
        if gone is None:
            continue
        name = gone.path(number)
        path = f"{homes[gone.base_id]}/{name}"
        if path not in present:
            others = dict.fromkeys((pin.location, *homes.values()))
            found = (f"{home}/{name}" for home in others if home != homes[gone.base_id])
            missing.append(MissingFile(pin, path, number, next(filter(present.has, found), None)))
    return missing


def _homes(datasets: Datasets, pin: TablePin, handle: Handle) -> Mapping[int | None, str]:
    """The folders of a version's files below the root, by the number that its metadata uses."""
    homes: dict[int | None, str] = {None: datasets.folder(pin)}
    for number, base in handle.base_paths().items():
        homes[number] = f"{pin.location}{split(base.path, pin.location)[1]}"
    return homes


class _Present:
    """The files that exist: looked up one by one on local disk, listed by folder elsewhere."""

    def __init__(self, datasets: Datasets) -> None:
        self._objects: Objects = datasets.objects
        self._is_remote = datasets.is_remote
        self._listed: dict[str, frozenset[str]] = {}

    def has(self, path: str) -> bool:
        """Whether a file exists."""
        if not self._is_remote:
            return self._objects.has(path)
        folder = path.rpartition("/")[0]
        if folder not in self._listed:
            self._listed[folder] = frozenset(self._objects.list(folder))
        return path in self._listed[folder]

    def __contains__(self, path: str) -> bool:
        return self.has(path)


def placed(datasets: Datasets, missing: MissingFile) -> None:
    """Copy a misplaced deletion file to where its version expects it. The caller holds the table's
    lock. Raises `StorageFailed`, with nothing changed, if the version does not read with it."""
    assert missing.found is not None
    stored = datasets.objects.get(missing.found)
    if stored is None:
        raise StorageFailed(f"moved {missing.found}", "the file is gone; look again")
    datasets.objects.put_if_absent(missing.path, stored.data)
    try:
        copied = datasets.objects.get(missing.path)
        if copied is None or copied.data != stored.data:
            raise StorageFailed(f"moved {missing.found}", "the copy differs from the file")
        _require_rows(datasets, missing)
    except OmnigraphError:
        datasets.objects.delete(missing.path)
        raise


def _require_rows(datasets: Datasets, missing: MissingFile) -> None:
    """Read the fragment: the deletion file must remove as many rows as the version says."""
    handle = datasets.own(missing.version)
    fragment = handle.get_fragment(missing.fragment)
    if fragment is None:
        raise StorageFailed(f"moved {missing.found}", f"fragment {missing.fragment} is gone")
    with datasets.lance_call("scan", missing.version.table_key):
        rows = handle.scanner(columns=[ROW_ID], fragments=[fragment]).to_table().num_rows
    expected = int(fragment.metadata.physical_rows - fragment.num_deletions)
    if rows != expected:
        raise StorageFailed(
            f"moved {missing.found}",
            f"the version has {rows} rows of fragment {missing.fragment} with it, not {expected}",
        )
