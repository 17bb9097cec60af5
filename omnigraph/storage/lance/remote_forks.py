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
from omnigraph.storage.lance.refs import BRANCH_REFS, REFS, TAG_REFS, Ref, decoded_ref
from omnigraph.storage.names import decode, encode


def forked(
    datasets: Datasets, handle: Handle, location: str, branch: str
) -> tuple[Handle, Ref] | None:
    """A new branch at a version of a dataset's main line, with its handle; None when anything is in
    its place."""
    with datasets.lance_call("create_branch", f"{location} {branch}"):
        made = datasets.strict.fork(handle, location, branch)
    if made is None:
        return None
    ref = decoded_ref(made[1])
    datasets.fork_refs.learn(location, branch, ref)
    return made[0], ref


def refs_beside(
    datasets: Datasets, location: str, branch: str
) -> tuple[tuple[str, ...], dict[str, Ref]]:
    """The names of a dataset's tags, and its branches but for one, by their encoded names."""
    tags, branches = _names_beside(datasets, location, branch)
    read = together([partial(datasets.ref, location, name) for name in branches])
    pairs = zip(branches, read, strict=True)
    return tuple(tags), {encode(name): ref for name, ref in pairs if ref is not None}


def remove_forks(
    datasets: Datasets, locations: Sequence[str], branch: str, also: Iterable[str] = ()
) -> list[str]:
    """Remove a branch of several datasets, and the files below the folders `also`; the datasets
    whose branch others were forked from are left, and returned."""
    segment = encode(branch)
    listed = together([partial(_names_beside, datasets, each, branch) for each in locations])
    others = [
        (each, name) for each, (_, names) in zip(locations, listed, strict=True) for name in names
    ]
    refs = together([partial(datasets.ref, each, name) for each, name in others])
    parents = ((each, ref) for (each, _), ref in zip(others, refs, strict=True) if ref is not None)
    left = {each for each, ref in parents if ref.parent_branch == segment}
    gone = [each for each in locations if each not in left]
    folders = [*also, *(dataset_folder(each, branch) for each in gone)]
    files = together([partial(datasets.objects.list, folder) for folder in folders])
    datasets.objects.delete(*(f"{each}/{BRANCH_REFS}/{segment}.json" for each in gone))
    datasets.objects.delete(*(path for paths in files for path in paths))
    return sorted(left)


def _names_beside(datasets: Datasets, location: str, branch: str) -> tuple[list[str], list[str]]:
    """The tags of a dataset, and its branches but for one, by one listing."""
    tags, branches = [], []
    for path in datasets.objects.list(f"{location}/{REFS}"):
        folder, _, file = path.removeprefix(f"{location}/").rpartition("/")
        name = decode(file.removesuffix(".json"))
        if folder == TAG_REFS:
            tags.append(name)
        elif folder == BRANCH_REFS and name != branch:
            branches.append(name)
    return tags, branches
