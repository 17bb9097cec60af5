"""Columns of a type as Spark sees them: each with the nearest Arrow type that Spark has.

Invariant: no value is lost on the way. Unsigned 64-bit numbers become decimals, vectors lists.
"""

import pyarrow as pa

from omnigraph.exec.changes.export import column_type
from omnigraph.exec.load.ndjson import Owner
from omnigraph.pipeline.spark_types import nearest


def shown(owner: Owner) -> pa.Schema:
    """The columns of a type, each with the nearest type that Spark has."""
    kinds = {prop.name: column_type(prop) for prop in owner.properties}
    return pa.schema(
        [pa.field(f.name, nearest(kinds.get(f.name, f.type)), f.nullable) for f in owner.schema]
    )
