"""Which index a type calls for."""

import pytest

from omnigraph.catalog.indexes import IndexKind, index_kind
from omnigraph.types import Scalar, ValueType


@pytest.mark.parametrize(
    ("value_type", "kind"),
    [
        (ValueType(Scalar.STRING), IndexKind.FULL_TEXT),
        (ValueType(Scalar.STRING, enum_values=("a",)), IndexKind.ORDERED),
        (ValueType(Scalar.BOOL), IndexKind.ORDERED),
        (ValueType(Scalar.U64, nullable=True), IndexKind.ORDERED),
        (ValueType(Scalar.F32), IndexKind.ORDERED),
        (ValueType(Scalar.DATE), IndexKind.ORDERED),
        (ValueType(Scalar.DATETIME), IndexKind.ORDERED),
        (ValueType(Scalar.VECTOR, dimension=4), IndexKind.VECTOR),
        (ValueType(Scalar.I32, is_list=True), None),
        (ValueType(Scalar.BLOB), None),
    ],
)
def test_the_type_decides_the_kind_of_index(value_type: ValueType, kind: IndexKind | None) -> None:
    assert index_kind(value_type) is kind
