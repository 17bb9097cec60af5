"""Entity page: properties, blobs, neighbourhood, edges by type, history; and an edit on a branch.

Invariant: an edit is one commit on a branch that the form names, never on main unless main was
chosen. The picture's state is in the address: what was expanded, hidden and pinned.
"""

import json
from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

from omnigraph.catalog.model import NodeType, Type
from omnigraph.catalog.near_names import family_hint
from omnigraph.draw.neighbourhood_picture import neighbourhood_picture
from omnigraph.draw.svg import Picture
from omnigraph.errors import BadRequest, NotFound, OmnigraphError
from omnigraph.exec.changes.neighbourhood import NODES_MAX, PAGE_EDGES, Expansion, Neighbourhood
from omnigraph.server.blob_route import get_blob
from omnigraph.server.call import JSON, Answer, RouteCall
from omnigraph.server.ui.change_rows import property_rows
from omnigraph.server.ui.entity_forms import edit_query, form_field, typed_value
from omnigraph.server.ui.ui_forms import fields
from omnigraph.server.ui.ui_points import ShownPoint, branch_names, branch_of_form, shown_point
from omnigraph.server.ui.ui_render import (
    SECURITY,
    SVG,
    download,
    link,
    moved_with,
    page,
    refusal_of,
)
from omnigraph.storage.names import MAIN

_REVISIONS = 20
_STEPS_MAX = 60
_FAR = 1e6  # no picture is as wide
_STATE = ("x", "hide", "pin", "sel")
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
_IMAGE_BYTES_MAX = 8 << 20


def entity(call: RouteCall) -> Answer:
    """One node or edge."""
    call.only("point", "before", *_STATE)
    return _entity_page(call)


def _entity_page(
    call: RouteCall,
    problem: str | None = None,
    status: int = 200,
    draft: Mapping[str, str] = MappingProxyType({}),
) -> Answer:
    point = shown_point(call)
    kind, type_name, entity_id = _named(call)
    shown = call.graph.entity(kind, type_name, entity_id, snapshot=point.commit.id)
    owner = _owner(call, point, kind, type_name)
    revisions, older = _revisions(call, point, owner)
    values: dict[str, Any] = {"picture": None, "seen": None}
    if kind == "node":
        values |= _around(call, point)
    others = [name for name in branch_names(call.graph) if name != MAIN]
    return page(
        call,
        "entity.html",
        status=status,
        problem=problem,
        section="data",
        kind=kind,
        type=type_name,
        id=entity_id,
        owner=owner,
        point=point,
        fields=[
            form_field(p, shown.image.properties.get(p.name), owner, _typed(draft, p.name))
            for p in owner.properties
        ],
        draft=draft,
        endpoints=_endpoints(owner, shown.image.endpoints),
        edges=shown.edges,
        revisions=revisions,
        older=older,
        other_branches=others,
        is_main=point.text == MAIN,
        blob=lambda name: link(
            call.graph_id,
            "blob",
            entity=kind,
            type=type_name,
            id=entity_id,
            property=name,
            snapshot=point.commit.id,
        ),
        **values,
    )


def _typed(draft: Mapping[str, str], name: str) -> str | None:
    """What was typed into the field of a property, if it is not what the field had shown."""
    text = draft.get(f"new.{name}")
    return None if text == draft.get(f"old.{name}") else text


def _named(call: RouteCall) -> tuple[str, str, str]:
    return call.path["kind"], call.path["type"], call.path["id"]


def _owner(call: RouteCall, point: ShownPoint, kind: str, type_name: str) -> Type:
    catalog = call.graph.schema.at(point.commit.id).catalog
    owner = catalog.node(type_name) if kind == "node" else catalog.edge(type_name)
    if owner is None:
        raise NotFound("type", type_name, family_hint(type_name, catalog))
    return owner


def _endpoints(owner: Type, ends: tuple[str, str] | None) -> list[tuple[str, str, str]]:
    if ends is None or isinstance(owner, NodeType):
        return []
    return [("from", owner.source, ends[0]), ("to", owner.target, ends[1])]


def _revisions(
    call: RouteCall, point: ShownPoint, owner: Type
) -> tuple[list[dict[str, Any]], str | None]:
    history = call.graph.history(*_named(call), snapshot=point.text, before=call.one("before"))
    rows = list(islice(history, _REVISIONS + 1))
    shown = [
        {
            "commit": each.cause,
            "op": each.change.op,
            "properties": property_rows(owner, each.change.before, each.change.after),
        }
        for each in rows[:_REVISIONS]
    ]
    if len(rows) <= _REVISIONS:
        return shown, None
    return shown, _here(call, before=rows[_REVISIONS - 1].cause.id)


# ---- the neighbourhood


def _state(call: RouteCall) -> tuple[list[Expansion] | None, list[str], dict[str, Any], list[str]]:
    """What the address says of the picture: expansions, what is hidden, what is pinned, and the
    node that is chosen."""
    try:
        steps = [Expansion(*_step(json.loads(text))) for text in call.query.getlist("x")]
        pins = dict(_pin(json.loads(text)) for text in call.query.getlist("pin"))
        chosen = json.loads(call.one("sel") or "[]")
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise BadRequest("the address of the picture cannot be read") from None
    if len(steps) > _STEPS_MAX:
        raise BadRequest(f"a picture has at most {_STEPS_MAX} expansions", "undo some")
    is_named = isinstance(chosen, list) and len(chosen) == 2
    return steps or None, call.query.getlist("hide"), pins, chosen if is_named else []


def _step(facts: list[Any]) -> tuple[str, str, str, str, int]:
    type_name, entity_id, edge, direction, limit = facts
    return str(type_name), str(entity_id), str(edge), str(direction), int(limit)


def _pin(facts: list[Any]) -> tuple[str, tuple[float, float]]:
    key, x, y = facts
    if not (abs(float(x)) < _FAR and abs(float(y)) < _FAR):  # nor is it a number
        raise ValueError
    return str(key), (float(x), float(y))


def _seen(call: RouteCall, point: ShownPoint) -> Neighbourhood:
    _, type_name, entity_id = _named(call)
    steps, _, _, chosen = _state(call)
    offers_of = (str(chosen[0]), str(chosen[1])) if chosen else None
    return call.graph.neighbourhood(
        type_name, entity_id, steps, offers_of=offers_of, snapshot=point.commit.id
    )


def _around(call: RouteCall, point: ShownPoint) -> dict[str, Any]:
    _, type_name, entity_id = _named(call)
    steps, hidden, _, chosen = _state(call)
    seen = _seen(call, point)
    selected = chosen or [type_name, entity_id]
    base = [_word(step) for step in steps or _first_steps(seen)]
    offers = []
    for offer in seen.offers:
        step = Expansion(
            str(selected[0]),
            str(selected[1]),
            offer.type,
            offer.direction,
            min(offer.shown + PAGE_EDGES, NODES_MAX),
        )
        kept = [word for word in base if json.loads(word)[:4] != json.loads(_word(step))[:4]]
        more = _here(call, x=[*kept, _word(step)]) if offer.left else None
        offers.append({"offer": offer, "more": more})
    key = f"{selected[0]}:{selected[1]}"
    return {
        "picture": _picture(call, point, seen),
        "seen": seen,
        "selected": selected,
        "offers": offers,
        "hide": _here(call, hide=[*hidden, key], sel=None) if key != seen.focus else None,
        "undo": _here(call, x=base[:-1] or None) if steps else None,
        "start": _here(call, x=None, hide=None, pin=None, sel=None) if call.query else None,
        "hidden": [(key_, _here(call, hide=[h for h in hidden if h != key_])) for key_ in hidden],
        "files": {form: _here(call, _form=form) for form in ("svg", "json")},
        "nodes_max": NODES_MAX,
        "base": base,
    }


def _first_steps(seen: Neighbourhood) -> list[Expansion]:
    """What a picture without an address of its own shows, as expansions."""
    focus = seen.nodes[seen.focus]
    names = dict.fromkeys((each.type, each.source == seen.focus) for each in seen.edges.values())
    return [
        Expansion(focus.type, focus.id, edge, "out" if is_out else "in", 12)
        for edge, is_out in names
    ]


def _word(step: Expansion) -> str:
    return json.dumps([step.type, step.id, step.edge, step.direction, step.limit])


def _here(call: RouteCall, _form: str = "", **changes: Any) -> str:
    """This page with other parameters; None takes one away."""
    query: dict[str, Any] = {
        name: call.query.getlist(name) for name in ("point", *_STATE) if name in call.query
    }
    parts = ["entities", *_named(call)]
    if _form:
        parts = ["pictures", _form, *_named(call)[1:]]
    return link(call.graph_id, *parts, **(query | changes))


def _picture(call: RouteCall, point: ShownPoint, seen: Neighbourhood) -> Picture:
    _, type_name, entity_id = call.path.get("kind", "node"), call.path["type"], call.path["id"]
    _, hidden, pins, chosen = _state(call)
    return neighbourhood_picture(
        f"Neighbourhood of {type_name} {entity_id}",
        seen,
        href=lambda node: (
            _here(call, sel=json.dumps([node.type, node.id]), x=None)
            if "x" not in call.query
            else _here(call, sel=json.dumps([node.type, node.id]))
        ),
        hidden=hidden,
        pinned=pins,
        selected=f"{chosen[0]}:{chosen[1]}" if chosen else None,
    )


def picture_file(call: RouteCall) -> Answer:
    """A neighbourhood to keep, as SVG or JSON."""
    call.path = {**call.path, "kind": "node"}
    point = shown_point(call)
    seen = _seen(call, point)
    name = f"{call.path['type']}-{call.path['id']}"
    if call.path["form"] == "svg":
        return download(_picture(call, point, seen).to_svg(), SVG, f"{name}.svg")
    if call.path["form"] != "json":
        raise NotFound("form", call.path["form"], "use svg or json")
    document = {
        "graph_commit_id": seen.commit_id,
        "nodes": [{"type": n.type, "id": n.id, "label": n.label} for n in seen.nodes.values()],
        "edges": [
            {
                "type": e.type,
                "id": e.id,
                "from": seen.nodes[e.source].id,
                "to": seen.nodes[e.target].id,
            }
            for e in seen.edges.values()
        ],
    }
    return download(json.dumps(document, ensure_ascii=False, indent=1), JSON, f"{name}.json")


# ---- writing and bytes


def edit_entity(call: RouteCall) -> Answer:
    """Set properties on a branch, which may be made for it, as one commit."""
    form = fields(call)
    kind, type_name, entity_id = _named(call)
    try:
        with branch_of_form(call, form, form.get("point") or MAIN) as branch:
            owner = _owner(call, _point_of(call, branch), kind, type_name)
            changed = _changed(owner, form)
            if not changed:
                raise BadRequest("no property was changed")
            properties = {name: prop for name, (prop, _) in changed.items()}
            values = {f"p{n}": value for n, (_, value) in enumerate(changed.values())}
            done = call.graph.mutate(
                edit_query(owner, properties),
                {"entity": entity_id, **values},
                branch=branch,
                actor=call.actor,
                message=form.get("message") or None,
            )
    except OmnigraphError as cause:
        text, status = refusal_of(cause)
        return _entity_page(call, f"nothing was written: {text}", status, form)
    call.facts.update(branch=branch, commit=None if done.commit is None else done.commit.id)
    notice = f"changed on branch {branch}" if done.commit else "nothing was changed"
    address = link(call.graph_id, "entities", kind, type_name, entity_id, point=branch)
    return moved_with(call, address, notice)


def _point_of(call: RouteCall, branch: str) -> ShownPoint:
    return ShownPoint(branch, call.graph.commits.get(branch), True)


def _changed(owner: Type, form: dict[str, str]) -> dict[str, Any]:
    """The properties whose field differs from what the page showed."""
    changed = {}
    for prop in owner.properties:
        text, before = form.get(f"new.{prop.name}"), form.get(f"old.{prop.name}")
        if text is not None and text != before:
            changed[prop.name] = prop, typed_value(prop, text)
    return changed


def blob_bytes(call: RouteCall) -> Answer:
    """The bytes of a blob: shown if they are a picture, else kept as a file."""
    answer = get_blob(call)
    if answer.status != 200:
        return answer
    media = next((m for start, m in _IMAGES.items() if answer.body.startswith(start)), None)
    answer.headers |= SECURITY | {"Content-Security-Policy": "default-src 'none'; sandbox"}
    if media is not None and len(answer.body) <= _IMAGE_BYTES_MAX:
        answer.media = media
    else:
        answer.headers["Content-Disposition"] = "attachment"
    return answer
