"""Query page: an editor, a form of the parameters, and rows as table, chart, picture or file.

Invariant: a page is a link: text, parameters and point in time are in its address. It reads and
never writes.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from omnigraph.catalog.model import Catalog
from omnigraph.draw.bar_chart import bar_chart
from omnigraph.draw.node_link import PictureEdge, PictureNode, node_link_picture
from omnigraph.draw.svg import Picture, colour_of
from omnigraph.errors import BadRequest, OmnigraphError
from omnigraph.exec.limits import Limits, watched
from omnigraph.exec.read.result import QueryResult
from omnigraph.plan import ir
from omnigraph.plan.compile import compile_query
from omnigraph.plan.explain import explain
from omnigraph.plan.lint import lint
from omnigraph.plan.query_words import Suggester
from omnigraph.server.call import JSON, Answer, RouteCall, answered
from omnigraph.server.row_formats import CSV, csv_bytes
from omnigraph.server.ui.stored_words import offered_queries, stored_text, stored_words
from omnigraph.server.ui.ui_points import branch_names, shown_point
from omnigraph.server.ui.ui_render import cell, download, link, page, refusal_of
from omnigraph.types import ValueType, parse_table_key

_ROWS, _BARS, _NODES = 200, 60, 300
_VIEWS = ("table", "chart", "picture", "explain", "json", "csv")
_GIVEN = "p."
_EXAMPLE = "query look() {{\n  match {{ $x: {0} }}\n  return {{ $x }}\n  limit 20\n}}\n"


@dataclass(slots=True)
class _Asked:
    """A query as the address has it, and what came of it."""

    text: str
    name: str | None
    view: str
    plan: Any = None
    result: QueryResult | None = None
    problem: str | None = None
    given: dict[str, str] = field(default_factory=dict)


def query(call: RouteCall) -> Answer:
    """The editor, and the rows of its query."""
    view = call.one("view") or "table"
    point = shown_point(call)
    catalog = call.graph.schema.at(point.commit.id).catalog
    chosen, text = call.one("stored"), call.one("q") or ""
    if chosen is not None:
        text = stored_text(call, chosen)
    asked = _Asked(text, None if chosen else call.one("name"), view)
    asked.given = {
        key.removeprefix(_GIVEN): value
        for key, value in call.query.items()
        if key.startswith(_GIVEN)
    }
    if asked.text.strip() and view in _VIEWS:
        _ask(call, asked, catalog, point.commit.id)
    if asked.result is not None and view in ("json", "csv"):
        return _file(asked.result, view)
    return page(
        call,
        "query.html",
        status=400 if asked.problem else 200,
        section="query",
        point=point,
        text=asked.text or _EXAMPLE.format(next(iter(catalog.nodes), "Type")),
        name=asked.name,
        names=_names(asked.text, catalog),
        view=view,
        views={each: _here(call, each) for each in _VIEWS},
        parameters=_parameters(asked),
        problem=asked.problem,
        result=asked.result,
        columns=[] if asked.result is None else asked.result.columns,
        rows=[] if asked.result is None else _cells(asked.result),
        rows_max=_ROWS,
        stored=offered_queries(call),
        plan=None if asked.plan is None else explain(asked.plan),
        explained=None if asked.result is None else asked.result.explain(),
        picture=_picture(call, asked, catalog, point.text),
        branches=branch_names(call.graph),
    )


def _ask(call: RouteCall, asked: _Asked, catalog: Catalog, commit_id: str) -> None:
    try:
        with watched(Limits.from_environment(), call.stop):
            asked.plan = compile_query(asked.text, catalog, asked.name)
        if not isinstance(asked.plan, ir.ReadPlan):
            raise BadRequest("this page reads", "run a mutation with omnigraph mutate or the API")
        missing = [p.name for p in asked.plan.parameters if _needs(p) and p.name not in asked.given]
        if missing and not asked.given:
            return  # the form asks for them
        given = {
            p.name: _typed(p.type, asked.given[p.name])
            for p in asked.plan.parameters
            if asked.given.get(p.name, "") != ""
            or (
                p.name in asked.given
                and p.type.is_text
                and not p.type.nullable
                and p.default is None
            )
        }
        asked.result = call.graph.query(
            asked.text, given, asked.name, snapshot=commit_id, engine="local", stop=call.stop
        )
        call.facts.update(rows=len(asked.result))
    except OmnigraphError as cause:
        asked.problem = refusal_of(cause)[0]


def _needs(parameter: ir.Parameter) -> bool:
    return parameter.default is None and not parameter.type.nullable


def _typed(kind: ValueType, text: str) -> Any:
    """The value of a parameter: JSON, or what was typed for texts and dates."""
    is_plain = kind.is_text or str(kind.scalar) in ("Date", "DateTime", "Blob")
    if is_plain and not kind.is_list:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text  # the engine says what it should be


def _parameters(asked: _Asked) -> list[dict[str, Any]]:
    if asked.plan is None:
        return []
    return [
        {
            "name": p.name,
            "type": str(p.type),
            "needed": _needs(p),
            "value": asked.given.get(p.name, ""),
        }
        for p in asked.plan.parameters
    ]


def _names(text: str, catalog: Catalog) -> list[str]:
    """The queries of a text, where it can be read."""
    if not text.strip():
        return []
    with watched(Limits.from_environment()):
        return [each.name for each in lint(text, catalog).results]


def _here(call: RouteCall, view: str) -> str:
    kept = {key: call.query.getlist(key) for key in call.query if key != "view"}
    return link(call.graph_id, "query", **kept, view=view)


def _cells(result: QueryResult) -> list[list[str | None]]:
    return [
        [None if value is None else cell(value) for value in row] for row in result.tuples(_ROWS)
    ]


def _file(result: QueryResult, view: str) -> Answer:
    if view == "csv":
        return download(csv_bytes(result), CSV, f"{result.query_name}.csv")
    document = {
        "query_name": result.query_name,
        "graph_commit_id": result.commit_id,
        "rows": result.rows,
    }
    body = json.dumps(document, ensure_ascii=False, indent=1)
    return download(body, JSON, f"{result.query_name}.json")


# ---- pictures of rows


def _picture(call: RouteCall, asked: _Asked, catalog: Catalog, point: str) -> Picture | None:
    result = asked.result
    if result is None or not len(result):
        return None
    if asked.view == "chart" and len(result.columns) >= 2:
        name, value = result.columns[0], result.columns[1]
        return bar_chart(
            f"{value} by {name}", [(cell(row[name]), row[value]) for row in result[:_BARS]]
        )
    if asked.view == "picture":
        return _of_entities(call, asked.plan, result, catalog, point)
    return None


def _of_entities(
    call: RouteCall, plan: ir.ReadPlan, result: QueryResult, catalog: Catalog, point: str
) -> Picture | None:
    """The nodes that a query returns, and the steps of its pattern between those of one row."""
    types = {op.out: op.table for op in plan.pattern if isinstance(op, ir.NodeScan)}
    walks = [op for op in plan.pattern if isinstance(op, ir.Expand)]
    types |= {op.out: op.target for op in walks}
    shown = {
        column.value.var: column.name
        for column in plan.columns
        if column.name in result.columns
        and isinstance(column.value, ir.EntityId)
        and column.value.var in types
    }
    if not shown:
        return None
    nodes: dict[str, PictureNode] = {}
    edges: dict[tuple[str, str, str], PictureEdge] = {}
    for row in result[:_NODES]:
        keys = {}
        for var, name in shown.items():
            type_name = parse_table_key(types[var])[1]
            if row[name] is None or len(nodes) >= _NODES:
                continue
            entity = str(row[name])
            key = keys[var] = f"{type_name}:{entity}"
            href = link(call.graph_id, "entities", "node", type_name, entity, point=point)
            colour = colour_of(int(catalog.nodes[type_name].id))
            nodes.setdefault(
                key, PictureNode(key, entity, colour, f"{type_name} {entity}", href=href)
            )
        for walk in walks:
            if walk.source in keys and walk.out in keys:
                edge = parse_table_key(walk.edge)[1]
                ends = keys[walk.source], keys[walk.out]
                source, target = ends if walk.direction is not ir.Direction.IN else ends[::-1]
                edges[source, target, edge] = PictureEdge(source, target, edge)
    return node_link_picture("Nodes of the rows", list(nodes.values()), list(edges.values()))


# ---- while typing


def check_text(call: RouteCall) -> Answer:
    """The faults of a text, for the editor."""
    catalog = call.graph.schema.at(shown_point(call).commit.id).catalog
    report = lint(call.one("q") or "", catalog)
    faults = [
        {
            "text": each.error.headline,
            "line": each.error.line,
            "column": each.error.column,
            "hint": each.error.hint,
        }
        for each in report.results
        if each.error is not None
    ]
    if report.parse_error is not None:
        cause = report.parse_error
        faults.append(
            {"text": cause.headline, "line": cause.line, "column": cause.column, "hint": cause.hint}
        )
    warnings = [text for each in report.results for text in each.warnings]
    return answered({"faults": faults, "warnings": warnings})


def suggest(call: RouteCall) -> Answer:
    """What can come next in a text, for the editor."""
    catalog = call.graph.schema.at(shown_point(call).commit.id).catalog
    before = call.one("q") or ""
    typed, words = Suggester(catalog).next(before)
    listed = [{"text": each.text, "about": each.about} for each in words]
    return answered({"typed": typed, "words": [*stored_words(call, before), *listed][:20]})
