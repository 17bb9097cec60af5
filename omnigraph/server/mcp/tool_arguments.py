"""Tool arguments: their JSON Schemas, and the part of a request that each becomes.

Invariant: an argument of one name means the same in every tool. What a schema does not list is
refused before anything is asked.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from omnigraph.server.mcp.answer_schemas import JsonSchema


class RequestPart(StrEnum):
    """Where in a request the value of an argument goes."""

    PATH = "path"
    QUERY = "query"
    BODY = "body"
    HEADER = "header"
    OWN = "own"  # the tool itself reads it


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool. `wire` is its name in the request, if that is another."""

    name: str
    about: str
    part: RequestPart = RequestPart.OWN
    shape: JsonSchema = field(default_factory=lambda: {"type": "string"})
    required: bool = False
    wire: str = ""

    @property
    def wire_name(self) -> str:
        """Its name in the request."""
        return self.wire or self.name

    def schema(self) -> JsonSchema:
        """Its JSON Schema."""
        return {**self.shape, "description": self.about}


def input_schema(arguments: tuple[Argument, ...]) -> JsonSchema:
    """The JSON Schema of all arguments of a tool."""
    shown: JsonSchema = {
        "type": "object",
        "properties": {each.name: each.schema() for each in arguments},
        "additionalProperties": False,
    }
    if required := [each.name for each in arguments if each.required]:
        shown["required"] = required
    return shown


def one_of(*words: str) -> JsonSchema:
    """A text that is one of some words."""
    return {"type": "string", "enum": list(words)}


def whole(least: int, most: int) -> JsonSchema:
    """A whole number in a range."""
    return {"type": "integer", "minimum": least, "maximum": most}


NAME: JsonSchema = {"type": "string", "minLength": 1}
SWITCH: JsonSchema = {"type": "boolean"}
PARAMS: JsonSchema = {"type": "object"}
NAMES: JsonSchema = {"type": "array", "items": {"type": "string", "minLength": 1}}

GRAPH = Argument("graph", "Id of the graph; may be left out if there is one.", shape=NAME)


def branch(part: RequestPart) -> Argument:
    """Which branch."""
    return Argument("branch", "Which branch; by default the session's, else main.", part, NAME)


def snapshot(part: RequestPart) -> Argument:
    """Which earlier state."""
    about = "As it was at a commit, a tag or a point such as main~3; in place of branch."
    return Argument("snapshot", about, part, NAME)


def filters() -> tuple[Argument, ...]:
    """Filters of a listing of changes."""

    def words(*each: str) -> JsonSchema:
        return {"type": "array", "items": one_of(*each)}

    return (
        Argument("kind", "Only nodes or only edges.", RequestPart.QUERY, words("node", "edge")),
        Argument("type", "Only these types.", RequestPart.QUERY, NAMES),
        Argument(
            "op", "Only these operations.", RequestPart.QUERY, words("insert", "update", "delete")
        ),
    )


PAGE_MAX = 1_000
LIMIT = Argument("limit", "At most so many to a page.", RequestPart.QUERY, whole(1, PAGE_MAX))
PAGE = Argument("page_token", "next_page_token of the page before.", RequestPart.QUERY, NAME)
INCLUDE = Argument("include", "Vector and blob properties to show, by name.", shape=NAMES)
MESSAGE = Argument("message", "What the commit is for, kept in its history.", RequestPart.BODY)


def query_pairs(name: str, value: Any) -> list[tuple[str, str]]:
    """A value as query parameters: a list is repeated."""
    values = value if isinstance(value, list) else [value]
    return [(name, str(each).lower() if isinstance(each, bool) else str(each)) for each in values]
