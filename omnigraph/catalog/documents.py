"""JSON documents of catalog types, and the schema fingerprint, a SHA-256 over them.

Invariant: a document is plain JSON and holds all that its type holds.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omnigraph.catalog.model import (
    Annotation,
    Default,
    EdgeType,
    Family,
    Interface,
    NodeType,
    Property,
)
from omnigraph.types import ValueType

Document = dict[str, Any]


def fingerprint(
    nodes: Mapping[str, NodeType],
    edges: Mapping[str, EdgeType],
    interfaces: Mapping[str, Interface],
) -> str:
    """Equal for equal meaning and identities. The order of declarations is not meaning, and which
    of two agreeing interfaces a property came from is not either."""
    meaning = {
        "interfaces": _unordered(map(interface_document, interfaces.values())),
        "nodes": _unordered(map(node_document, nodes.values())),
        "edges": _unordered(map(edge_document, edges.values())),
    }
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


_ORDERED = frozenset({"key", "default"})


def _unordered(documents: Iterable[Document]) -> list[Any]:
    return _sorted(_canonical(document) for document in documents)


def _canonical(value: Any) -> Any:
    """A document with every list sorted but those whose order means something."""
    if isinstance(value, dict):
        members = {
            key: item if key in _ORDERED else _canonical(item) for key, item in value.items()
        }
        if "injected_from" in members:
            members["injected_from"] = members["injected_from"] is not None
        return members
    if isinstance(value, list):
        return _sorted(map(_canonical, value))
    return value


def _sorted(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=lambda value: json.dumps(value, sort_keys=True))


def type_document(value_type: ValueType) -> Document:
    """A value type as plans and catalogs write it. A vector's scalar carries its dimension."""
    scalar: Any = str(value_type.scalar)
    if value_type.is_vector:
        scalar = {scalar: value_type.dimension}
    values = value_type.enum_values
    return {
        "scalar": scalar,
        "nullable": value_type.nullable,
        "list": value_type.is_list,
        "enum_values": None if values is None else list(values),
    }


def annotation_document(annotation: Annotation) -> Document:
    """An annotation as plans and catalogs write it."""
    return {
        "name": annotation.name,
        "value": annotation.value,
        "kwargs": dict(annotation.kwargs),
    }


def _annotations(annotations: Sequence[Annotation]) -> list[Document]:
    return [annotation_document(annotation) for annotation in annotations]


def _property(prop: Property) -> Document:
    embed = prop.embed and {"source": prop.embed.source, "model": prop.embed.model}
    return {
        "id": prop.id,
        "name": prop.name,
        "type": type_document(prop.type),
        "annotations": _annotations(prop.annotations),
        "embed": embed,
        "injected_from": prop.injected_from,
        **default_document(prop.default),
    }


def default_document(default: Default | None) -> Document:
    """A default as plans and catalogs write it: no member where there is none, so that a schema
    without defaults has the document it always had."""
    if default is None:
        return {}
    return {"default": list(default) if isinstance(default, tuple) else default}


def interface_document(interface: Interface) -> Document:
    """An interface as catalogs write it."""
    return {
        "id": interface.id,
        "name": interface.name,
        "properties": [_property(prop) for prop in interface.properties],
        "keys": list(interface.keys),
        "uniques": list(interface.uniques),
        "indexes": list(interface.indexes),
    }


def node_document(node: NodeType) -> Document:
    """A node type as catalogs write it."""
    return {
        "id": node.id,
        "name": node.name,
        "properties": [_property(prop) for prop in node.properties],
        "key": list(node.key),
        "uniques": [list(columns) for columns in node.uniques],
        "indexes": list(node.indexes),
        "ranges": [{"property": r.property, "low": r.low, "high": r.high} for r in node.ranges],
        "checks": [{"property": c.property, "pattern": c.pattern} for c in node.checks],
        "implements": list(node.implements),
        "annotations": _annotations(node.annotations),
    }


def edge_document(edge: EdgeType) -> Document:
    """An edge type as catalogs write it; without a key it is as before edges could have one."""
    return {
        "id": edge.id,
        "name": edge.name,
        "source": edge.source,
        "target": edge.target,
        "properties": [_property(prop) for prop in edge.properties],
        "cardinality": {"low": edge.cardinality.low, "high": edge.cardinality.high},
        "uniques": [list(columns) for columns in edge.uniques],
        "indexes": list(edge.indexes),
        "annotations": _annotations(edge.annotations),
        **({"key": list(edge.key)} if edge.key else {}),
        **_family(edge.family),
    }


def _family(family: Family | None) -> Document:
    """The family of a member; edges between node types do not mention any."""
    if family is None:
        return {}
    ends = {"source": family.source, "target": family.target}
    return {"family": {"name": family.name, **ends}}
