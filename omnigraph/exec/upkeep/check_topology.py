"""Integrity check of derived topology files: each compared with the table version it names.

Invariant: nothing is written, not even a damaged file removed. A file whose version is gone, also
with its branch, is no finding: it is never used, and cleanup removes it.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import property_columns
from omnigraph.errors import OmnigraphError
from omnigraph.exec.upkeep.findings import Finding
from omnigraph.exec.values.columns import in_one
from omnigraph.number_arrays import to_arrow
from omnigraph.storage.derived.column_file import ColumnFile, is_column_kind
from omnigraph.storage.derived.derived_folder import EDGES, NODES, DerivedEntry, is_of, pin_of
from omnigraph.storage.derived.edge_delta_file import EDGE_DELTAS, EdgeDeltaFile
from omnigraph.storage.derived.edge_file import EdgeFile, Way
from omnigraph.storage.derived.mapped_file import DamagedFile, MappedFile
from omnigraph.storage.derived.node_file import NO_ROW, NodeFile
from omnigraph.storage.lance.columns import KEY, ROW_ID
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.store import Store
from omnigraph.types import PropertyId

_ADVICE = "delete the file: it is made again"


def topology_findings(store: Store) -> Iterator[Finding]:
    """Files that are damaged, of another graph, or differ from their tables."""
    files = store.derived.files
    entries = [entry for entry in files.everything() if files.is_present(entry)]
    nodes = _node_files(entries)
    for entry in entries:
        try:
            fault = _fault(store, entry, nodes)
        except DamagedFile as damaged:
            fault = damaged.fact
        except OmnigraphError:
            continue  # the version it names is gone, or the table's own check says what is wrong
        if fault is not None:
            yield Finding("topology", str(entry.path), fault, _ADVICE, {"path": str(entry.path)})


def _node_files(entries: list[DerivedEntry]) -> list[NodeFile]:
    files = []
    for entry in entries:
        if entry.name.kind == NODES:
            try:
                files.append(NodeFile(MappedFile(entry.path, entry.name.digest)))
            except DamagedFile:
                continue
    return files


def _fault(store: Store, entry: DerivedEntry, nodes: list[NodeFile]) -> str | None:
    file = MappedFile(entry.path, entry.name.digest)
    file.verify_all()
    pin = pin_of(file)
    if not is_of(file, entry.name.kind, pin, store.derived.fingerprint(pin)):
        # In a cache folder it is of an earlier graph at the same address, and is never used.
        is_own = store.derived.files.own in entry.path.parents
        return "it is of another table version than its name tells" if is_own else None
    reader = store.tables.reader(pin)
    if entry.name.kind == NODES:
        return _nodes_fault(NodeFile(file), reader)
    if is_column_kind(entry.name.kind):
        return _column_fault(ColumnFile(file), int(file.facts["property"]), nodes, reader)
    if entry.name.kind == EDGE_DELTAS:
        return _delta_fault(store, EdgeDeltaFile(file), nodes, reader)
    edges = EdgeFile(file)
    ends = [_with_lineage(nodes, digest) for digest in edges.ends]
    if ends[0] is None or ends[1] is None:
        return None  # without the node files of its ends nobody uses it
    return _edges_fault(edges, (ends[0], ends[1]), reader)


def _with_lineage(nodes: list[NodeFile], digest: str) -> NodeFile | None:
    return next((each for each in nodes if digest in each.lineage), None)


def _nodes_fault(file: NodeFile, reader: TableReader) -> str | None:
    rows = reader.rows([KEY], with_row_id=True)
    numbers = file.locate(in_one(rows[KEY]))
    if (numbers < 0).any():
        return f"{int((numbers < 0).sum())} ids of the table are not in it"
    row_ids = file.row_ids.whole()
    if (row_ids[numbers] != rows[ROW_ID].to_numpy()).any():
        return "an id has another row id than in the table"
    if int((row_ids != NO_ROW).sum()) != rows.num_rows:
        return "it has ids that the table has not"
    return None


def _column_fault(
    file: ColumnFile, property_id: int, nodes: list[NodeFile], reader: TableReader
) -> str | None:
    own = next((each for each in nodes if each.digest == file.nodes), None)
    name = property_columns(reader.schema).get(PropertyId(property_id))
    if own is None or name is None:
        return None  # without its node file nobody uses it
    rows = reader.rows([KEY, name])
    values = in_one(rows[name])
    if str(values.type) != file.type or file.count != own.count:
        return "it has values of another type, or another number of them"
    numbers = own.locate(in_one(rows[KEY]))
    theirs = file.whole(values.type).take(to_arrow(numbers))
    return None if theirs.equals(values) else "a value is not that of the table"


def _edges_fault(
    file: EdgeFile, nodes: tuple[NodeFile, NodeFile], reader: TableReader
) -> str | None:
    rows = reader.rows(["src", "dst"], with_row_id=True)
    positions = file.positions_of(rows[ROW_ID].to_numpy())
    if len(positions) != file.count or (positions < 0).any():
        return f"it has {file.count} edges and the table {len(positions)}"
    for way, near, far in ((Way.OUT, "src", "dst"), (Way.IN, "dst", "src")):
        own, other = nodes if way is Way.OUT else (nodes[1], nodes[0])
        if not _equal_way(file, way, (own, other), rows.select([near, far]), positions):
            return f"its neighbours {way} are not those of the table"
    return None


def _delta_fault(
    store: Store, delta: EdgeDeltaFile, nodes: list[NodeFile], reader: TableReader
) -> str | None:
    """Whether edge file and delta together have other edges than the table."""
    files = store.derived.files
    under = next(
        (
            EdgeFile(MappedFile(each.path, each.name.digest))
            for each in files.listed(reader.pin)
            if each.name.kind == EDGES and each.name.digest == delta.base and files.is_present(each)
        ),
        None,
    )
    near, far = (_with_lineage(nodes, digest) for digest in delta.ends)
    if under is None or near is None or far is None:
        return None  # without those nobody uses it
    delta.require_over(under)
    rows = reader.rows(["src", "dst"], with_row_id=True)
    old = under.positions_of(rows[ROW_ID].to_numpy())
    old[np.isin(old, delta.removed)] = -1
    own = np.arange(under.count, under.count + len(delta.row_ids))
    live = ~np.isin(own, delta.removed)
    fresh = rows[ROW_ID].to_numpy()[old < 0]
    gone = int(np.count_nonzero(delta.removed < under.count))
    if not np.array_equal(np.sort(fresh), np.sort(delta.row_ids[live])):
        return "its new edges are not those of the table"
    if under.count - gone + len(fresh) != rows.num_rows:
        return f"it leaves {under.count - gone} old edges and the table {int((old >= 0).sum())}"
    order = np.argsort(delta.row_ids[live])
    added = rows.filter(pa.array(old < 0)).sort_by(ROW_ID)
    for column, theirs, file in (("src", delta.source, near), ("dst", delta.target, far)):
        if not np.array_equal(file.locate(in_one(added[column])), theirs[live][order]):
            return f"a new edge has another {column} than in the table"
    return None


def _equal_way(
    file: EdgeFile,
    way: Way,
    nodes: tuple[NodeFile, NodeFile],
    rows: pa.Table,
    positions: np.ndarray,
) -> bool:
    lists = file.multiple[way]
    assert lists.edges is not None
    starts = lists.starts.whole().astype(np.int64)
    order = np.empty(file.count, np.int64)
    edges = lists.edges.whole()
    if len(edges) != file.count:
        return True  # edges whose nodes are missing are in no list; their table has a finding
    order[positions] = np.arange(file.count)
    rows = rows.take(pa.array(order[edges]))
    near = nodes[0].ids_of(np.repeat(np.arange(lists.nodes), starts[1:] - starts[:-1]))
    far = nodes[1].ids_of(lists.neighbours.whole().astype(np.int64))
    sides = ((in_one(rows.column(0)), near), (in_one(rows.column(1)), far))
    return all(bool(pc.all(pc.equal(ours, theirs), min_count=0).as_py()) for ours, theirs in sides)
