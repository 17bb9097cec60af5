"""Tool calls: arguments of an agent to requests of the API, and answers to results.

Invariant: a tool that names no graph or branch means those of the session, and the session's
branch is there when it is used. What the API refuses is a `ToolRefused` with its status and body.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from omnigraph.catalog import codec
from omnigraph.catalog.model import Catalog
from omnigraph.exec.progress import OnProgress
from omnigraph.server.lenient_params import PREFER, STRICT
from omnigraph.server.mcp.agent_session import AgentSession
from omnigraph.server.mcp.api_desk import OWN_PATHS, ApiAnswer, ApiDesk, ApiRequest
from omnigraph.server.mcp.iso_dates import with_iso_dates
from omnigraph.server.mcp.result_cuts import (
    fitted,
    hidden_properties,
    rows_that_fit,
    size_of,
    without_properties,
)
from omnigraph.server.mcp.tool_arguments import RequestPart, query_pairs
from omnigraph.server.mcp.tool_table import PAGED, AgentTool
from omnigraph.server.moment_members import HEADER

Arguments = Mapping[str, Any]
Document = dict[str, Any]
MAIN = "main"
_SCHEMA_SECONDS = 5.0
_NOTED = ("cluster_mutate", "cluster_mutate_if_graph_commit", "cluster_load")
_MERGE = "cluster_mergeBranches"
_BODY_ROOM = 2_000
_PAGE_AGAIN = 8


class ToolRefused(Exception):
    """What an operation refused, or what a call is wrong about."""

    def __init__(self, answer: ApiAnswer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def refused(status: int, text: str) -> ToolRefused:
    """A refusal that no operation made."""
    codes = {400: "bad_request", 403: "forbidden", 404: "not_found"}
    return ToolRefused(ApiAnswer(status, {"error": text, "code": codes[status]}))


@dataclass(slots=True)
class KnownGraphs:
    """What a process remembers of graphs to ask less: schemas for seconds, branches that are
    there. Losing it costs a request, never an answer."""

    catalogs: dict[tuple[str | None, str], tuple[float, Catalog]] = field(default_factory=dict)
    branches: set[tuple[str | None, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool by an agent. `client` is the program that the agent runs in."""

    tool: AgentTool
    arguments: Arguments
    session: AgentSession
    desk: ApiDesk
    known: KnownGraphs
    client: str = ""
    progress: OnProgress | None = None

    # ---- asking

    async def ask(self, request: ApiRequest) -> Document:
        """The document of an operation, or `ToolRefused`."""
        strict = replace(request, headers={**request.headers, PREFER: STRICT})
        answer = await self.desk.ask(strict, self.progress)
        if answer.is_refusal:
            raise ToolRefused(answer)
        document: Document = answer.document
        return document

    async def graph(self) -> str:
        """The graph that is meant."""
        named = self.arguments.get("graph") or self.session.graph or await self.desk.default_graph()
        if not named:
            raise refused(400, "there are several graphs; name one as `graph` (see graphs_list)")
        return str(named)

    async def branch(self, graph: str, name: str | None = None) -> str:
        """The branch that is meant; the session's is made if it is missing."""
        named = name or self.arguments.get("branch") or self.session.branch or MAIN
        if named == self.session.branch and (graph, named) not in self.known.branches:
            await self._make_branch(graph, named)
            self.known.branches.add((graph, named))
        return str(named)

    async def _make_branch(self, graph: str, name: str) -> None:
        listed = await self.ask(ApiRequest("cluster_listBranches", graph))
        if name in listed["branches"]:
            return
        body = {"name": name, "from": self.session.base or MAIN}
        try:
            await self.ask(ApiRequest("cluster_createBranch", graph, body=body))
        except ToolRefused as cause:
            if cause.answer.status != 409:  # made by another request in between
                raise

    async def catalog(self, graph: str, point: tuple[str, str]) -> Catalog:
        """The schema of a branch or snapshot, as it was seconds ago at most."""
        kept = self.known.catalogs.get((graph, point[1]))
        if kept is not None and monotonic() - kept[0] < _SCHEMA_SECONDS:
            return kept[1]
        asked = ApiRequest("cluster_getSchema", graph, query=(point, ("catalog", "true")))
        document = await self.ask(asked)
        catalog = await asyncio.to_thread(codec.decode, document["catalog"])
        if len(self.known.catalogs) > 256:
            self.known.catalogs.clear()
        self.known.catalogs[graph, point[1]] = monotonic(), catalog
        return catalog

    async def point(self, graph: str) -> tuple[str, str]:
        """What is read: `branch` or `snapshot`, with its name."""
        snapshot = self.arguments.get("snapshot")
        if snapshot is not None:
            if self.arguments.get("branch") is not None:
                raise refused(400, "request may specify branch or snapshot, not both")
            return "snapshot", snapshot
        return "branch", await self.branch(graph)

    # ---- one operation

    async def run(self) -> Document:
        """The result of a tool that is one operation."""
        if self.tool.operation in OWN_PATHS:
            return self._cut(await self.ask(ApiRequest(self.tool.operation)))
        request = await self.request()
        document = await self._page(request)
        self._forget_branch(request)
        if self.tool.name == "query":
            document = self._without_columns(document, await self._hidden(request))
            return self._rows(document)
        if self._shows_entities or "changes" in document:
            document = with_iso_dates(document)
            hidden = await self._hidden(request) - set(self.arguments.get("include", ()))
            document = without_properties(document, hidden)
        return self._cut(document)

    @property
    def _shows_entities(self) -> bool:
        return any(each.name == "include" for each in self.tool.arguments)

    async def request(self) -> ApiRequest:
        """The request that the arguments make."""
        graph = await self.graph()
        path, query, body = {}, [], {}
        for argument in self.tool.arguments:
            value = self.arguments.get(argument.name)
            if value is None:
                continue
            match argument.part:
                case RequestPart.PATH:
                    path[argument.wire_name] = str(value)
                case RequestPart.QUERY:
                    query += query_pairs(argument.wire_name, value)
                case RequestPart.BODY:
                    body[argument.wire_name] = value
        asked = ApiRequest(self.tool.operation, graph, path, tuple(query), body or None)
        return await self._completed(asked, graph)

    async def _completed(self, asked: ApiRequest, graph: str) -> ApiRequest:
        """The request with what the session says in place of arguments that are left out."""
        names = {each.name: each.part for each in self.tool.arguments}
        path, query, body = dict(asked.path), dict(asked.query), dict(asked.body or {})
        extra: list[tuple[str, str]] = []
        if names.get("kind") is RequestPart.PATH:
            path.setdefault("kind", "node")
        if self.tool.operation == "cluster_diff":
            if "from" not in query:
                extra.append(("from", self.session.base or MAIN))
            if "to" not in query:
                extra.append(("to", await self.branch(graph)))
        elif self.tool.operation == _MERGE:
            body.setdefault("source", self.session.branch)
            if body["source"] is None:
                raise refused(400, "name the branch to merge as `source`")
            if body["source"] == self.session.branch:
                await self.branch(graph, self.session.branch)
        elif "branch" in names and not self.arguments.get("all_branches"):
            kind, name = await self.point(graph)
            if names["branch"] is RequestPart.BODY:
                body[kind] = name
            elif kind not in query:
                extra.append((kind, name))
        operation, headers = asked.operation, {HEADER: "1"} if self._shows_entities else {}
        if self.arguments.get("if_commit") is not None:
            operation = f"{operation}_if_graph_commit"
            headers["Omnigraph-If-Graph-Commit"] = str(self.arguments["if_commit"])
        if operation in (*_NOTED, _MERGE) and not body.get("dry_run"):
            body["metadata"] = self.note()
        pairs = (*asked.query, *extra)
        return replace(
            asked, operation=operation, path=path, query=pairs, body=body or None, headers=headers
        )

    def note(self) -> dict[str, str]:
        """What a commit keeps of the call that made it."""
        note = {"mcp_tool": self.tool.name}
        if self.client:
            note["mcp_client"] = self.client[:200]
        return note

    def _forget_branch(self, request: ApiRequest) -> None:
        """Do not rely on a branch that may be gone."""
        if request.operation in (_MERGE, "cluster_deleteBranch"):
            self.known.branches.clear()

    # ---- cutting

    async def _page(self, request: ApiRequest) -> Document:
        """The answer; of a listing a page that fits the session's bytes."""
        if self.tool.listed not in PAGED or self.tool.operation == _MERGE:
            return await self.ask(request)
        limit = min(self.arguments.get("limit") or self.session.rows_max, self.session.rows_max)
        others = tuple(pair for pair in request.query if pair[0] != "limit")
        for _ in range(_PAGE_AGAIN):
            document = await self.ask(replace(request, query=(*others, ("limit", str(limit)))))
            size = size_of(document)
            if size <= self.session.bytes_max or limit == 1:
                break
            limit = max(1, min(limit - 1, int(limit * self.session.bytes_max / size * 0.8)))
        return document

    async def _hidden(self, request: ApiRequest) -> frozenset[str]:
        """Properties that are left out unless they are named."""
        try:
            point = ("branch", self.session.branch or MAIN)
            if any(each.name == "snapshot" for each in self.tool.arguments):
                point = await self.point(request.graph or "")
            return hidden_properties(await self.catalog(request.graph or "", point))
        except ToolRefused:
            return frozenset()

    def _without_columns(self, document: Document, hidden: frozenset[str]) -> Document:
        """Rows without the vectors that `$v.*` brought."""
        text = str(self.arguments.get("query", ""))
        columns = document.get("columns", [])
        gone = {
            name
            for name in columns
            if "." in name
            and name.rpartition(".")[2] in hidden
            and f".{name.rpartition('.')[2]}" not in text
        }
        if not gone:
            return document
        kept = [name for name in columns if name not in gone]
        rows = [
            {name: value for name, value in row.items() if name not in gone}
            for row in document["rows"]
        ]
        return {**document, "columns": kept, "rows": rows}

    def _rows(self, document: Document) -> Document:
        """The rows of a query from `rows_from` on, as many as the session shows."""
        start = self.arguments.get("rows_from", 0)
        return shown_rows(document, start, self.session)

    def _cut(self, document: Document) -> Document:
        """A result that the session may show whole."""
        name = self.tool.listed
        if name and name not in PAGED | {"rows"} and name in document:
            number = rows_that_fit(
                document[name], self.session.rows_max, self.session.bytes_max - _BODY_ROOM
            )
            if number < len(document[name]):
                hint = f"only the first {number} of {name} are shown; ask for less"
                notice = {"shown": number, "of": len(document[name]), "hint": hint}
                document = {**document, name: document[name][:number], "truncated": notice}
        return fitted(document, self.session.bytes_max)


def shown_rows(document: Document, start: int, session: AgentSession) -> Document:
    """The rows of an answer from one on, as many as a session shows."""
    rows = document["rows"][start:]
    number = rows_that_fit(rows, session.rows_max, session.bytes_max - _BODY_ROOM)
    document = {**document, "rows": rows[:number]}
    if number < len(rows):
        commit = document.get("graph_commit_id")
        onwards: Document = {"rows_from": start + number}
        if commit is not None:
            onwards["snapshot"] = commit
        document["truncated"] = {
            "shown": number,
            "of": document["row_count"],
            "next": onwards,
            "hint": "call again with these arguments, without branch, or add a limit and a filter",
        }
    return fitted(document, session.bytes_max)
