"""Parallel edges of a merge load: new edges for which an equal one is committed already.

Invariant: the count changes nothing. It costs what the load brings: the edges of its sources are
looked up, and nothing is counted beyond `parallel_edges_rows_max` new edges of a type.
"""

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import EdgeType
from omnigraph.costs import COSTS
from omnigraph.exec.values.selection import rows_by_key
from omnigraph.storage.lance.reader import TableReader


def beside_equal(edge: EdgeType, rows: pa.Table, stated: pa.Table | None, base: TableReader) -> int:
    """How many of the rows without an id of their own equal a committed edge: the same ends and the
    same properties. `stated` are ids that the input gives; a blob equals none."""
    if stated is not None:
        rows = rows.filter(pc.invert(pc.is_in(rows["id"], value_set=stated["id"].combine_chunks())))
    blobs = [prop.name for prop in edge.properties if prop.type.is_blob]
    for name in blobs:
        rows = rows.filter(rows[name].is_null())
    if not rows.num_rows or rows.num_rows > COSTS.parallel_edges_rows_max or not base.pin.row_count:
        return 0
    names = ["src", "dst", *(p.name for p in edge.properties if not p.type.is_blob)]
    sources, targets = (pc.unique(rows[end]) for end in ("src", "dst"))
    committed = rows_by_key(base, "src", sources, [*names, *blobs])
    committed = committed.filter(pc.is_in(committed["dst"], value_set=targets))
    for name in blobs:
        committed = committed.filter(committed[name].is_null())
    known = set(_tuples(committed, names))
    return sum(row in known for row in _tuples(rows, names))


def _tuples(rows: pa.Table, names: list[str]) -> list[str]:
    """Each row as one comparable text; lists and vectors have no hash."""
    columns = (rows[name].to_pylist() for name in names)
    return [repr(row) for row in zip(*columns, strict=True)]
