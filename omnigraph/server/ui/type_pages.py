"""Type page: entities of one type, a page at a time, filtered by a condition, in chosen columns.

Invariant: pages are of one commit and join. Without a condition a page reads its own rows; with
one it is a query, bounded like any other.
"""

import re
from typing import Any

from omnigraph.catalog.model import Type
from omnigraph.catalog.near_names import family_hint
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.exec.changes.entity_page import ListedEntity
from omnigraph.exec.changes.tokens import sealed, unsealed
from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.ui.ui_points import branch_names, shown_point
from omnigraph.server.ui.ui_render import cell, link, page, refusal_of

_ROWS = 50
_COLUMNS = 8
_VARIABLE = "it"
_BARE = re.compile(
    r"^\s*([a-z_]\w*)\s*(=|!=|<|>|is\b|in\b|contains\b|starts_with\b|ends_with\b|matches\b)"
)


def type_rows(call: RouteCall) -> Answer:
    """Rows of a type."""
    call.only("point", "where", "column", "page_token")
    point = shown_point(call)
    kind, name = call.path["kind"], call.path["type"]
    catalog = call.graph.schema.at(point.commit.id).catalog
    owner = catalog.node(name) if kind == "node" else catalog.edge(name)
    if owner is None or kind not in ("node", "edge"):
        raise NotFound("type", name, family_hint(name, catalog))
    where = (call.one("where") or "").strip()
    problem = None
    listed: tuple[ListedEntity, ...] = ()
    total, token = None, None
    try:
        listed, total, token = _page(call, owner, where, point.commit.id)
    except OmnigraphError as cause:
        if not where:
            raise
        problem = refusal_of(cause)[0]
    columns = _columns(owner, call.query.getlist("column"))
    scope = {"point": point.text, "where": where, "column": call.query.getlist("column")}
    return page(
        call,
        "type.html",
        status=400 if problem else 200,
        problem=problem,
        section="data",
        kind=kind,
        type=owner.name,
        owner=owner,
        point=point,
        where=where,
        columns=columns,
        properties=[prop.name for prop in owner.properties],
        rows=[_row(call, owner, point.text, columns, each) for each in listed],
        total=total,
        branches=branch_names(call.graph),
        more=token and link(call.graph_id, "types", kind, name, **scope, page_token=token),
    )


def _page(
    call: RouteCall, owner: Type, where: str, commit_id: str
) -> tuple[tuple[ListedEntity, ...], int | None, str | None]:
    """Entities, how many there are if that is known, and the token of the next page."""
    kind, name, text = str(owner.kind), owner.name, call.one("page_token")
    scope = [call.graph_id, kind, name, where]
    start = None if text is None else unsealed(text, "ui-type", scope)
    snapshot = commit_id if start is None else str(start[0])
    if not where:
        offset = 0 if start is None else int(start[1])
        read = call.graph.page(kind, name, offset=offset, limit=_ROWS, snapshot=snapshot)
        token = None
        if read.next_offset is not None:
            token = sealed("ui-type", scope, [read.commit_id, read.next_offset])
        return read.entities, read.total, token
    ids = _matching(call, owner, where, None if start is None else str(start[1]), snapshot)
    listed = call.graph.listed(kind, name, ids[:_ROWS], snapshot=snapshot)
    token = sealed("ui-type", scope, [snapshot, ids[_ROWS - 1]]) if len(ids) > _ROWS else None
    return listed, None, token


def _matching(
    call: RouteCall, owner: Type, where: str, after: str | None, snapshot: str
) -> list[str]:
    """The ids of a page's entities that a condition holds for, in their order."""
    condition = _BARE.sub(rf"${_VARIABLE}.\1 \2", where)
    if str(owner.kind) == "node":
        pattern = f"${_VARIABLE}: {owner.name}"
    else:
        pattern = f"$_ ${_VARIABLE}:{owner.name[0].lower()}{owner.name[1:]} $_"
    beyond = f"${_VARIABLE}.id > $after" if after is not None else ""
    declared = "$after: String" if after is not None else ""
    text = (
        f"query page({declared}) {{ match {{ {pattern} ({condition}\n) {beyond} }} "
        f"return {{ ${_VARIABLE}.id as id }} order {{ id }} limit {_ROWS + 1} }}"
    )
    given = {} if after is None else {"after": after}
    result = call.graph.query(text, given, snapshot=snapshot, engine="local", stop=call.stop)
    return [str(row["id"]) for row in result.rows]


def _columns(owner: Type, chosen: list[str]) -> list[str]:
    names = [prop.name for prop in owner.properties if not prop.type.is_vector]
    return [name for name in names if name in chosen] if chosen else names[:_COLUMNS]


def _row(
    call: RouteCall, owner: Type, point: str, columns: list[str], listed: ListedEntity
) -> dict[str, Any]:
    values = listed.image.properties
    address = link(call.graph_id, "entities", str(owner.kind), owner.name, listed.id, point=point)
    return {
        "id": listed.id,
        "link": address,
        "ends": listed.image.endpoints,
        "cells": [
            None if values.get(name) is None else cell(values[name], owner.property(name))
            for name in columns
        ],
    }
