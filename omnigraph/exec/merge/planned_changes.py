"""Preview of a merge, a revert or a restore: the entities it changes, by type and operation.

Invariant: the entities listed are the rows that the commit writes and removes, one entry each. The
counts read nothing; ids are read when they are asked for, and only those of changed entities.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from omnigraph.errors import MergeConflict
from omnigraph.exec.changes.diff import DELETE, INSERT, UPDATE
from omnigraph.exec.merge.crosscheck import Merged
from omnigraph.types import TableKey

ChangeCounts = dict[tuple[str, str, str], int]
"""How many changes there are by kind, type and operation."""


class PlannedChange(NamedTuple):
    """One entity that is inserted, updated or deleted."""

    kind: str
    type: str
    id: str
    op: str

    def to_json(self) -> dict[str, str]:
        """The change as a preview writes it."""
        return {"kind": self.kind, "type_name": self.type, "id": self.id, "op": self.op}


class PlannedChanges:
    """Every entity that one commit changes, read when it is asked for: nodes, then edges, by type
    and id."""

    def __init__(
        self,
        parts: Mapping[TableKey, Merged] | None = None,
        listed: Iterable[PlannedChange] = (),
    ) -> None:
        self._parts = dict(parts or {})
        self._read = tuple(listed)  # of a copy, which has no graph to read

    def __reduce__(self) -> tuple[Any, ...]:
        return PlannedChanges, (None, tuple(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlannedChanges):
            return NotImplemented
        return self.counts() == other.counts() and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self.counts().items()))

    def __repr__(self) -> str:
        marks = {INSERT: "+", UPDATE: "~", DELETE: "-"}
        shown = (f"{marks[op]}{n} {name}" for (_, name, op), n in self.counts().items())
        return f"PlannedChanges({' '.join(shown)})"

    def __iter__(self) -> Iterator[PlannedChange]:
        for part in self._parts.values():
            yield from _of_type(part)
        yield from self._read

    def __bool__(self) -> bool:
        return bool(self.counts())

    def counts(self) -> ChangeCounts:
        """How many changes there are by kind, type and operation."""
        counts: ChangeCounts = dict(Counter((c.kind, c.type, c.op) for c in self._read))
        for part in self._parts.values():
            owner = part.merge.owner
            for op, (taken, made) in _by_op(part).items():
                if total := len(taken) + len(made):
                    counts[str(owner.kind), owner.name, op] = total
        return counts

    def statistics(self) -> list[dict[str, Any]]:
        """The counts as JSON has them."""
        return [
            {"kind": kind, "type_name": name, "op": op, "count": count}
            for (kind, name, op), count in self.counts().items()
        ]


def preview_document(changes: PlannedChanges, conflicts: Iterable[MergeConflict]) -> dict[str, Any]:
    """A preview as JSON: counts, conflicts and every entity."""
    return {
        "dry_run": True,
        "statistics": changes.statistics(),
        "merge_conflicts": [conflict.to_json() for conflict in conflicts],
        "changes": [change.to_json() for change in changes],
    }


def _by_op(part: Merged) -> dict[str, tuple[pa.Array, pa.Table]]:
    """By operation: row ids of the side that has the entity, and rows that neither side has."""
    theirs, ours = part.source_rows, part.target_rows
    known = part.made_rows.is_valid()
    return {
        INSERT: (
            theirs.filter(ours.is_null()).drop_null(),
            part.made.filter(part.made_rows.is_null()),
        ),
        UPDATE: (theirs.filter(ours.is_valid()).drop_null(), part.made.filter(known)),
        DELETE: (ours.filter(theirs.is_null()).drop_null(), part.made.slice(0, 0)),
    }


def _of_type(part: Merged) -> Iterator[PlannedChange]:
    owner = part.merge.owner
    ops: dict[str, str] = {}
    for op, (taken, made) in _by_op(part).items():
        side = part.merge.target if op == DELETE else part.merge.source
        ids = side.columns(taken, ["id"])["id"].to_pylist() + made["id"].to_pylist()
        ops.update(dict.fromkeys(ids, op))
    for entity in sorted(ops):
        yield PlannedChange(str(owner.kind), owner.name, entity, ops[entity])
