"""Ids that texts name: an id itself, or a key spelled in the way of its types (ISO dates, `3.0`).

Invariant: an id names itself. A text that is no id of a type whatever it holds, but spells values
of its key, names the id of that key; any other text is returned as it is, and names nothing.
`named_ids` gives of every text what `named_id` gives.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.ids import canonical_text, entity_id
from omnigraph.catalog.model import Catalog, EdgeType, NodeType, Type
from omnigraph.errors import BadRequest
from omnigraph.exec.values.from_input import Unfit, stored
from omnigraph.types import ID_TYPE, INTEGERS, Scalar, ValueType

_INTEGER = r"-?(?:0|[1-9][0-9]*)"
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}(?:\.0{0,20})?", re.ASCII)
_STRING = r'"(?:[^"\\]|\\.)*"'


def named_id(owner: Type, text: str, catalog: Catalog | None = None) -> str:
    """The id of the node or edge that a text names. With a catalog the ends in the key of an edge
    may be keys of their nodes."""
    ends = _ends(owner, catalog)
    form = _form(owner)
    if not ends and (form is None or form.fullmatch(text)):
        return text
    kinds = _kinds(owner)
    if len(kinds) == 1:
        return respelled(text, kinds[0]) or text
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return _of_values(owner, values, ends) or text


def named_ids(owner: Type, texts: pa.Array) -> pa.Array:
    """The ids of the nodes that texts name."""
    form = _form(owner)
    if form is None:
        return texts
    are_ids = pc.fill_null(pc.match_substring_regex(texts, pattern=f"^(?:{form.pattern})$"), True)
    if pc.all(are_ids, min_count=0).as_py():
        return texts
    named = pa.array(
        (text if text is None else named_id(owner, text) for text in texts.to_pylist()), pa.utf8()
    )
    return pc.if_else(are_ids, texts.cast(pa.utf8()), named)


def end_id(node: NodeType, end: Any) -> Any:
    """Return the id of the node that an id, a key value or an array of key values names; any other
    value unchanged. Loads and mutations read the ends of edges with this function alone, or with a
    fast path of it (`named_ids`, `canonical_texts`)."""
    if isinstance(end, str):
        return named_id(node, end)
    named = None if end is None else id_of_key(node, end)
    return end if named is None else named


def id_of_key(owner: Type, key: Any) -> str | None:
    """The id of the node with a key that is one value, or an array of its values; None for what is
    no such key."""
    values = list(key) if isinstance(key, list | tuple) else [key]
    return _of_values(owner, values)


def respelled(text: str, value_type: ValueType) -> str | None:
    """The canonical text of a key that `text` spells in its type's way, if it does."""
    try:
        value = _value(text.strip(), value_type.scalar)
        return canonical_text(value_type, stored(value, value_type))
    except (ValueError, KeyError, ArithmeticError, Unfit, BadRequest):
        return None


def _ends(owner: Type, catalog: Catalog | None) -> dict[str, NodeType]:
    """The nodes at the ends of an edge with a key, which has both in it."""
    if catalog is None or not isinstance(owner, EdgeType) or not owner.key:
        return {}
    return {"src": catalog.nodes[owner.source], "dst": catalog.nodes[owner.target]}


def _of_values(
    owner: Type, values: Any, ends: Mapping[str, NodeType] = MappingProxyType({})
) -> str | None:
    kinds = _kinds(owner)
    if not kinds or not isinstance(values, list) or len(values) != len(kinds):
        return None
    key: dict[str, Any] = {}
    for name, kind, value in zip(owner.key, kinds, values, strict=True):
        if name in ends:
            value = _end(ends[name], value)
        try:
            key[name] = stored(_typed(value, kind.scalar), kind)
        except (ValueError, KeyError, ArithmeticError, Unfit, BadRequest):
            return None
    try:
        return entity_id(owner, key)
    except BadRequest:
        return None


def _end(node: NodeType, value: Any) -> Any:
    """The id of the node that an end in the key of an edge names by its id or key; any other value
    as it is."""
    if isinstance(value, str):
        return named_id(node, value)
    named = id_of_key(node, value)
    return value if named is None else named


def _typed(value: Any, scalar: Scalar) -> Any:
    """A value of a key as its type has it: inside of an array it may be a text."""
    if isinstance(value, float) and scalar in INTEGERS and value.is_integer():
        return int(value)
    if not isinstance(value, str) or scalar is Scalar.STRING:
        return value
    if scalar in (Scalar.DATE, Scalar.DATETIME) and _WHOLE.fullmatch(value):
        return int(value)  # as ids have them
    return _value(value, scalar)


def _value(text: str, scalar: Scalar) -> Any:
    """The value that a text spells."""
    match scalar:
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            if _WHOLE.fullmatch(text) is None:
                raise ValueError(text)
            return int(Decimal(text))
        case Scalar.F32 | Scalar.F64:
            return float(text)
        case Scalar.BOOL:
            return {"true": True, "false": False}[text.lower()]
        case Scalar.STRING | Scalar.DATE | Scalar.DATETIME | Scalar.BLOB | Scalar.VECTOR:
            return text
        case _:
            assert_never(scalar)


def _kinds(owner: Type) -> list[ValueType]:
    types = {prop.name: prop.type for prop in owner.properties}
    return [types.get(name, ID_TYPE) for name in owner.key]  # the ends of an edge are ids


def _form(owner: Type) -> re.Pattern[str] | None:
    """A pattern that only ids of a type match; None where every text is an id."""
    kinds = _kinds(owner)
    if not kinds or (len(kinds) == 1 and kinds[0].scalar is Scalar.STRING):
        return None
    return _pattern(tuple(kind.scalar for kind in kinds))


@lru_cache(maxsize=256)
def _pattern(scalars: tuple[Scalar, ...]) -> re.Pattern[str]:
    forms = [_scalar_form(scalar) for scalar in scalars]
    if len(forms) == 1:
        return re.compile(forms[0])
    quoted = [
        _STRING if scalar is Scalar.STRING else f'"(?:{form})"'
        for scalar, form in zip(scalars, forms, strict=True)
    ]
    return re.compile(rf"\[{','.join(quoted)}\]")


def _scalar_form(scalar: Scalar) -> str:
    match scalar:
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64 | Scalar.DATE | Scalar.DATETIME:
            return _INTEGER
        case Scalar.BOOL:
            return "true|false"
        case Scalar.F32 | Scalar.F64:
            return r"[^\s\S]"  # which float a text is, only reading it tells
        case Scalar.STRING | Scalar.BLOB | Scalar.VECTOR:
            return r"[\s\S]*"
        case _:
            assert_never(scalar)
