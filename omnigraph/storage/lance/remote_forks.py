"""Lance branches of a graph on an object store, made and removed with few calls.

Lance looks at each of its small files twice and lists what it has just read. Here one listing says
whether anything is in the place of a new branch, and files go many at a time.

Invariant: as Lance does it, a branch's ref is put after its version and removed before its files,
so a ref names a whole branch. A branch that others were forked from is left to Lance, which refuses
to remove it.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from omnigraph.storage.lance.datasets import Datasets, Handle, dataset_folder
from omnigraph.storage.lance.parallel import together
from omnigraph.storage.lance.refs import BRANCH_REFS, TAG_REFS, Ref, decoded_ref
from omnigraph.storage.names import decode, encode


def forked(
    datasets: Datasets, handle: Handle, location: str, branch: str
) -> tuple[Handle, Ref] | None:
    """A new branch at a version of a dataset's main line, with its handle; None when anything is in
    its place."""
    with datasets.lance_call("create_branch", f"{location} {branch}"):
        made = datasets.strict.fork(handle, location, branch)
    return None if made is None else (made[0], decoded_ref(made[1]))


def refs_beside(
    datasets: Datasets, location: str, branch: str
) -> tuple[tuple[str, ...], dict[str, Ref]]:
    """The names of a dataset's tags, and its branches but for one, by their encoded names."""
    tags, branches = [], []
    for path in datasets.objects.list(f"{location}/{BRANCH_REFS.partition('/')[0]}"):
        folder, _, file = path.removeprefix(f"{location}/").rpartition("/")
        name = decode(file.removesuffix(".json"))
        if folder == TAG_REFS:
            tags.append(name)
        elif folder == BRANCH_REFS and name != branch:
            branches.append(name)
    read = together([partial(datasets.ref, location, name) for name in branches])
    pairs = zip(branches, read, strict=True)
    return tuple(tags), {encode(name): ref for name, ref in pairs if ref is not None}


def remove_forks(
    datasets: Datasets, locations: Sequence[str], branch: str, also: Iterable[str] = ()
) -> list[str]:
    """Remove a branch of several datasets, and the files below the folders `also`; the datasets
    whose branch others were forked from are left, and returned."""
    segment = encode(branch)
    beside = together([partial(refs_beside, datasets, each, branch) for each in locations])
    left = [
        location
        for location, (_, refs) in zip(locations, beside, strict=True)
        if any(ref.parent_branch == segment for ref in refs.values())
    ]
    gone = [each for each in locations if each not in left]
    folders = [*also, *(dataset_folder(each, branch) for each in gone)]
    files = together([partial(datasets.objects.list, folder) for folder in folders])
    datasets.objects.delete_all(f"{each}/{BRANCH_REFS}/{segment}.json" for each in gone)
    datasets.objects.delete_all(path for paths in files for path in paths)
    return left
