"""Typed-in values: the text of a form field as a value of a property, and a property as a field.

Invariant: what a field shows is read back as the same value. Whether it fits the property is the
engine's to say.
"""

import json
from typing import Any

from omnigraph.catalog.model import Property, Type
from omnigraph.errors import BadRequest
from omnigraph.server.ui.ui_render import readable

_UNQUOTED = ("Date", "DateTime", "String")
_LINE_ENDS = frozenset("\r\n")  # a field of one line loses them


def typed_value(prop: Property | None, text: str) -> Any:
    """The value that a text in a form means: JSON, or for texts and dates what is typed. An empty
    field is null, except in a text that may not be."""
    if prop is None:
        raise BadRequest("the form names a property that the type does not have")
    is_plain = str(prop.type.scalar) in _UNQUOTED and not prop.type.is_list
    if is_plain:
        if text == "" and (prop.type.nullable or not prop.type.is_text):
            return None
        return text
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise BadRequest(f"'{text[:40]}' is no value of {prop.name}: {prop.type}") from None


def form_field(prop: Property, value: Any, owner: Type, typed: str | None = None) -> dict[str, Any]:
    """A property as a field of a form: its text, what was typed in its place before, and whether it
    can be changed."""
    text = "" if value is None else readable(value, prop)
    is_fixed = prop.name in owner.key or prop.type.is_blob or prop.type.is_vector
    return {
        "name": prop.name,
        "type": str(prop.type),
        "text": text,
        "shown": text if typed is None else typed,
        "value": value,
        "is_fixed": is_fixed,
        "is_blob": prop.type.is_blob,
        "is_long": prop.type.is_text and _is_long(text if typed is None else typed),
        "choices": prop.type.enum_values if not prop.type.is_list else None,
        "nullable": prop.type.nullable,
    }


def _is_long(text: str) -> bool:
    return len(text) > 60 or not _LINE_ENDS.isdisjoint(text)


def edit_query(owner: Type, changed: dict[str, Property]) -> str:
    """The mutation that sets these properties of one entity."""
    declared = ", ".join(f"$p{n}: {_parameter(prop)}" for n, prop in enumerate(changed.values()))
    sets = ", ".join(f"{name}: $p{n}" for n, name in enumerate(changed))
    return (
        f"query edit($entity: String, {declared}) "
        f"{{ update {owner.name} set {{ {sets} }} where id = $entity }}"
    )


def _parameter(prop: Property) -> str:
    """The type of a parameter for a property: enums are texts."""
    scalar = "String" if prop.type.enum_values is not None else str(prop.type.scalar)
    base = f"[{scalar}]" if prop.type.is_list else scalar
    return f"{base}?" if prop.type.nullable else base
