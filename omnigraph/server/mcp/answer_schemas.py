"""JSON Schemas of tool results, made from the bodies of the HTTP API.

Invariant: pure. A result that is cut has the member `truncated` beside its own, and still fits.
"""

from typing import Any

import msgspec

from omnigraph.server.wire import Body

JsonSchema = dict[str, Any]
_REF = "#/$defs/{name}"

TRUNCATED: JsonSchema = {
    "type": "object",
    "description": "What was left out, and how to get it.",
    "properties": {
        "shown": {"type": "integer"},
        "of": {"type": "integer"},
        "next": {"type": "object", "description": "Arguments that go on behind what is shown."},
        "hint": {"type": "string"},
    },
    "required": ["hint"],
}


def answer_schema(*shapes: type[Body], **members: JsonSchema) -> JsonSchema:
    """The schema of a result that is one of some bodies, with further members."""
    _, components = msgspec.json.schema_components(shapes, ref_template=_REF)
    extra = {"truncated": TRUNCATED, **members}
    if len(shapes) > 1:
        choices = [{"$ref": _REF.format(name=shape.__name__)} for shape in shapes]
        return {"type": "object", "properties": extra, "anyOf": choices, "$defs": components}
    root = components.pop(shapes[0].__name__)
    root = {name: value for name, value in root.items() if name != "title"}
    root["properties"] = {**root.get("properties", {}), **extra}
    return {**root, "$defs": components} if components else root


def object_schema(required: tuple[str, ...] = (), /, **properties: JsonSchema) -> JsonSchema:
    """The schema of an object that no body of the API is."""
    return {"type": "object", "properties": properties, "required": list(required)}


def result_schema(required: tuple[str, ...] = (), /, **properties: JsonSchema) -> JsonSchema:
    """The schema of a result that no body of the API is, and that may be cut."""
    return object_schema(required, **properties, truncated=TRUNCATED)


def list_of(items: JsonSchema) -> JsonSchema:
    """The schema of a list."""
    return {"type": "array", "items": items}


TEXT: JsonSchema = {"type": "string"}
NUMBER: JsonSchema = {"type": "number"}
WHOLE: JsonSchema = {"type": "integer"}
OBJECT: JsonSchema = {"type": "object"}
