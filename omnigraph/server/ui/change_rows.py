"""Changes as rows for people: an entity, and each property that differs, before and after.

Invariant: an inserted or deleted entity shows its values that are not null; a changed one what
differs, and nothing else.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.catalog.model import Type
from omnigraph.errors import OmnigraphError
from omnigraph.exec.changes.images import Image
from omnigraph.server.call import RouteCall
from omnigraph.server.ui.ui_render import cell, link

_SIGNS = {"insert": "+", "update": "~", "delete": "−"}
_MARKS = {"insert": "added", "update": "changed", "delete": "removed"}


def change_rows(
    call: RouteCall, changes: Iterable[Any], before: str | None, after: str
) -> list[dict[str, Any]]:
    """Each change with its sign, where its entity can be looked at, and its properties."""
    owners = _owners(call, after)
    rows = []
    for change in changes:
        point = before if change.op == "delete" else after
        rows.append(
            {
                "op": change.op,
                "sign": _SIGNS[change.op],
                "mark": _MARKS[change.op],
                "kind": change.kind,
                "type": change.type,
                "id": change.id,
                "link": link(
                    call.graph_id, "entities", change.kind, change.type, change.id, point=point
                ),
                "properties": property_rows(
                    owners.get((change.kind, change.type)), change.before, change.after
                ),
            }
        )
    return rows


def _owners(call: RouteCall, point: str) -> dict[tuple[str, str], Type]:
    try:
        catalog = call.graph.schema.at(point).catalog
    except OmnigraphError:
        return {}
    return {(str(owner.kind), owner.name): owner for owner in catalog.types}


def property_rows(
    owner: Type | None, before: Image | None, after: Image | None
) -> list[dict[str, Any]]:
    """The properties that differ between two images."""
    old, new = _values(before), _values(after)
    rows = []
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) == new.get(name) and before is not None and after is not None:
            continue
        if old.get(name) is None and new.get(name) is None:
            continue
        prop = None if owner is None else owner.property(name)
        rows.append(
            {
                "name": name,
                "before": None if before is None else cell(old.get(name), prop),
                "after": None if after is None else cell(new.get(name), prop),
            }
        )
    return rows


def summary_rows(counts: Mapping[tuple[str, str, str], int]) -> list[dict[str, Any]]:
    """Numbers of changes by kind, type and operation, as one row a type."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for (kind, name, op), count in counts.items():
        row = rows.setdefault((kind, name), {"name": name, **dict.fromkeys(_SIGNS, 0)})
        row[op] += count
    return list(rows.values())


def _values(image: Image | None) -> dict[str, Any]:
    if image is None:
        return {}
    if image.endpoints is None:
        return image.properties
    return {"from": image.endpoints[0], "to": image.endpoints[1], **image.properties}
