"""Preview of a merge for pages: its conflicts side by side, and the answers of their form.

Invariant: a preview names the two commits that it looked at. An answer is for the entity that its
form names, of the type that the target's schema has.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from omnigraph.arguments import as_given
from omnigraph.errors import ApprovalsMissing, BadRequest, ChecksFailed, Forbidden, MergeConflict
from omnigraph.exec.changes.images import Image
from omnigraph.exec.merge.planned_changes import PlannedChange
from omnigraph.exec.merge.resolve import Resolve
from omnigraph.server.call import RouteCall
from omnigraph.server.ui.change_rows import change_rows, summary_rows
from omnigraph.server.ui.entity_forms import typed_value
from omnigraph.server.ui.ui_render import link, readable

_SHOWN, _CONFLICTS = 50, 200
_TAKEN = {"source": "theirs", "target": "ours"}
NOTHING: dict[str, Any] = {
    "outcome": None,
    "conflicts": [],
    "conflicts_left": 0,
    "summary": [],
    "schema_steps": (),
    "changes": [],
    "more": False,
    "heads": ("", ""),
    "kept": 0,
    "compare": None,
    "failed_checks": (),
    "unread": None,
}


def merge_preview(call: RouteCall, source: str, target: str, by: str) -> dict[str, Any]:
    """The values of a page about a merge: outcome, conflicts, counts and the first changes."""
    ours, theirs = (call.graph.commits.get(each).id for each in (target, source))
    done = call.graph.branches.merge(
        source, target, by=as_given(by), dry_run=True, if_source=theirs, if_target=ours
    )
    first = list(islice(done.changes, _SHOWN + 1))
    return {
        "outcome": done.kind,
        "heads": (theirs, ours),
        "conflicts": [_shown(call, target, each) for each in done.conflicts[:_CONFLICTS]],
        "conflicts_left": max(0, len(done.conflicts) - _CONFLICTS),
        "schema_steps": done.schema_steps,
        "summary": summary_rows(
            {
                (each["kind"], each["type_name"], each["op"]): each["count"]
                for each in done.changes.statistics()
            }
        ),
        "changes": change_rows(call, _imaged(call, first[:_SHOWN], ours, theirs, by), ours, theirs),
        "more": len(first) > _SHOWN,
        "kept": len(done.kept_edges),
        "compare": link(call.graph_id, "compare", from_=target, to=source),
    }


def preview_or_why(call: RouteCall, source: str, target: str, by: str) -> dict[str, Any]:
    """A preview, or the checks that the merge fails, or why it would be refused; a branch that is
    not there is `NotFound`."""
    compare = link(call.graph_id, "compare", from_=target, to=source)
    values = {**NOTHING, "compare": compare}
    try:
        return values | merge_preview(call, source, target, by)
    except ChecksFailed as cause:
        return values | {"failed_checks": cause.checks}
    except ApprovalsMissing as cause:
        return values | {"unread": f"{cause}."}
    except Forbidden:
        return values | {"unread": "What a merge would do is shown to those who may merge."}


class _ImagedChange(NamedTuple):
    """A planned change with the entity as the target and the source have it."""

    kind: str
    type: str
    id: str
    op: str
    before: Image | None
    after: Image | None


def _imaged(
    call: RouteCall, changes: list[PlannedChange], ours: str, theirs: str, by: str
) -> list[_ImagedChange]:
    """Planned changes with what they change. A merge by property makes entities that neither side
    has, so there the values are left to the page of its commit."""
    if by != "entity":
        return [_ImagedChange(*change, None, None) for change in changes]
    ids: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for change in changes:
        ids[change.kind, change.type].append(change.id)
    images: dict[tuple[str, str, str, str], Image] = {}
    for (kind, name), named in ids.items():
        for point in (ours, theirs):
            for each in call.graph.listed(kind, name, named, snapshot=point):
                images[point, kind, name, each.id] = each.image
    return [
        _ImagedChange(
            *change,
            images.get((ours, change.kind, change.type, change.id)),
            images.get((theirs, change.kind, change.type, change.id)),
        )
        for change in changes
    ]


def _shown(call: RouteCall, target: str, conflict: MergeConflict) -> dict[str, Any]:
    """A conflict with the values of its three sides, property by property."""
    catalog = call.graph.schema.on(target).catalog
    owners = {(str(owner.kind), owner.name): owner for owner in catalog.types}
    owner = owners.get((conflict.entity_kind, conflict.type_name))
    images = {"base": conflict.base, "ours": conflict.ours, "theirs": conflict.theirs}
    sides = {side: _values(image) for side, image in images.items()}
    rows = []
    for name in dict.fromkeys(key for side in sides.values() for key in side):
        prop = None if owner is None else owner.property(name)
        cells = {side: readable(values.get(name), prop) for side, values in sides.items()}
        differs = len({json.dumps(v.get(name), default=str) for v in sides.values() if v}) > 1
        can_type = prop is not None and not prop.type.is_blob
        rows.append({"name": name, "differs": differs, "can_type": can_type, **cells})
    return {
        "kind": conflict.entity_kind,
        "type": conflict.type_name,
        "id": conflict.entity_id,
        "why": conflict.message or conflict.kind.replace("_", " "),
        "present": {side: image is not None for side, image in images.items()},
        "rows": rows,
        "named": json.dumps([conflict.entity_kind, conflict.type_name, conflict.entity_id]),
    }


def _values(image: dict[str, Any] | None) -> dict[str, Any]:
    """The values of one side of a conflict; none where it is not there."""
    if image is None:
        return {}
    return {**image.get("endpoints", {}), **image.get("properties", {})}


def kept_answers(form: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return what a form says of each conflict, by its name: the choice and the values typed."""
    kept: dict[str, dict[str, Any]] = {}
    for key, named in form.items():
        if key.startswith("conflict."):
            prefix = f"value.{key.removeprefix('conflict.')}."
            values = {n.removeprefix(prefix): t for n, t in form.items() if n.startswith(prefix)}
            take = form.get(f"take.{key.removeprefix('conflict.')}", "")
            kept[named] = {"take": take, "values": values}
    return kept


def form_answers(call: RouteCall, target: str, form: dict[str, str]) -> Resolve:
    """How the form settles each conflict."""
    catalog = call.graph.schema.on(target).catalog
    owners = {(str(owner.kind), owner.name): owner for owner in catalog.types}
    answers: dict[tuple[str, str], str | dict[str, Any]] = {}
    for key, take in form.items():
        if not key.startswith("take."):
            continue
        number = key.removeprefix("take.")
        try:
            kind, type_name, entity = json.loads(form.get(f"conflict.{number}", ""))
        except ValueError:
            raise BadRequest("the form names no conflict") from None
        if take in _TAKEN:
            answers[type_name, entity] = _TAKEN[take]
        elif take == "values":
            owner = owners.get((kind, type_name))
            prefix = f"value.{number}."
            answers[type_name, entity] = {
                name.removeprefix(prefix): typed_value(
                    None if owner is None else owner.property(name.removeprefix(prefix)), text
                )
                for name, text in form.items()
                if name.startswith(prefix)
            }
    return answers or None
