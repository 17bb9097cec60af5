"""Index kinds: ordered, full-text or vector, by the type of the property.

Invariant: an index changes how fast an answer comes, never the answer.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from omnigraph.types import Scalar, TableKey, ValueType


class IndexKind(StrEnum):
    """The kinds of indexes a column can have."""

    ORDERED = "ordered"
    FULL_TEXT = "full-text"
    VECTOR = "vector"


class Metric(StrEnum):
    """How far apart two vectors are: their Euclidean distance, one less the cosine of their angle,
    one less their dot product."""

    L2 = "l2"
    COSINE = "cosine"
    DOT = "dot"


@dataclass(frozen=True, slots=True)
class IndexNote:
    """One index in a report, and the reason when it is not built yet."""

    table: TableKey
    column: str
    kind: IndexKind
    reason: str = ""


def index_kind(value_type: ValueType) -> IndexKind | None:
    """The kind of index for a property that asks for one. Lists and blobs get none."""
    if value_type.is_list:
        return None
    match value_type.scalar:
        case Scalar.BLOB:
            return None
        case Scalar.VECTOR:
            return IndexKind.VECTOR
        case Scalar.STRING:
            return IndexKind.FULL_TEXT if value_type.enum_values is None else IndexKind.ORDERED
        case Scalar.BOOL | Scalar.DATE | Scalar.DATETIME:
            return IndexKind.ORDERED
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64 | Scalar.F32 | Scalar.F64:
            return IndexKind.ORDERED
        case _:
            assert_never(value_type.scalar)
