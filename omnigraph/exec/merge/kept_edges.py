"""Edges kept with a node: what the answer to a delete/update conflict takes along.

Deleting a node deletes its edges. Where one side deleted a node, the other changed it and the
answer keeps it, the edges that the deleting side lost with the node are kept too, as the other side
has them: unchanged ones without a conflict, changed ones unless they have an answer of their own.

Invariant: an edge is kept only where both its ends are in the merged graph, so no edge that is
kept here is an orphan. The decision depends on content alone: an edge that the deleting side had
removed before it removed the node looks the same, and is kept.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import EdgeType
from omnigraph.errors import MergeConflict
from omnigraph.exec.changes.entities import Mask, mask_of
from omnigraph.exec.merge.crosscheck import Merged, missing_nodes
from omnigraph.exec.merge.resolve import OURS, THEIRS, Answer, Settled
from omnigraph.exec.merge.threeway import DELETE_VS_UPDATE, TypeMerge
from omnigraph.storage.lance.spans import AFTER, BEFORE
from omnigraph.types import Kind, TableKey, table_key

_ENDS = ["id", "src", "dst"]


@dataclass(frozen=True, slots=True)
class KeptEdge:
    """An edge that stays, or comes back, because an answer keeps the node at one of its ends."""

    type_name: str
    entity_id: str
    src: str
    dst: str
    node_type: str
    node_id: str

    def to_json(self) -> dict[str, Any]:
        """The edge, its ends and the node it goes with."""
        return {
            "type_name": self.type_name,
            "entity_id": self.entity_id,
            "from": self.src,
            "to": self.dst,
            "with": {"type_name": self.node_type, "entity_id": self.node_id},
        }


class EdgeKeeper:
    """Keeps edges with the nodes that answers keep. Nodes are settled before the first edge."""

    def __init__(self, parts: Mapping[TableKey, Merged]) -> None:
        self._parts = parts
        self._nodes: dict[str, dict[str, set[str]]] = {OURS: {}, THEIRS: {}}
        self.kept: list[KeptEdge] = []

    def note(self, type_name: str, settled: Settled) -> None:
        """Learn the nodes of a type that an answer keeps, by the side that deleted them."""
        for side, ids in settled.kept.items():
            self._nodes[side].setdefault(type_name, set()).update(ids)

    def answer(self, owner: EdgeType, conflict: MergeConflict) -> Answer:
        """The answer to the conflict of an edge that one side changed, and that the other lost with
        a node which is kept; None for any other conflict."""
        if conflict.kind != DELETE_VS_UPDATE or conflict.base is None:
            return None
        deleted_by, stays = (THEIRS, OURS) if conflict.theirs is None else (OURS, THEIRS)
        image = conflict.ours if conflict.theirs is None else conflict.theirs
        assert image is not None
        was, ends = conflict.base["endpoints"], image["endpoints"]
        node = self._kept_end(owner, deleted_by, was["from"], was["to"])
        if node is None or not self._both_exist(owner, ends["from"], ends["to"]):
            return None
        self._add(owner, conflict.entity_id or "", ends["from"], ends["to"], node)
        return stays

    def keep(self, owner: EdgeType, merge: TypeMerge, settled: Settled) -> None:
        """Keep the edges of one type that no side changed and one side lost with a node."""
        asked = pa.array([name for _, name in settled.asked], pa.string())
        if self._concerns(owner, THEIRS):
            source_rows, target_rows = merge.taken.rows()
            removed = target_rows.filter(source_rows.is_null())
            rows = merge.target.columns(removed, _ENDS)
            merge.taken.leave(removed.filter(self._chosen(owner, THEIRS, rows, asked)))
        if self._concerns(owner, OURS):
            away = merge.touched.filter(pc.is_null(merge.touched[AFTER]))[BEFORE].combine_chunks()
            taken, _ = merge.taken.rows()
            away = away.filter(pc.invert(pc.is_in(away, value_set=taken.drop_null())))
            rows = merge.source.columns(away, _ENDS)
            back = away.filter(self._chosen(owner, OURS, rows, asked))
            if len(back):
                merge.taken.add(back, pa.nulls(len(back), pa.uint64()))

    def _concerns(self, owner: EdgeType, side: str) -> bool:
        return bool(self._nodes[side].keys() & {owner.source, owner.target})

    def _chosen(self, owner: EdgeType, side: str, rows: pa.Table, asked: pa.Array) -> pa.Array:
        """Which of the edges that a side lost are kept."""
        nodes = self._nodes[side]
        touches = _among(rows["src"], nodes.get(owner.source, ())) | _among(
            rows["dst"], nodes.get(owner.target, ())
        )
        free = touches & ~mask_of(pc.is_in(rows["id"], value_set=asked))
        for end, node in (("src", owner.source), ("dst", owner.target)):
            missing = missing_nodes(self._parts, table_key(Kind.NODE, node))
            free &= ~mask_of(pc.is_in(rows[end], value_set=missing))
        for row in rows.take(pa.array(np.flatnonzero(free))).to_pylist():
            kept_end = self._kept_end(owner, side, row["src"], row["dst"])
            assert kept_end is not None
            self._add(owner, row["id"], row["src"], row["dst"], kept_end)
        return pa.array(free)

    def _kept_end(self, owner: EdgeType, side: str, src: str, dst: str) -> tuple[str, str] | None:
        """The kept node at an end of an edge: its type and id."""
        nodes = self._nodes[side]
        for type_name, node in ((owner.source, src), (owner.target, dst)):
            if node in nodes.get(type_name, ()):
                return type_name, node
        return None

    def _both_exist(self, owner: EdgeType, src: str, dst: str) -> bool:
        ends = ((owner.source, src), (owner.target, dst))
        return not any(
            pc.is_in(
                pa.scalar(node), value_set=missing_nodes(self._parts, table_key(Kind.NODE, name))
            ).as_py()
            for name, node in ends
        )

    def _add(self, owner: EdgeType, edge: str, src: str, dst: str, node: tuple[str, str]) -> None:
        self.kept.append(KeptEdge(owner.name, edge, src, dst, *node))


def _among(values: pa.ChunkedArray, ids: Collection[str]) -> Mask:
    return mask_of(pc.is_in(values, value_set=pa.array(list(ids), pa.string())))
