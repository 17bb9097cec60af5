"""Open topology files by digest: node files, edge files, and deltas over those.

Invariant: a digest names one content for ever, so a file is read once for all versions, branches
and lineages that use it. A file that was removed is kept by nobody but those who use it.
"""

from collections.abc import Callable

from omnigraph.storage.derived.derived_folder import EDGES, NODES, DerivedFiles
from omnigraph.storage.derived.edge_delta_file import EDGE_DELTAS, EdgeDeltaFile
from omnigraph.storage.derived.edge_file import EdgeFile
from omnigraph.storage.derived.mapped_file import MappedFile
from omnigraph.storage.derived.node_file import NodeFile
from omnigraph.storage.records import TablePin

_Parsed = NodeFile | EdgeFile | EdgeDeltaFile
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

    def read(self, file: MappedFile, kind: str) -> _Parsed:
        """A file of one kind."""
        parsed = self._parsed.get(file.digest)
        if parsed is None:
            known = list(self._parsed.items())
            self._parsed = {name: each for name, each in known if self._files.is_open(each.file)}
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

    def node_file(self, digest: str) -> NodeFile | None:
        """A node file that keeps the numbers of the one with this digest."""
        parsed = self._parsed.get(digest)
        for entry in () if parsed is not None else self._files.everything():
            file = self._files.opened(entry) if entry.name.kind == NODES else None
            if file is not None and digest in (file.digest, *file.facts.get("lineage", ())):
                parsed = self._parsed[digest] = NodeFile(file)
                break
        return parsed if isinstance(parsed, NodeFile) else None

    def clear(self) -> None:
        """Forget everything."""
        self._parsed.clear()
