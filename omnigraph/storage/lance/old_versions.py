"""Old versions of a dataset: which there are, and how they are reclaimed (garbage collection).

Invariant: a version is removed only if the caller names it. The files that other versions, branches
or tags name stay.
"""

from datetime import timedelta
from typing import Any

from omnigraph.storage.lance.datasets import Datasets

_NEVER = timedelta(days=36_500)


def versions_of(datasets: Datasets, location: str, branch: str | None) -> list[int]:
    """Every version that is there, the oldest first. A branch's list starts where it forked."""
    handle = datasets.open(location, branch)
    with datasets.lance_call("versions", location):
        return sorted(int(each["version"]) for each in handle.version_refs())


def reclaim_versions(
    datasets: Datasets, location: str, branch: str | None, versions: list[int], *, confirm: bool
) -> tuple[int, int, int]:
    """Remove versions and the files that only they name, and files that no version has named for
    long; without `confirm` only count. Returns the number of versions, bytes and files."""
    handle = datasets.open(location, branch)
    which: dict[str, Any] = {"versions": versions} if versions else {"older_than": _NEVER}
    with datasets.lance_call("reclaim", location):
        if confirm:
            done = handle.cleanup_old_versions(error_if_tagged_old_versions=False, **which)
        else:
            done = handle.explain_cleanup_old_versions(
                error_if_tagged_old_versions=False, **which
            ).stats
    files = done.data_files_removed + done.index_files_removed + done.deletion_files_removed
    return int(done.old_versions), int(done.bytes_removed), int(files)
