"""Schema trees as canonical text, to test the parser with.

Invariant: `parse_schema(format_schema(tree)) == tree` for every tree the parser makes, and equal
trees give the same text.
"""

import re
from typing import assert_never

from omnigraph.language.reader import quote
from omnigraph.language.schema.ast import (
    Annotation,
    CheckConstraint,
    ColumnConstraint,
    Constraint,
    Declaration,
    Edge,
    Interface,
    Name,
    Node,
    Property,
    RangeConstraint,
    Schema,
)
from omnigraph.language.schema.literals import format_default, format_interval, format_literal

_INDENT = "  "
_BARE_WORD = re.compile(r"(?!(?:true|false)\Z)[a-z_][A-Za-z0-9_]*\Z")


def format_schema(schema: Schema) -> str:
    """The canonical text of a schema: one member a line, a blank line between declarations."""
    return "\n".join(f"{_declaration(declaration)}\n" for declaration in schema.declarations)


def _declaration(declaration: Declaration) -> str:
    match declaration:
        case Interface(name=name, properties=properties):
            return f"interface {name} {_body(properties, ())}"
        case Node():
            return f"{_node_head(declaration)} " + _body(
                declaration.properties, declaration.constraints
            )
        case Edge():
            head = _edge_head(declaration)
            if not declaration.properties and not declaration.constraints:
                return head
            return f"{head} {_body(declaration.properties, declaration.constraints)}"
        case _:
            assert_never(declaration)


def _node_head(node: Node) -> str:
    parts = [f"node {node.name}", *map(format_annotation, node.annotations)]
    if node.implements:
        parts.append(f"implements {_names(node.implements)}")
    return " ".join(parts)


def _edge_head(edge: Edge) -> str:
    parts = [f"edge {edge.name}: {edge.source} -> {edge.target}"]
    if edge.cardinality is not None:
        high = "" if edge.cardinality.high is None else edge.cardinality.high
        parts.append(f"@card({edge.cardinality.low}..{high})")
    if edge.key is not None:
        parts.append(_constraint(edge.key))
    parts.extend(map(format_annotation, edge.annotations))
    return " ".join(parts)


def _body(properties: tuple[Property, ...], constraints: tuple[Constraint, ...]) -> str:
    lines = [*map(_property, properties), *map(_constraint, constraints)]
    if not lines:
        return "{}"
    inner = "\n".join(f"{_INDENT}{line}" for line in lines)
    return f"{{\n{inner}\n}}"


def _property(prop: Property) -> str:
    default = [] if prop.default is None else [f"= {format_default(prop.default.value)}"]
    notes = map(format_annotation, prop.annotations)
    return " ".join([f"{prop.name}: {prop.type.value}", *default, *notes])


def _constraint(constraint: Constraint) -> str:
    match constraint:
        case ColumnConstraint(kind=kind, columns=columns):
            return f"@{kind}({_names(columns)})"
        case RangeConstraint(property=name, low=low, high=high):
            return f"@range({name}, {format_interval(low, high)})"
        case CheckConstraint(property=name, pattern=pattern):
            return f"@check({name}, {quote(pattern)})"
        case _:
            assert_never(constraint)


def _names(names: tuple[Name, ...]) -> str:
    return ", ".join(name.text for name in names)


def format_annotation(annotation: Annotation) -> str:
    """`@name(value, key=value)`. `@embed` names a property, so its value is bare if it can be."""
    if annotation.value is None:
        return f"@{annotation.name}"
    value = annotation.value
    bare = annotation.name == "embed" and isinstance(value, str) and _BARE_WORD.match(value)
    first = str(value) if bare else format_literal(value)
    rest = (f"{key}={format_literal(value)}" for key, value in annotation.kwargs)
    return f"@{annotation.name}({', '.join([first, *rest])})"
