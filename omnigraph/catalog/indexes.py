"""Which index a property's type calls for.

Invariant: an index changes how fast an answer comes, never the answer.
"""

from enum import StrEnum

from omnigraph.types import Scalar, ValueType


class IndexKind(StrEnum):
    """What kind of index a column gets."""

    ORDERED = "ordered"
    FULL_TEXT = "full-text"
    VECTOR = "vector"


def index_kind(value_type: ValueType) -> IndexKind | None:
    """The kind of index for a property that asks for one. Lists and blobs get none."""
    if value_type.is_list or value_type.is_blob:
        return None
    if value_type.is_vector:
        return IndexKind.VECTOR
    if value_type.scalar is Scalar.STRING and value_type.enum_values is None:
        return IndexKind.FULL_TEXT
    return IndexKind.ORDERED
