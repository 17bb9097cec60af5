"""Entity ids of whole columns: what `catalog.ids.entity_id` derives from the key of each row.

Invariant: the id of a row is the one that `entity_id` gives for its key values.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.ids import entity_id
from omnigraph.catalog.model import Type
from omnigraph.exec.values.arrow_json import NotSure
from omnigraph.types import ID_TYPE, INTEGERS, Scalar, ValueType

_ESCAPED = r'["\\\x00-\x1f]'
"""What JSON writes otherwise than it is."""


def derived_ids(owner: Type, columns: Mapping[str, pa.Array]) -> pa.Array:
    """The ids that follow from key columns."""
    keys = [columns[name] for name in owner.key]
    if any(key.null_count for key in keys):
        raise NotSure
    if owner.key_is_id:
        return keys[0]
    texts = [_texts(owner, name, columns[name]) for name in owner.key]
    plain = [text for text in texts if text is not None]
    if len(plain) == len(keys):
        if len(plain) == 1:
            return plain[0]
        if not any(_is_escaped(text) for text in plain):
            joined = pc.binary_join_element_wise(*plain, '","')
            return pc.binary_join_element_wise('["', joined, '"]', "")
    rows = zip(*(_plain_values(key) for key in keys), strict=True)
    return pa.array(
        (entity_id(owner, dict(zip(owner.key, row, strict=True))) for row in rows), pa.utf8()
    )


def _texts(owner: Type, name: str, key: pa.Array) -> pa.Array | None:
    prop = owner.property(name)
    return canonical_texts(ID_TYPE if prop is None else prop.type, key)


def canonical_texts(value_type: ValueType, key: pa.Array) -> pa.Array | None:
    """The canonical texts of stored key values; None for floats, which Arrow spells otherwise."""
    scalar = value_type.scalar
    if scalar is Scalar.STRING:
        return key
    if scalar in INTEGERS or scalar is Scalar.BOOL:
        return key.cast(pa.utf8())
    if scalar is Scalar.DATE:
        return key.view(pa.int32()).cast(pa.utf8())
    return key.view(pa.int64()).cast(pa.utf8()) if scalar is Scalar.DATETIME else None


def _is_escaped(texts: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern=_ESCAPED)).as_py())


def _plain_values(key: pa.Array) -> list[Any]:
    """Key values as ids spell them: dates and timestamps as numbers."""
    if pa.types.is_date32(key.type):
        key = key.cast(pa.int32())
    elif pa.types.is_timestamp(key.type):
        key = key.cast(pa.int64())
    return list(key.to_pylist())
