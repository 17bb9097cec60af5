"""Table of pages: path, handler, policy action and thread pool of each.

Invariant: a page that reads is GET and needs `read`; one that writes is POST and needs the action
of the API's route that does the same.
"""

from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.endpoint import ApiEndpoint, BodySize, Lane
from omnigraph.server.legacy import Route
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.ui import (
    commit_pages,
    compare_pages,
    entity_pages,
    merge_pages,
    overview_pages,
    query_pages,
    review_pages,
    schema_pages,
    type_pages,
    ui_front,
    upkeep_pages,
)
from omnigraph.server.ui.ui_forms import FORM
from omnigraph.server.ui.ui_render import HTML

EVENTS = "ui_events"
_GRAPH = "/ui/graphs/{graph_id}"
_ENTITY = "/entities/{kind}/{type}/{id}"


def _streamed(call: RouteCall) -> Answer:
    raise HttpRefusal(500, "the application answers this itself")


def _look(path: str, route: Route, action: str | None = "read") -> ApiEndpoint:
    name = f"ui_{route.__name__}"
    about = (route.__doc__ or "").strip()
    return ApiEndpoint("GET", path, name, action, route, about, HTML, is_page=True)


def _form(
    path: str, route: Route, action: str | None, lane: Lane = Lane.WRITE, *, of_graph: bool = True
) -> ApiEndpoint:
    return ApiEndpoint(
        "POST",
        f"{_GRAPH}{path}" if of_graph else path,
        f"ui_{route.__name__}_form",
        action,
        route,
        (route.__doc__ or "").strip(),
        HTML,
        request=FORM,
        lane=lane,
        size=BodySize.DEFAULT,
        is_page=True,
    )


NO_PAGES: tuple[ApiEndpoint, ...] = (_look("/", ui_front.home_without_pages, None),)
PAGES: tuple[ApiEndpoint, ...] = (
    _look("/", ui_front.home, None),
    _look("/ui", ui_front.without_slash, None),
    _look("/ui/", ui_front.graphs),
    _look("/ui/sign-in", ui_front.sign_in_form, None),
    _form("/ui/sign-in", ui_front.sign_in, None, Lane.READ, of_graph=False),
    _form("/ui/sign-out", ui_front.sign_out, None, Lane.READ, of_graph=False),
    _look("/ui/static/{file}", ui_front.served_file, None),
    _look(_GRAPH, overview_pages.overview),
    _form("/branches", overview_pages.new_branch, "branch_create"),
    _form("/branches/delete", overview_pages.delete_branch, "branch_delete"),
    _look(f"{_GRAPH}/commits", commit_pages.commits),
    _look(f"{_GRAPH}/commits.svg", commit_pages.commits_svg),
    _look(f"{_GRAPH}/commits/{{commit_id}}", commit_pages.commit),
    _form("/commits/{commit_id}/branch", commit_pages.branch_here, "branch_create"),
    _form("/commits/{commit_id}/tag", commit_pages.tag_here, "branch_create"),
    _form("/commits/{commit_id}/revert", commit_pages.revert_here, "change"),
    _look(f"{_GRAPH}/compare", compare_pages.compare),
    _look(f"{_GRAPH}/compare.svg", compare_pages.compare_svg),
    _look(f"{_GRAPH}/merge", merge_pages.merge_review),
    _form("/merge", merge_pages.merge, "branch_merge"),
    _look(f"{_GRAPH}/reviews", review_pages.reviews),
    _form("/reviews", review_pages.open_review, "review"),
    _look(f"{_GRAPH}/reviews/{{review}}", review_pages.review),
    _form("/reviews/{review}/comments", review_pages.comment, "review"),
    _form("/reviews/{review}/approve", review_pages.approve, "review"),
    _form("/reviews/{review}/close", review_pages.close, "review"),
    _form("/reviews/{review}/merge", review_pages.merge_reviewed, "branch_merge"),
    _look(f"{_GRAPH}/query", query_pages.query),
    _look(f"{_GRAPH}/check", query_pages.check_text),
    _look(f"{_GRAPH}/suggest", query_pages.suggest),
    _look(f"{_GRAPH}/types/{{kind}}/{{type}}", type_pages.type_rows),
    _look(f"{_GRAPH}{_ENTITY}", entity_pages.entity),
    _form(_ENTITY, entity_pages.edit_entity, "change"),
    _look(f"{_GRAPH}/pictures/{{form}}/{{type}}/{{id}}", entity_pages.picture_file),
    _look(f"{_GRAPH}/blob", entity_pages.blob_bytes),
    _look(f"{_GRAPH}/schema", schema_pages.schema),
    _look(f"{_GRAPH}/schema.svg", schema_pages.schema_svg),
    _form("/schema", schema_pages.plan_schema, "read", Lane.READ),
    _look(f"{_GRAPH}/upkeep", upkeep_pages.upkeep),
    ApiEndpoint(
        "GET",
        f"{_GRAPH}/events",
        EVENTS,
        "read",
        _streamed,
        "New commits.",
        "text/event-stream",
        is_page=True,
    ),
)
