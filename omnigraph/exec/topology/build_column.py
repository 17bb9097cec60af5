"""Builder of column files: one property of a node table, by number, for every process.

Invariant: a file is derived from one table version and one node file. Building changes no table and
no answer: when it fails, or another process is at it, the column is read as without.
"""

import numpy as np
import pyarrow as pa

from omnigraph.catalog.arrow import property_columns
from omnigraph.errors import OmnigraphError
from omnigraph.exec.values.columns import in_one
from omnigraph.exec.values.rows import gather
from omnigraph.storage.derived.column_file import ColumnFile, column_arrays, column_kind
from omnigraph.storage.derived.node_file import NodeFile
from omnigraph.storage.lance.columns import KEY
from omnigraph.storage.records import TablePin
from omnigraph.storage.store import Store
from omnigraph.types import PropertyId


def build_column(
    store: Store, base: TablePin, nodes: NodeFile, property_id: int, stored: str
) -> ColumnFile | None:
    """The file of a column, written unless another process is at it; None without one."""
    with store.derived.files.building() as is_builder:
        return column_made(store, base, nodes, property_id, stored) if is_builder else None


def column_made(
    store: Store, base: TablePin, nodes: NodeFile, property_id: int, stored: str
) -> ColumnFile | None:
    """The file of a column, written by the builder where it is missing; None when the version of
    the node file is gone, or has no such column."""
    derived = store.derived
    known = derived.column(base, nodes, property_id, stored, fetch=True)
    if known is not None:
        return known
    try:
        values = _values(store, base, nodes, property_id)
        if values is None or str(values.type) != stored:
            return None
        facts, arrays = column_arrays(values, nodes.digest)
        facts["property"] = property_id
        facts["fingerprint"] = derived.fingerprint(base)
        file = derived.files.write(column_kind(property_id), base, facts, arrays)
        return None if file is None else ColumnFile(file)
    except OmnigraphError as cause:
        store.stats.event("derived.unwritten", cause=str(cause))
        return None


def _values(store: Store, base: TablePin, nodes: NodeFile, property_id: int) -> pa.Array | None:
    """The values of the node file's version, by its numbers; null where a number has no row."""
    reader = store.tables.reader(base)
    name = property_columns(reader.schema).get(PropertyId(property_id))
    if name is None:
        return None
    if nodes.in_order:
        values = in_one(reader.rows([name])[name])
        return values if len(values) == nodes.count else None
    rows = reader.rows([KEY, name])
    indexes = np.full(nodes.count, -1)
    numbers = nodes.locate(in_one(rows[KEY]))
    if (numbers < 0).any():
        return None
    indexes[numbers] = np.arange(len(numbers))
    return gather(in_one(rows[name]), indexes)
