"""Named index of a pandas table: left out of its columns, and remembered by name.

Invariant: a load takes columns only. An index that is called like a property without a column was
likely meant as one, so the load is refused and says how to make it a column.
"""

import json
from typing import Any

import pyarrow as pa

from omnigraph.exec.load.column_names import ColumnNames

_INDEX = b"omnigraph.index"
RESET_INDEX = "reset_index() makes it a column, reset_index(drop=True) leaves it out"


def with_index_names(table: pa.Table, source: Any) -> pa.Table:
    """The columns of a pandas table, with the names of its index in their metadata."""
    index = getattr(source, "index", None)
    names = [name for name in getattr(index, "names", ()) if isinstance(name, str)]
    if not names:
        return table
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **_metadata(names)})


def renamed_index(schema: pa.Schema, columns: ColumnNames) -> dict[bytes, bytes] | None:
    """The names of an index for the metadata of columns that were renamed, each renamed alike."""
    names = [columns.get(name, name) for name in index_names(schema)]
    kept = [name for name in names if name is not None]
    return _metadata(kept) if kept else None


def _metadata(names: list[str]) -> dict[bytes, bytes]:
    return {_INDEX: json.dumps(names).encode()}


def index_names(schema: pa.Schema) -> list[str]:
    """The names of the index of the pandas table that columns were made of."""
    names: list[str] = json.loads((schema.metadata or {}).get(_INDEX, b"[]"))
    return names
