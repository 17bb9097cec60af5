"""The official client of the protocol, called from tests that are not asynchronous."""

import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from jsonschema import Draft202012Validator
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Tool

import omnigraph as og
from omnigraph.cluster.query_catalog import StoredQueries, required_queries, texts_of_paths

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  photo: Blob?
  @range(age, 0..150)
}
node Doc {
  slug: String @key
  text: String @index
  written: Date?
  embedding: Vector(4)? @embed(text)
}
edge Knows: Person -> Person { since: I32? }
edge Wrote: Person -> Doc
"""
RECORDS = (
    '{"type":"Person","data":{"name":"Ada","age":36,"photo":"base64:aGVsbG8gd29ybGQ="}}\n'
    '{"type":"Person","data":{"name":"Bob","age":25}}\n'
    '{"type":"Person","data":{"name":"Cyd"}}\n'
    '{"type":"Doc","data":{"slug":"d1","text":"The pump leaks","written":"2026-11-18",'
    '"embedding":[1,0,0,0]}}\n'
    '{"type":"Doc","data":{"slug":"d2","text":"Paint on the hull","embedding":[0,1,0,0]}}\n'
    '{"edge":"Knows","from":"Ada","to":"Bob","data":{"since":2020}}\n'
    '{"edge":"Knows","from":"Ada","to":"Cyd","data":{}}\n'
    '{"edge":"Knows","from":"Cyd","to":"Ada","data":{}}\n'
    '{"edge":"Wrote","from":"Ada","to":"d1","data":{}}\n'
)
NAMES = "query names() { match { $p: Person } return { $p.name as name } order { name } }"
ADD = "query add($n: String) { insert Person { name: $n } }"
AGE = "query set_age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
STORED = """
query by_name($name: String, $limit_to: I32?)
  @description("A person by name.")
  @instruction("Use it before you add somebody.")
{ match { $p: Person { name: $name } } return { $p.name as name, $p.age as age } }

query hire($name: String, $age: I32?) @description("Add a person.")
{ insert Person { name: $name, age: $age } }

query near($v: Vector(4), $branch: String?)
{ match { $d: Doc } return { $d.slug as slug } order { nearest($d.embedding, $v) } limit 1 }
"""
PROGRAM = ["-c", "from omnigraph.cli.start import program; program()", "mcp"]


def stored_in(graph: og.Graph, path: Path) -> StoredQueries:
    """The stored queries of a file or folder, for a graph."""
    return required_queries(texts_of_paths([str(path)]), graph.schema.catalog)


def new_graph(folder: Path, name: str = "people") -> str:
    """A small graph; where it is."""
    uri = str(folder / f"{name}.omni")
    with og.init(uri, schema=SCHEMA) as graph:
        graph.load(RECORDS.encode(), "merge")
    return uri


class AgentClient:
    """One session of the official client."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self.portal = portal
        self.client = client
        self._schemas: dict[str, Draft202012Validator | None] = {}

    def tools(self) -> dict[str, Tool]:
        """Every tool, by name."""
        return {tool.name: tool for tool in self.portal.call(self.client.list_tools).tools}

    def call(self, name: str, /, **arguments: Any) -> CallToolResult:
        """Call a tool. Its answer, an error too, is checked against the schema that it announces:
        structured content fits it, and the text is the same as JSON."""
        if name not in self._schemas:
            schemas = {each.name: each.output_schema for each in self.tools().values()}
            self._schemas = {
                each: None if schema is None else Draft202012Validator(schema)
                for each, schema in schemas.items()
            }
        result = self.portal.call(self.client.call_tool, name, arguments)
        (block,) = result.content
        document = json.loads(block.text)  # type: ignore[union-attr]
        schema = self._schemas.get(name)
        if result.structured_content is not None:
            assert schema is not None
            schema.validate(result.structured_content)
            assert document == result.structured_content
        else:
            assert result.is_error or schema is None
        return result

    def done(self, name: str, /, **arguments: Any) -> Any:
        """The document of a call that succeeds."""
        result = self.call(name, **arguments)
        assert not result.is_error, result.content
        return json.loads(result.content[0].text)  # type: ignore[union-attr]

    def failed(self, name: str, /, **arguments: Any) -> Any:
        """The error of a call that fails."""
        result = self.call(name, **arguments)
        assert result.is_error, result.structured_content
        error = json.loads(result.content[0].text)  # type: ignore[union-attr]
        assert error.keys() == {"error", "status", "code", "requestId", "body"}
        return error

    def resource(self, uri: str) -> str:
        """The text of a resource."""
        (content,) = self.portal.call(self.client.read_resource, uri).contents
        text: str = content.text  # type: ignore[union-attr]
        return text


@contextlib.contextmanager
def connected(server: Any, **options: Any) -> Iterator[AgentClient]:
    """A session with a server: a URL, a command, or an object of this process."""
    with start_blocking_portal() as portal:
        client = Client(server, **options)
        with portal.wrap_async_context_manager(client):
            yield AgentClient(portal, client)


def command(*arguments: str, env: dict[str, str] | None = None) -> StdioServerParameters:
    """`omnigraph mcp` as a client starts it."""
    whole = {**os.environ, **(env or {})}
    return StdioServerParameters(command=sys.executable, args=[*PROGRAM, *arguments], env=whole)


@contextlib.asynccontextmanager
async def with_token(url: str, token: str) -> AsyncIterator[Any]:
    """A transport that sends a bearer token."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams
