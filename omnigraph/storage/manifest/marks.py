"""Index of commit marks: which manifest version published the commit of a mark.

Invariant: it is of the fragments that a manifest has, each read once in a process, and none that it
published itself: a lookup costs what others published, or a fold wrote, since the last one, and not
the history. A branch shares what its
ancestors' fragments said. Digests of marks are kept, so a hit is compared with the commit itself.
"""

from collections.abc import Callable, Sequence
from threading import Lock

from lance.fragment import LanceFragment

from omnigraph.costs import COSTS
from omnigraph.storage.lance.datasets import files_of

MarkedVersions = dict[int, list[int]]
"""Manifest versions by the digest of a mark."""

ReadMarks = Callable[[Sequence[LanceFragment]], Sequence[tuple[int, str, int]]]
"""Reads fragments: of each marked commit its fragment, its mark and its manifest version."""


class MarkIndex:
    """The marks of one graph, as far as this process has read them."""

    def __init__(self) -> None:
        self._by_files: dict[tuple[str, ...], MarkedVersions] = {}
        self._turn = Lock()

    def versions(self, fragments: Sequence[LanceFragment], mark: str, read: ReadMarks) -> list[int]:
        """The manifest versions that may have published the commit of a mark."""
        files = {each.fragment_id: files_of(each) for each in fragments}
        with self._turn:
            known = {each: self._by_files.get(each) for each in files.values()}
        fresh = [each for each in fragments if known[files[each.fragment_id]] is None]
        if fresh:
            added: dict[tuple[str, ...], MarkedVersions] = {
                files[each.fragment_id]: {} for each in fresh
            }
            for number, stored, version in read(fresh):
                added[files[number]].setdefault(hash(stored), []).append(version)
            self._add(added)
            known |= added
        digest = hash(mark)
        return [version for each in known.values() if each for version in each.get(digest, ())]

    def published(self, fragment: LanceFragment, mark: str | None, version: int) -> None:
        """Add a fragment that this process wrote: it holds one commit, whose mark is known."""
        self._add({files_of(fragment): {} if mark is None else {hash(mark): [version]}})

    def clear(self) -> None:
        """Forget everything."""
        with self._turn:
            self._by_files.clear()

    def _add(self, fragments: dict[tuple[str, ...], MarkedVersions]) -> None:
        with self._turn:
            if len(self._by_files) > COSTS.mark_fragments_max:
                self._by_files.clear()
            self._by_files |= fragments
