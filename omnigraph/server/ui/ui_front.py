"""Front of the pages: sign-in, the list of graphs, files, refusals as HTML, the redirect of `/`.

Invariant: a refusal is a page that says what to do next, and holds no more than the API would say.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from urllib.parse import quote

from starlette.datastructures import QueryParams

from omnigraph.errors import Forbidden, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.server.access import Gate
from omnigraph.server.call import Answer, RouteCall
from omnigraph.server.connection import Scope
from omnigraph.server.endpoint import ApiEndpoint
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.request_headers import RequestHeaders
from omnigraph.server.serve_settings import ServerLimits, ServerSettings
from omnigraph.server.served import ServedGraphs
from omnigraph.server.status import ErrorAnswer
from omnigraph.server.ui.ui_forms import form_fields
from omnigraph.server.ui.ui_render import html, link, moved, static_file
from omnigraph.server.ui.ui_session import UiSessions
from omnigraph.server.upkeep_schedule import parse_schedule
from omnigraph.storage.names import MAIN

_HOME, _DOCUMENT = "/ui/", "/openapi.json"
_SIGN_IN = "/ui/sign-in"
_SAID = {
    401: "You are not signed in",
    403: "This is not allowed",
    404: "Not found",
    409: "Something changed meanwhile",
    410: "No longer readable",
}


@dataclass(frozen=True, slots=True)
class PageVisit:
    """A browser's request: the token of its forms and the cookie it still needs."""

    csrf: str
    cookie: str | None
    is_open: bool
    front: "ServerPages"
    may: Callable[[str], bool]  # whether the actor may do an action, on a branch at least


class ServerPages:
    """The pages of one worker that are about no graph, and what all pages share."""

    def __init__(self, settings: ServerSettings, graphs: ServedGraphs, gate: Gate) -> None:
        self.sessions = UiSessions(settings, gate)
        self.gate = gate
        self.graphs = graphs
        self.upkeep = parse_schedule(settings.upkeep)

    def actor(self, endpoint: ApiEndpoint, headers: RequestHeaders) -> str | None:
        """Who asks for a page, or 401; nobody is asked at the door."""
        if endpoint.action is None:
            try:
                return self.sessions.actor(headers)
            except HttpRefusal:
                return None
        return self.sessions.actor(headers)

    def call(
        self,
        endpoint: ApiEndpoint,
        path: dict[str, str],
        scope: Scope,
        headers: RequestHeaders,
        facts: dict[str, Any],
        limits: ServerLimits,
    ) -> RouteCall:
        """A request for a page, of an actor who may ask for it; a page at the door has no graph."""
        actor = facts["actor"] = self.actor(endpoint, headers)
        graph_id = path.pop("graph_id", "")
        facts["graph"] = graph_id or None
        graph = cast(Graph, None)
        if graph_id:
            graph = self.gate.graph(graph_id, self.graphs.get(graph_id), actor)
            if endpoint.action is not None:
                self.gate.require_ever(graph_id, actor, endpoint.action)
        return RouteCall(
            graph_id,
            graph,
            actor,
            path,
            filled(QueryParams(scope["query_string"])),
            headers,
            limits=limits,
            facts=facts,
            stored=self.graphs.stored(graph_id),
            require=partial(self.gate.require, graph_id, actor),
            visit=self.visit(headers, graph_id, actor),
        )

    def visit(self, headers: RequestHeaders, graph_id: str, actor: str | None) -> PageVisit:
        """What a page needs to know of the browser."""
        nonce, cookie = self.sessions.browser(headers)
        csrf = self.sessions.csrf(nonce, actor)

        def may(action: str) -> bool:
            try:
                self.gate.require_ever(graph_id, actor, action)
            except OmnigraphError:
                return False
            return True

        return PageVisit(csrf, cookie, self.sessions.is_open, self, may)

    def admit(self, endpoint: ApiEndpoint, call: RouteCall) -> None:
        """Pass for a request that reads, or a form of ours."""
        if endpoint.method == "POST":
            self.sessions.require_own_form(call.headers, form_fields(call.body), call.actor)

    def refusal(self, error: ErrorAnswer, address: str, method: str) -> Answer:
        """An error as a page; a browser that is not signed in is led to where it can."""
        if error.status == 401 and method == "GET":
            return moved(f"{_SIGN_IN}?next={quote(address, safe='')}")
        title = _SAID.get(error.status, "This did not work")
        values = {"title": title, "text": error.body.error, "status": error.status}
        answer = html("refusal.html", self._plain() | values, error.status)
        answer.headers.update(error.headers)
        return answer

    def _plain(self) -> dict[str, object]:
        return {
            "graph_id": None,
            "actor": None,
            "visit": None,
            "notice": None,
            "problem": None,
            "live": None,
            "section": "",
        }


def kept_apart(answer: Answer, call: RouteCall) -> Answer:
    """An answer with the cookie that tells a new browser from others."""
    if call.visit is not None and call.visit.cookie is not None:
        answer.headers.setdefault("Set-Cookie", call.visit.cookie)
    return answer


def filled(query: QueryParams) -> QueryParams:
    """The parameters of a form without the fields that were left empty. `notice` was a parameter of
    pages, which nobody writes any more: what it says is ignored."""
    items = query.multi_items()
    return QueryParams([(name, value) for name, value in items if value and name != "notice"])


def address_of_page(scope: Scope) -> str:
    """Path and query of a request, as they were sent."""
    raw = (scope.get("raw_path") or scope["path"].encode()).split(b"?", 1)[0]
    text = scope["query_string"]
    return str((raw + b"?" + text if text else raw).decode("latin-1"))


def _front(call: RouteCall) -> ServerPages:
    assert call.visit is not None
    return call.visit.front


def _values(call: RouteCall, **values: object) -> dict[str, object]:
    return _front(call)._plain() | {"actor": call.actor, "visit": call.visit} | values


def home(call: RouteCall) -> Answer:
    """`/`: a browser is led to the pages, a program to the description of the API."""
    if "text/html" not in (call.headers.get("accept") or ""):
        return moved(_DOCUMENT)
    return moved(_HOME)


def home_without_pages(call: RouteCall) -> Answer:
    """`/` of a server without pages: every caller is led to the description of the API."""
    return moved(_DOCUMENT)


def without_slash(call: RouteCall) -> Answer:
    """`/ui`: whoever asks is led to the pages."""
    return moved(_HOME)


def graphs(call: RouteCall) -> Answer:
    """The served graphs with their health, size and last commit."""
    front = _front(call)
    ready = front.graphs.readiness()
    only = front.graphs.only
    if only is not None and ready.get(only) and call.one("all") is None:
        return moved(link(only))
    front.gate.require_listing(call.actor)
    opened = dict(front.graphs.listed())
    rows = []
    for graph_id in sorted(ready):
        is_open = graph_id in opened
        row: dict[str, object] = {"id": graph_id, "open": is_open, "fault": None, "hidden": False}
        if is_open:
            try:
                graph = front.gate.graph(graph_id, front.graphs.get(graph_id), call.actor)
                head = graph.snapshot(MAIN)
                row["entities"] = sum(pin.row_count for pin in head.tables.values())
                row["branches"] = len(graph.branches.list())
                row["last"] = graph.commits.get(head.commit_id)
            except Forbidden:
                row["hidden"] = True
            except OmnigraphError as cause:
                row |= {"open": False, "fault": type(cause).__name__}
        rows.append(row)
    return html("graphs.html", _values(call, rows=rows))


def sign_in_form(call: RouteCall) -> Answer:
    """Where a token is typed in."""
    return _sign_in_page(call, _next(call.one("next")), failed=False)


def _sign_in_page(call: RouteCall, target: str, *, failed: bool) -> Answer:
    trust = _front(call).gate.trust
    issuers = [] if trust is None else sorted(trust.issuers)
    values = _values(call, next=target, failed=failed, issuers=issuers)
    return html("sign_in.html", values, 401 if failed else 200)


def sign_in(call: RouteCall) -> Answer:
    """Exchange a token for a cookie."""
    form = form_fields(call.body)
    target = _next(form.get("next"))
    try:
        actor, cookie = _front(call).sessions.sign_in(form.get("token", "").strip())
    except HttpRefusal:
        return _sign_in_page(call, target, failed=True)
    call.facts.update(actor=actor)
    return moved(target, cookie)


def sign_out(call: RouteCall) -> Answer:
    """End a session."""
    return moved(_SIGN_IN, _front(call).sessions.sign_out())


def _next(address: str | None) -> str:
    """Where to go after signing in: a page of ours and nothing else."""
    is_ours = address is not None and address.startswith("/ui/") and "\\" not in address
    return address if is_ours and address is not None else _HOME


def served_file(call: RouteCall) -> Answer:
    """A script or a sheet."""
    answer = static_file(call.path["file"])
    if answer is None:
        raise HttpRefusal(404, "there is no such file")
    return answer
