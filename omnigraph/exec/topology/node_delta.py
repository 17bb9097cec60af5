"""Delta of a node table over its base file: ids that are new, gone or written again.

Invariant: base and delta together are the version: numbers of the base are kept, and new ids get
the numbers behind them in the order of the ids.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import property_columns
from omnigraph.costs import COSTS
from omnigraph.exec.values.columns import in_one
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.derived.node_file import NO_ROW, NodeFile
from omnigraph.storage.lance.columns import KEY
from omnigraph.storage.lance.reader import TableReader
from omnigraph.storage.lance.spans import AFTER


@dataclass(frozen=True, slots=True)
class NodeDelta:
    """The ids a delta touched, with their row ids now; `NO_ROW` where the node is gone."""

    ids: pa.Array
    row_ids: np.ndarray

    @property
    def is_gone(self) -> np.ndarray:
        """Flags of the ids that have no row now."""
        flags: np.ndarray = self.row_ids == NO_ROW
        return flags


def node_delta(touched: pa.Table) -> NodeDelta:
    """The delta that a comparison of two versions gives."""
    after = touched[AFTER].fill_null(pa.scalar(int(NO_ROW), pa.uint64()))
    return NodeDelta(in_one(touched[KEY]), after.to_numpy())


def kept_numbers(
    before: NodeFile, ids: pa.Array, row_ids: np.ndarray
) -> tuple[pa.Array, np.ndarray] | None:
    """The ids of a version by number with their row ids, so that those of an earlier file keep the
    number they have there; None when too many of that file are gone."""
    numbers = before.locate(ids)
    is_new = numbers < 0
    count = before.count + np.count_nonzero(is_new)
    if (count - len(ids)) * COSTS.node_gone_share > count:
        return None
    new = ids.filter(pa.array(is_new)).cast(before.strings.type)
    placed = np.full(count, NO_ROW)
    placed[numbers[~is_new]] = row_ids[~is_new]
    placed[before.count :] = row_ids[is_new]
    return pa.concat_arrays([before.strings, new]), placed


def id_columns_of(file: NodeFile, delta: NodeDelta, reader: TableReader) -> frozenset[int]:
    """The properties that equal the id in every row of a version: those of its base, unless a row
    of the delta differs."""
    names = _text_columns(reader)
    known = {prop: names[prop] for prop in file.id_columns if prop in names}
    row_ids = delta.row_ids[~delta.is_gone]
    if not known or not len(row_ids):
        return frozenset(known)
    rows = reader.by_row_id(pa.array(row_ids), [KEY, *known.values()])
    return frozenset(prop for prop, name in known.items() if _equal(rows, name))


def text_equal_to_id(reader: TableReader) -> dict[int, str]:
    """The text properties that may equal the id in every row, by a look at a few rows."""
    names = _text_columns(reader)
    if not names:
        return {}
    rows = reader.rows([KEY, *names.values()], limit=64)
    return {prop: name for prop, name in names.items() if _equal(rows, name)}


def equal_columns(rows: pa.Table, names: dict[int, str]) -> list[int]:
    """Those of the properties that equal the id in all rows."""
    return sorted(prop for prop, name in names.items() if _equal(rows, name))


def _text_columns(reader: TableReader) -> dict[int, str]:
    schema = reader.schema
    columns = property_columns(schema)
    return {
        int(prop): name
        for prop, name in columns.items()
        if pa.types.is_string(schema.field(name).type)
    }


def _equal(rows: pa.Table, name: str) -> bool:
    same = pc.equal(rows[KEY], rows[name]).fill_null(False)
    return bool(pc.all(same, min_count=0).as_py())
