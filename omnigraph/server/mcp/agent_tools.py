"""Toolbox of an agent session: which tools it has, checked arguments, results and errors.

Invariant: whatever a call holds, the answer is a result that fits the tool's schema or a tool error
`{error, status, code, requestId, body}`. A tool that the session does not offer cannot be called.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from omnigraph.exec.progress import OnProgress
from omnigraph.server.mcp.agent_session import AgentSession
from omnigraph.server.mcp.api_desk import ApiAnswer, ApiDesk
from omnigraph.server.mcp.composed_tools import COMPOSED
from omnigraph.server.mcp.result_cuts import fitted
from omnigraph.server.mcp.stored_tools import (
    QUERIES_FIND,
    QUERY_RUN,
    TOOLS_MAX,
    called,
    queries_find,
    query_run,
    stored_entries,
    stored_tool,
)
from omnigraph.server.mcp.tool_arguments import input_schema
from omnigraph.server.mcp.tool_calls import Document, KnownGraphs, ToolCall, ToolRefused, refused
from omnigraph.server.mcp.tool_table import OPERATION_TOOLS, AgentTool
from omnigraph.server.status import error_answer

Work = Callable[[ToolCall], Awaitable[Document]]
_ERROR_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool of a session, and what runs it."""

    tool: AgentTool
    work: Work


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result of a call."""

    document: Document
    is_error: bool = False


class UnknownTool(Exception):
    """A tool that the session does not have."""


def _fixed() -> dict[str, OfferedTool]:
    tools = {each.name: OfferedTool(each, ToolCall.run) for each in OPERATION_TOOLS}
    composed = {name: OfferedTool(tool, work) for name, (tool, work) in COMPOSED.items()}
    return {"schema_get": composed.pop("schema_get"), **tools, **composed}


FIXED = _fixed()


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of one session."""

    session: AgentSession
    desk: ApiDesk
    known: KnownGraphs
    client: str = ""

    async def offered(self) -> dict[str, OfferedTool]:
        """Every tool that may be called, stored queries included."""
        tools = dict(FIXED)
        probe = ToolCall(QUERIES_FIND, {}, self.session, self.desk, self.known)
        entries = await stored_entries(probe)
        if len(entries) > TOOLS_MAX:
            reads_only = replace(QUERY_RUN, reads=True, destructive=False, idempotent=True)
            run = reads_only if self.session.read_only else QUERY_RUN
            tools["queries_find"] = OfferedTool(QUERIES_FIND, queries_find)
            tools["query_run"] = OfferedTool(run, query_run)
        else:
            for entry in entries:
                tool = stored_tool(entry)
                if tool.name in tools:  # the graph's own word would hide ours
                    tool = replace(tool, name=f"query_{tool.name}")
                tools[tool.name] = OfferedTool(tool, partial(_stored, entry=entry))
        return {name: each for name, each in tools.items() if self._offers(each.tool)}

    def _offers(self, tool: AgentTool) -> bool:
        if self.session.read_only and not tool.reads:
            return False
        return not (self.session.stored_only and tool.free_text)

    async def call(
        self, name: str, arguments: Document, progress: OnProgress | None = None
    ) -> ToolOutcome:
        """The outcome of a call, or `UnknownTool`."""
        offered = FIXED.get(name)
        if offered is None:
            offered = (await self.offered()).get(name)
            if offered is None:
                raise UnknownTool(name)
        tool = offered.tool
        call = ToolCall(tool, arguments, self.session, self.desk, self.known, self.client, progress)
        try:
            if not self._offers(tool):
                raise refused(403, f"this session has no tool '{name}': {self._limits()}")
            _require_fitting(tool, arguments)
            document = await self._done(offered.work, call)
        except ToolRefused as cause:
            return _failure(cause.answer)
        except asyncio.CancelledError:
            raise
        except UnicodeEncodeError as cause:
            return _failure(ApiAnswer(400, {"error": f"a text is no Unicode: {cause.reason}"}))
        except Exception as cause:  # noqa: BLE001  a tool answers with an error, whatever happens
            error = error_answer(cause)
            return _failure(ApiAnswer(error.status, {"error": error.body.error}))
        return ToolOutcome(document)

    async def _done(self, work: Work, call: ToolCall) -> Document:
        """The result; once more if the session's branch went while it was relied on."""
        try:
            return await work(call)
        except ToolRefused as cause:
            branch = self.session.branch
            if cause.answer.status != 404 or branch is None or branch not in str(cause.answer):
                raise
            stale = {pair for pair in self.known.branches if pair[1] == branch}
            if not stale:
                raise
            self.known.branches.difference_update(stale)
            return await work(call)

    def _limits(self) -> str:
        return "it is read-only" if self.session.read_only else "it runs stored queries alone"


async def _stored(call: ToolCall, entry: Document) -> Document:
    return await called(call, entry)


def _require_fitting(tool: AgentTool, arguments: Document) -> None:
    schema = input_schema(tool.arguments)
    fault: Any = best_match(Draft202012Validator(schema).iter_errors(arguments))
    if fault is None:
        return
    where = "".join(f"[{part!r}]" for part in fault.absolute_path)
    known = ", ".join(schema["properties"]) or "none"
    shown = fault.message if len(fault.message) < 400 else f"{fault.message[:400]}…"
    raise refused(400, f"argument{where}: {shown}; arguments of {tool.name}: {known}")


def _failure(answer: ApiAnswer) -> ToolOutcome:
    body = answer.document if isinstance(answer.document, dict) else {"error": answer.document}
    body = {name: value for name, value in body.items() if name != "fault"}
    document = {
        "error": body.get("error", ""),
        "status": answer.status,
        "code": body.get("code"),
        "requestId": answer.request_id or os.urandom(8).hex(),
        "body": fitted(body, _ERROR_BYTES),
    }
    return ToolOutcome(document, is_error=True)
