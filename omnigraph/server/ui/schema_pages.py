"""Schema page: picture and text of a schema, and the plan to another one that is pasted in.

Invariant: a plan changes nothing.
"""

from omnigraph.catalog.steps import UnsupportedChange
from omnigraph.draw.schema_picture import schema_picture
from omnigraph.errors import OmnigraphError
from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.ui.ui_forms import fields
from omnigraph.server.ui.ui_points import branch_names, shown_point
from omnigraph.server.ui.ui_render import SVG, download, page, refusal_of
from omnigraph.storage.names import MAIN


def schema(call: RouteCall) -> Answer:
    """A schema as picture and text."""
    call.only("point")
    return _schema_page(call, "", None, None)


def plan_schema(call: RouteCall) -> Answer:
    """The steps from the schema of a branch to the one that was pasted in."""
    form = fields(call)
    text, branch = form.get("schema", ""), form.get("branch") or MAIN
    try:
        # With a line end it is a text: a name that ends in .pg would be read as a file.
        plan = call.graph.schema.plan(
            f"{text}\n", branch=branch, allow_data_loss=form.get("loss") == "on"
        )
    except OmnigraphError as cause:
        return _schema_page(call, text, None, refusal_of(cause)[0])
    steps = [{"text": str(s), "refused": isinstance(s, UnsupportedChange)} for s in plan.steps]
    return _schema_page(call, text, {"steps": steps, "supported": plan.supported}, None)


def _schema_page(
    call: RouteCall, text: str, plan: dict[str, object] | None, problem: str | None
) -> Answer:
    point = shown_point(call)
    accepted = call.graph.schema.at(point.commit.id)
    return page(
        call,
        "schema.html",
        status=400 if problem else 200,
        problem=problem,
        section="schema",
        point=point,
        text=accepted.text,
        picture=schema_picture(f"Schema of {point.text}", accepted.catalog),
        desired=text,
        plan=plan,
        branches=branch_names(call.graph),
    )


def schema_svg(call: RouteCall) -> Answer:
    """The picture of a schema to keep."""
    point = shown_point(call)
    catalog = call.graph.schema.at(point.commit.id).catalog
    picture = schema_picture(f"Schema of {point.text}", catalog)
    return download(picture.to_svg(), SVG, "schema.svg")
