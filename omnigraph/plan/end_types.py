"""Types of the ends of an edge that a statement writes: an id, or the one value of a key.

Invariant: a text is always an id, or a key spelled as one; a value of another type is the key.
"""

from omnigraph.catalog.model import NodeType
from omnigraph.plan import ir
from omnigraph.plan.expressions import type_of
from omnigraph.types import ID_TYPE, Scalar, ValueType


def key_type(node: NodeType) -> ValueType | None:
    """The type of a key that is one value and no text; None for any other node."""
    prop = node.property(node.key[0]) if len(node.key) == 1 else None
    return None if prop is None or prop.type.scalar is Scalar.STRING else prop.type


def end_type(node: NodeType, value: ir.Expr) -> ValueType:
    """The type as which the value of an end is taken."""
    key = None if type_of(value).scalar is Scalar.STRING else key_type(node)
    return key or ID_TYPE
