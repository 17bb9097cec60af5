"""Compare page: the changes between two points, by type, one by one and as a picture.

Invariant: a page reads its own changes; the summary counts up to a bound and says when it stopped.
"""

from collections import Counter
from itertools import islice
from typing import Any

from omnigraph.draw.change_picture import change_picture
from omnigraph.draw.svg import Picture
from omnigraph.errors import ChangeFeedGap, NoChanges
from omnigraph.exec.changes.diff import Changes
from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.change_routes import FILTERS, listing_filters
from omnigraph.server.ui.change_rows import change_rows, summary_rows
from omnigraph.server.ui.ui_points import branch_names
from omnigraph.server.ui.ui_render import SVG, download, link, page
from omnigraph.storage.names import MAIN
from omnigraph.types import SchemaStep

_CHANGES, _DRAWN, _COUNTED = 50, 300, 5_000


def compare(call: RouteCall) -> Answer:
    """What turns one point into another."""
    call.only("from", "to", "view", "page_token", *FILTERS)
    before, after = call.one("from") or MAIN, call.one("to") or MAIN
    view = call.one("view") or "list"
    chosen = {name: call.query.getlist(name) for name in FILTERS}
    values = {"from_": before, "to": after, **chosen}
    old, new = call.graph.commits.get(before), call.graph.commits.get(after)
    rows, token, picture, unread = [], None, None, None
    summary: list[dict[str, Any]] = []
    is_all = True
    schema_steps: tuple[SchemaStep, ...] = ()
    try:
        changes = call.graph.diff(before, after, **listing_filters(call))
        schema_steps = changes.schema_steps
        summary, is_all = _summary(changes)
        if view == "picture":
            picture = _picture(call, changes, before, after)
        else:
            read = changes.page(_CHANGES, call.one("page_token"))
            rows = change_rows(call, read.changes, old.id, new.id)
            token = read.next_page_token
    except (NoChanges, ChangeFeedGap) as cause:
        unread = str(cause)
    return page(
        call,
        "compare.html",
        section="compare",
        before=before,
        after=after,
        old=old,
        new=new,
        view=view,
        chosen=chosen,
        summary=summary,
        schema_steps=schema_steps,
        is_all=is_all,
        counted=_COUNTED,
        drawn_max=_DRAWN,
        changes=rows,
        picture=picture,
        unread=unread,
        more=token and link(call.graph_id, "compare", **values, page_token=token),
        branches=branch_names(call.graph),
        types=[owner.name for owner in call.graph.schema.catalog.types],
        as_list=link(call.graph_id, "compare", **values),
        as_picture=link(call.graph_id, "compare", **values, view="picture"),
        as_svg=link(call.graph_id, "compare.svg", **values),
    )


def compare_svg(call: RouteCall) -> Answer:
    """The changes between two points as a picture to keep."""
    before, after = call.one("from") or MAIN, call.one("to") or MAIN
    changes = call.graph.diff(before, after, **listing_filters(call))
    return download(_picture(call, changes, before, after).to_svg(), SVG, "compare.svg")


def _picture(call: RouteCall, changes: Changes, before: str, after: str) -> Picture:
    catalog = call.graph.schema.at(after).catalog
    new = changes.between[1]

    def href(type_name: str, entity: str) -> str:
        return link(call.graph_id, "entities", "node", type_name, entity, point=new)

    return change_picture(f"{before} to {after}", islice(changes, _DRAWN), catalog, href)


def _summary(changes: Changes) -> tuple[list[dict[str, Any]], bool]:
    """How many changes there are by type and operation, and whether all were counted."""
    counts = Counter((each.kind, each.type, each.op) for each in islice(changes, _COUNTED))
    return summary_rows(counts), counts.total() < _COUNTED
