"""Source text of a query or a schema: given as text, or as the file that holds it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest, NotFound

if TYPE_CHECKING:
    from omnigraph.catalog.near_paths import near_path
else:
    near_path = deferred("omnigraph.catalog.near_paths", "near_path")

USE_MUTATE = "use omnigraph mutate; in Python, graph.mutate"
USE_QUERY = "in Python, graph.query"
"""Hints for a text that the other verb takes."""


def schema_text(schema: str | os.PathLike[str]) -> str:
    """The text of a schema; a string that ends in `.pg` is a path."""
    if isinstance(schema, str) and (not schema.endswith(".pg") or "\n" in schema):
        return schema
    return _file_text("schema file", schema)


def _file_text(kind: str, path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(kind, os.fspath(path), near_path(path)) from None
    except (OSError, ValueError) as cause:  # also a text that is no UTF-8, a path with a NUL
        raise BadRequest(f"cannot read the {kind} '{os.fspath(path)}': {cause}") from cause


def query_text(query: str | os.PathLike[str]) -> str:
    """The text of a query; a `Path` is a file."""
    if isinstance(query, str):
        if query.endswith(".gq") and "\n" not in query and "{" not in query:
            raise BadRequest(
                f"'{query}' is the name of a file, not a query", f"pass Path('{query}')"
            )
        return query
    return _file_text("query file", query)
