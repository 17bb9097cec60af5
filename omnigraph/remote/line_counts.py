"""Counts of NDJSON lines by type, while an export passes by in chunks of any size.

Invariant: every line is counted once, wherever chunks cut it: a line is known by its first bytes,
`{"type":"Person"` or `{"edge":"Knows"`, as an export writes them.
"""

import re
from collections import Counter
from collections.abc import Iterable

from omnigraph.exec.changes.export import ExportResult
from omnigraph.types import Kind

_LINE = re.compile(rb'^\{"(type|edge)":"([^"]+)"', re.M)


class LineCounts:
    """Counter of the entities that pass by."""

    def __init__(self, nodes: Iterable[str] = (), edges: Iterable[str] = ()) -> None:
        self._nodes: Counter[str] = Counter(dict.fromkeys(nodes, 0))
        self._edges: Counter[str] = Counter(dict.fromkeys(edges, 0))
        self._rest = b""

    def see(self, chunk: bytes) -> int:
        """Count the whole lines so far; how many there are in this chunk."""
        lines = self._rest + chunk
        end = lines.rfind(b"\n") + 1
        self._rest = lines[end:]
        count = 0
        for word, name in _LINE.findall(lines, 0, end):
            (self._edges if word == b"edge" else self._nodes)[name.decode()] += 1
            count += 1
        return count

    def result(self, commit_id: str | None) -> ExportResult:
        """The counts as an export gives them."""
        return ExportResult(
            nodes=dict(sorted(self._nodes.items())),
            edges=dict(sorted(self._edges.items())),
            commit_id=commit_id,
        )


def kind_and_type(line: bytes) -> tuple[Kind, str] | None:
    """The kind and the type of one line of an export."""
    match = _LINE.match(line)
    if match is None:
        return None
    return Kind.EDGE if match[1] == b"edge" else Kind.NODE, match[2].decode()
