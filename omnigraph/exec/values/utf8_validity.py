"""UTF-8 validity of Arrow texts: Parquet files and Arrow streams may hold any bytes in them.

Invariant: a text that is stored can be decoded. Arrow does not look at the bytes of texts that it
reads, casts or copies, and fails when Python asks for one.
"""

import numpy as np
import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.exec.values.column_casts import is_string


def undecodable(values: pa.Array) -> np.ndarray:
    """The rows whose text, or a text among whose items, is not UTF-8. An array of texts that is
    broken otherwise raises `ArrowInvalid`."""
    if not _has_texts(values.type) or _is_valid(values):
        return np.empty(0, np.int64)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if len(values) == 1:
        return np.zeros(1, np.int64)
    # An array that is sliced is still checked as a whole below its lists: rows are copied.
    step = COSTS.texts_checked_together if len(values) > COSTS.texts_checked_together else 1
    parts = []
    for start in range(0, len(values), step):
        rows = np.arange(start, min(start + step, len(values)))
        parts.append(rows[undecodable(values.take(pa.array(rows)))])
    return np.concatenate(parts)


def _is_valid(values: pa.Array) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as cause:
        if "UTF8" in str(cause):
            return False
        raise
    return True


def _has_texts(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _has_texts(kind.value_type)
    return is_string(kind) or any(_has_texts(kind.field(n).type) for n in range(kind.num_fields))
