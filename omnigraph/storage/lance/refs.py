"""Lance refs: the small JSON files of a dataset's branches (where each forks off) and tags (which
version each names).

Invariant: a branch that was deleted and made again under its name has another identity.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any, NewType

import orjson

from omnigraph.costs import COSTS
from omnigraph.errors import StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.lru import Lru
from omnigraph.storage.names import encode
from omnigraph.storage.objects import Objects

ForkId = NewType("ForkId", str)

REFS = "_refs"
BRANCH_REFS, TAG_REFS = f"{REFS}/branches", f"{REFS}/tags"
"""The folders of a dataset's refs, below its own."""

_SEGMENT_MAX = 240


@dataclass(frozen=True, slots=True)
class Ref:
    """A Lance branch: the point it starts from, and its identity."""

    parent_branch: str | None  # as Lance names it
    parent_version: int
    identity: ForkId
    created_at: float  # seconds since the epoch


class TornRef(StorageFailed):
    """The file of a branch or a tag is empty, ends too early or says something else."""


@dataclass(frozen=True, slots=True)
class TagRef:
    """A Lance tag: a version of the dataset or of one of its branches."""

    branch: str | None  # as Lance names it
    version: int


def read_tag(objects: Objects, location: str, tag: str) -> TagRef | None:
    """One tag of a dataset, by one small read; None if there is none of that name."""
    segment = encode(tag)
    file = objects.get(f"{_tags_folder(location)}/{segment}.json") if _fits(segment) else None
    if file is None:
        return None
    with _whole(f"{_tags_folder(location)}/{segment}.json"):
        facts = orjson.loads(file.data)
        return TagRef(facts["branch"], int(facts["version"]))


def tag_names(objects: Objects, location: str) -> list[str]:
    """The encoded names of a dataset's tags."""
    return [PurePosixPath(path).stem for path in objects.list(_tags_folder(location))]


def _tags_folder(location: str) -> str:
    return f"{location}/{TAG_REFS}"


def listed_ref(facts: Mapping[str, Any]) -> Ref:
    """A branch as Lance lists it."""
    return Ref(
        facts["parent_branch"],
        int(facts["parent_version"]),
        ForkId(facts["branch_identifier"][-1][1]),
        float(facts["create_at"]),
    )


def read_ref(objects: Objects, location: str, branch: str) -> Ref | None:
    """One branch of a dataset, by one small read; None if there is none of that name."""
    segment = encode(branch)
    return _read(objects, f"{_folder(location)}/{segment}.json") if _fits(segment) else None


def _fits(segment: str) -> bool:
    """Whether a file can have the name; a disk fails when it is asked for one that is too long."""
    return len(segment) <= _SEGMENT_MAX


def read_refs(objects: Objects, location: str) -> dict[str, Ref]:
    """Every branch of a dataset by its encoded name, each read by itself: a branch that is deleted
    meanwhile is left out."""
    refs = {
        PurePosixPath(path).stem: _read(objects, path) for path in objects.list(_folder(location))
    }
    return {name: ref for name, ref in refs.items() if ref is not None}


def whole_refs(objects: Objects, location: str) -> dict[str, Ref]:
    """Every branch of a dataset by its encoded name, without those whose files a power cut tore."""
    refs: dict[str, Ref] = {}
    for path in objects.list(_folder(location)):
        with suppress(TornRef):
            ref = _read(objects, path)
            if ref is not None:
                refs[PurePosixPath(path).stem] = ref
    return refs


@contextmanager
def _whole(path: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, IndexError, TypeError) as cause:
        raise TornRef(f"read {path}", f"it is damaged ({cause})") from cause


def _folder(location: str) -> str:
    return f"{location}/{BRANCH_REFS}"


def _read(objects: Objects, path: str) -> Ref | None:
    file = objects.get(path)
    if file is None:
        return None
    with _whole(path):
        return decoded_ref(file.data)


def decoded_ref(data: bytes) -> Ref:
    """A branch as its file describes it."""
    facts = orjson.loads(data)
    return Ref(
        facts["parentBranch"],
        int(facts["parentVersion"]),
        ForkId(facts["identifier"]["version_mapping"][-1][1]),
        float(facts["createAt"]),
    )


class ForkRefs:
    """Refs of branches by their incarnation, which never change: on an object store each is read
    once."""

    def __init__(self, objects: Objects, *, keeps: bool) -> None:
        self._objects = objects
        self._keeps = keeps
        self._known: Lru[tuple[str, str], Ref] = Lru(COSTS.refs_max)

    def get(self, location: str, branch: str, fork: str) -> Ref | None:
        """The ref of a branch, None if there is none; another incarnation's as it is now."""
        known = self._known.get((location, branch))
        if known is not None and known.identity == fork:
            return known
        ref = read_ref(self._objects, location, branch)
        if ref is not None:
            self.learn(location, branch, ref)
        return ref

    def learn(self, location: str, branch: str, ref: Ref) -> None:
        """Remember a ref that this process wrote or read."""
        if self._keeps:
            self._known.put((location, branch), ref)

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
