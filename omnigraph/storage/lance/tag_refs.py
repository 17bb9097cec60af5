"""Lance tags of a dataset: names of versions, of the dataset or of one of its branches.

Invariant: looking for a tag is one small read. Lance removes no version that has a tag, and deletes
no branch with such a version.
"""

from omnigraph.storage.lance.datasets import Datasets
from omnigraph.storage.lance.refs import TAG_REFS, TagRef, TornRef, read_tag, tag_names
from omnigraph.storage.names import decode, encode
from omnigraph.storage.objects import Objects, Root


class TagRefs:
    """The tags of datasets below one graph's root."""

    def __init__(self, where: Root, datasets: Datasets, objects: Objects) -> None:
        self._where = where
        self._datasets = datasets
        self._objects = objects

    def get(self, location: str, tag: str) -> TagRef | None:
        """One tag, or None. After a power cut one that was never acknowledged may be torn."""
        try:
            return read_tag(self._objects, location, tag)
        except TornRef:
            if self._datasets.is_wary:
                return None
            raise

    def every(self, location: str) -> dict[str, TagRef]:
        """Every tag of a dataset by its name; one deleted meanwhile is left out."""
        names = map(decode, tag_names(self._objects, location))
        refs = {name: self.get(location, name) for name in names}
        return {name: ref for name, ref in refs.items() if ref is not None}

    def create(self, location: str, tag: str, *, branch: str | None, version: int) -> None:
        """A tag of a version of the dataset or of a branch."""
        self._where.require_branchable()
        root = self._datasets.open(location, branching=True)
        with self._datasets.lance_call("create_tag", f"{location} {tag}"):
            root.tags.create(encode(tag), (None if branch is None else encode(branch), version))
        self._datasets.flusher.barrier([f"{location}/{TAG_REFS}/{encode(tag)}.json"])

    def delete(self, location: str, tag: str) -> None:
        """Remove a tag."""
        root = self._datasets.open(location, branching=True)
        with self._datasets.lance_call("delete_tag", f"{location} {tag}"):
            root.tags.delete(encode(tag))
        self._datasets.flusher.barrier([f"{location}/{TAG_REFS}"])
