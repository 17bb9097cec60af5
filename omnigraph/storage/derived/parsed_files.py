"""Open topology files by digest: node files, edge files, and deltas over those.

Invariant: a digest names one content for ever, so a file is read once for all versions, branches
and lineages that use it, and a digest never answers with another file. A file that was removed is
dropped once it is no longer open.
"""

from collections.abc import Callable
from typing import TypeVar

from omnigraph.storage.derived.derived_folder import EDGES, NODES, DerivedFiles
from omnigraph.storage.derived.edge_delta_file import EDGE_DELTAS, EdgeDeltaFile
from omnigraph.storage.derived.edge_file import EdgeFile
from omnigraph.storage.derived.mapped_file import MappedFile
from omnigraph.storage.derived.node_file import NodeFile
from omnigraph.storage.records import TablePin

_Parsed = NodeFile | EdgeFile | EdgeDeltaFile
_File = TypeVar("_File", NodeFile, _Parsed)
_READERS: dict[str, Callable[[MappedFile], _Parsed]] = {
    NODES: NodeFile,
    EDGES: EdgeFile,
    EDGE_DELTAS: EdgeDeltaFile,
}


class ParsedFiles:
    """The files that one open graph has read."""

    def __init__(self, files: DerivedFiles) -> None:
        self._files = files
        self._parsed: dict[str, _Parsed] = {}
        self._numberings: dict[str, NodeFile] = {}

    def read(self, file: MappedFile, kind: str) -> _Parsed:
        """A file of one kind."""
        parsed = self._parsed.get(file.digest)
        if parsed is None:
            self._parsed = self._open_ones(self._parsed)
            parsed = self._parsed[file.digest] = _READERS[kind](file)
        return parsed

    def under(self, delta: EdgeDeltaFile, pin: TablePin) -> EdgeFile | None:
        """The edge file that a delta is over, of whatever version and branch."""
        for entry in self._files.listed(pin):
            if entry.name.kind == EDGES and entry.name.digest == delta.base:
                file = self._files.opened(entry)
                parsed = None if file is None else self.read(file, EDGES)
                if isinstance(parsed, EdgeFile):
                    delta.require_over(parsed)
                    return parsed
        return None

    def numbering(self, digest: str) -> NodeFile | None:
        """Return a node file that keeps the numbers of the one with this digest: itself, or any
        file of its lineage. Its rows may be those of another branch."""
        known = self._numberings.get(digest)
        if known is not None:
            return known
        for entry in self._files.everything():
            file = self._files.opened(entry) if entry.name.kind == NODES else None
            if file is not None and digest in (file.digest, *file.facts.get("lineage", ())):
                parsed = self.read(file, NODES)
                if isinstance(parsed, NodeFile):
                    self._numberings = {**self._open_ones(self._numberings), digest: parsed}
                    return parsed
        return None

    def _open_ones(self, files: dict[str, _File]) -> dict[str, _File]:
        known = list(files.items())
        return {digest: each for digest, each in known if self._files.is_open(each.file)}

    def clear(self) -> None:
        """Forget everything."""
        self._parsed.clear()
        self._numberings.clear()
