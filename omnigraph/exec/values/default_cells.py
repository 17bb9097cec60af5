"""Default values of properties as stored cells, for the rows that leave a property out.

Invariant: a default means what `from_input.stored` says its JSON means, the same on every engine.
A value that was given, null included, is never replaced by a default.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.arrow import arrow_type
from omnigraph.catalog.model import Property, Type
from omnigraph.exec.values.from_input import column, stored


def default_value(prop: Property) -> Any:
    """The stored value of a property that is left out; None where it has no default."""
    default = prop.default
    return stored(list(default) if isinstance(default, tuple) else default, prop.type)


def default_values(owner: Type) -> dict[str, Any]:
    """The stored defaults of a type, by property; without those that have none."""
    return {p.name: default_value(p) for p in owner.properties if p.default is not None}


def default_cells(prop: Property, count: int) -> pa.Array:
    """A column of the default, or of nulls where there is none."""
    if prop.default is None:
        return pa.nulls(count, arrow_type(prop.type))
    return column([default_value(prop)], prop.type).take(pa.array(np.zeros(count, np.int64)))
