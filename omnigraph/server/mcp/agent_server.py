"""MCP server: tools and resources of the protocol over a toolbox, for every transport.

Invariant: nothing is kept between requests but what can be asked again. The package `mcp` speaks
the protocol; what its handlers return is decided elsewhere.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from urllib.parse import parse_qs, urlsplit

import mcp_types as protocol
import orjson
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from omnigraph import __version__
from omnigraph.exec.progress import OnProgress, Progress
from omnigraph.server.mcp.agent_session import AgentSession
from omnigraph.server.mcp.agent_tools import Toolbox, ToolOutcome, UnknownTool
from omnigraph.server.mcp.api_desk import ApiDesk, ApiRequest
from omnigraph.server.mcp.guidance import INSTRUCTIONS, title_of, topics
from omnigraph.server.mcp.result_cuts import json_text
from omnigraph.server.mcp.stored_tools import QUERIES_FIND
from omnigraph.server.mcp.tool_arguments import input_schema
from omnigraph.server.mcp.tool_calls import KnownGraphs, ToolCall, ToolRefused
from omnigraph.server.mcp.tool_table import AgentTool

_PRACTICE = "omnigraph://best-practices/"
_TELL_SECONDS = 0.1
_MARKDOWN, _JSON, _TEXT = "text/markdown", "application/json", "text/plain"

Context = Any
"""The request context of the `mcp` package."""


@dataclass(frozen=True, slots=True)
class AgentSeat:
    """Where an agent sits: its desk and its session."""

    desk: ApiDesk
    session: AgentSession


SeatOf = Callable[[Context], AgentSeat]


@dataclass(slots=True)
class AgentServer:
    """The handlers of the protocol."""

    seat_of: SeatOf
    known: KnownGraphs = field(default_factory=KnownGraphs)

    def server(self) -> Server[Any]:
        """A server of the `mcp` package with these handlers."""
        return Server(
            "omnigraph",
            version=__version__,
            title="OmniGraph",
            instructions=INSTRUCTIONS,
            # No argument is sent as a header, so no tool has to be looked up for that.
            get_tool_input_schema=lambda name: None,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
        )

    def _toolbox(self, context: Context) -> Toolbox:
        seat = self.seat_of(context)
        return Toolbox(seat.session, seat.desk, self.known, _client(context))

    # ---- tools

    async def list_tools(self, context: Context, params: Any) -> protocol.ListToolsResult:
        """Every tool of the session."""
        toolbox = self._toolbox(context)
        offered = await toolbox.offered()
        as_text = toolbox.session.as_text
        tools = [described_tool(each.tool, as_text=as_text) for each in offered.values()]
        return protocol.ListToolsResult(tools=tools)

    async def call_tool(
        self, context: Context, params: protocol.CallToolRequestParams
    ) -> protocol.CallToolResult:
        """The result of a tool, or a tool error."""
        toolbox = self._toolbox(context)
        async with _Telling(context) as tell:
            try:
                outcome = await toolbox.call(params.name, params.arguments or {}, tell)
            except UnknownTool:
                raise MCPError(
                    protocol.INVALID_PARAMS, f"Unknown tool: {params.name[:200]}"
                ) from None
        return _result(outcome, toolbox.session)

    # ---- resources

    async def list_resources(self, context: Context, params: Any) -> protocol.ListResourcesResult:
        """The schema, the branches, the graphs and the texts of best practice."""
        listed = [
            ("omnigraph://schema", "schema", "The schema as it was written.", _TEXT),
            ("omnigraph://branches", "branches", "Every branch and its head.", _JSON),
            ("omnigraph://graphs", "graphs", "The graphs that can be named.", _JSON),
            *((f"{_PRACTICE}{each}", each, title_of(each), _MARKDOWN) for each in topics()),
        ]
        return protocol.ListResourcesResult(
            resources=[
                protocol.Resource(uri=uri, name=name, description=about, mime_type=media)
                for uri, name, about, media in listed
            ]
        )

    async def list_templates(
        self, context: Context, params: Any
    ) -> protocol.ListResourceTemplatesResult:
        """Resources that have a parameter."""
        known = ", ".join(topics())
        templates = [
            (
                "omnigraph://best-practices/{topic}",
                "best-practices",
                f"Topics: {known}.",
                _MARKDOWN,
            ),
            ("omnigraph://schema{?graph,branch}", "schema-of", "The schema of a graph.", _TEXT),
            ("omnigraph://branches{?graph}", "branches-of", "The branches of a graph.", _JSON),
        ]
        return protocol.ListResourceTemplatesResult(
            resource_templates=[
                protocol.ResourceTemplate(
                    uri_template=uri, name=name, description=about, mime_type=media
                )
                for uri, name, about, media in templates
            ]
        )

    async def read_resource(
        self, context: Context, params: protocol.ReadResourceRequestParams
    ) -> protocol.ReadResourceResult:
        """The text of a resource."""
        uri = str(params.uri)
        seat = self.seat_of(context)
        try:
            text, media = await self._resource(seat, uri)
        except ToolRefused as cause:
            said = cause.answer.document
            raise MCPError(protocol.INVALID_PARAMS, said.get("error", ""), data=said) from None
        content = protocol.TextResourceContents(uri=uri, mime_type=media, text=text)
        return protocol.ReadResourceResult(contents=[content])

    async def _resource(self, seat: AgentSeat, uri: str) -> tuple[str, str]:
        parts = urlsplit(uri)
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        call = ToolCall(QUERIES_FIND, given, seat.session, seat.desk, self.known)
        match parts.scheme, parts.netloc, parts.path.strip("/"):
            case "omnigraph", "best-practices", topic if topic in topics():
                return topics()[topic], _MARKDOWN
            case "omnigraph", "schema", "":
                graph = await call.graph()
                asked = ApiRequest("cluster_getSchema", graph, query=(await call.point(graph),))
                return str((await call.ask(asked))["schema_source"]), _TEXT
            case "omnigraph", "branches", "":
                query = (("heads", "true"),)
                asked = ApiRequest("cluster_listBranches", await call.graph(), query=query)
                return orjson.dumps(await call.ask(asked)).decode(), _JSON
            case "omnigraph", "graphs", "":
                return orjson.dumps(await call.ask(ApiRequest("listGraphs"))).decode(), _JSON
            case _:
                raise MCPError(protocol.INVALID_PARAMS, f"Unknown resource: {uri[:200]}")


def described_tool(tool: AgentTool, *, as_text: bool) -> protocol.Tool:
    """A tool as the protocol describes it."""
    return protocol.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.about,
        input_schema=input_schema(tool.arguments),
        output_schema=None if as_text else tool.answers,
        annotations=protocol.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.reads,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=False,
        ),
    )


def _result(outcome: ToolOutcome, session: AgentSession) -> protocol.CallToolResult:
    """Return the document as JSON text, which every client shows, and beside it as structured
    content. An error is text alone: clients hold structured content against the tool's schema, and
    would report that it does not fit instead of the error."""
    is_text = session.as_text or outcome.is_error
    return protocol.CallToolResult(
        content=[protocol.TextContent(text=json_text(outcome.document, session.bytes_max))],
        structured_content=None if is_text else outcome.document,
        is_error=outcome.is_error,
    )


def _client(context: Context) -> str:
    """The name and version of the program that asks, if it says so."""
    params = context.session.client_params
    if params is None or params.client_info is None:
        return ""
    return f"{params.client_info.name} {params.client_info.version}".strip()


class _Telling:
    """Progress notifications of one call, from the thread that works at it. The figure never
    falls, as the protocol asks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._steps: asyncio.Queue[Progress] = asyncio.Queue()
        self._latest: tuple[str, float] = "", 0.0
        self._figure = 0.0

    async def __aenter__(self) -> OnProgress:
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._tell_all())
        return self._hear

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await self._task

    def _hear(self, step: Progress) -> None:
        stage, last = self._latest
        now = monotonic()
        if step.stage != stage or now - last >= _TELL_SECONDS:
            self._latest = step.stage, now
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._steps.put_nowait, step)

    async def _tell_all(self) -> None:
        report: Callable[..., Awaitable[None]] = self._context.session.report_progress
        while True:
            step = await self._steps.get()
            self._figure = round(max(self._figure + 0.001, float(step.rows)), 3)
            await report(self._figure, None, f"{step.stage}: {step.rows} rows")
