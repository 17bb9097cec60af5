"""Resources of a cluster: kinds, addresses, digests and dependencies.

    graph.<id>   schema.<id>   query.<graph>.<name>   policy.<name>   provider.embedding.<name>

Invariant: an address names one resource. A digest is the lower-case SHA-256 of a file's content,
or of the canonical JSON of a description, so equal digests mean equal resources.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

RESOURCE_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
PROVIDER_PREFIX = "provider.embedding."
CLUSTER_SCOPE = "cluster"
_KINDS = {
    "graph": "graph",
    "schema": "schema",
    "query": "query",
    "policy": "policy",
    "provider": "embedding_provider",
}


def graph_address(graph: str) -> str:
    return f"graph.{graph}"


def graph_path(graph: str) -> str:
    """Where a graph lies below the storage root."""
    return f"graphs/{graph}.omni"


def schema_address(graph: str) -> str:
    return f"schema.{graph}"


def query_address(graph: str, name: str) -> str:
    return f"query.{graph}.{name}"


def policy_address(name: str) -> str:
    return f"policy.{name}"


def provider_address(name: str) -> str:
    return f"{PROVIDER_PREFIX}{name}"


def kind_of(address: str) -> str:
    """The kind of an address: graph, schema, query, policy or embedding_provider; else empty."""
    return _KINDS.get(address.partition(".")[0], "")


def graph_of(address: str) -> str | None:
    """The graph that a graph, a schema or a query belongs to; None for the others."""
    parts = address.split(".")
    return parts[1] if parts[0] in ("graph", "schema", "query") and len(parts) > 1 else None


def is_address(text: str) -> bool:
    """Whether a text has the form of an address."""
    parts = text.split(".")
    counts = {"graph": 2, "schema": 2, "policy": 2, "query": 3, "provider": 3}
    is_formed = counts.get(parts[0]) == len(parts) and all(map(RESOURCE_ID.fullmatch, parts))
    return is_formed and (parts[0] != "provider" or parts[1] == "embedding")


def digest_of_content(data: bytes) -> str:
    """The digest of a file."""
    return hashlib.sha256(data).hexdigest()


def digest_of_description(description: Any) -> str:
    """The digest of a value that JSON can say, whatever the order of its members."""
    return digest_of_content(orjson.dumps(description, option=orjson.OPT_SORT_KEYS))


def graph_digest(
    schema: str | None, queries: Mapping[str, str], provider: str | None, blobs: Any
) -> str:
    """The digest of a graph: its schema, its queries by address, its provider and blob policy."""
    return digest_of_description(
        {
            "schema": schema,
            "queries": dict(queries),
            "embedding_provider": provider,
            "external_blob_policy": blobs,
        }
    )


@dataclass(frozen=True, slots=True)
class Dependency:
    """`source` cannot be without `target`."""

    source: str
    target: str

    def to_json(self) -> dict[str, str]:
        return {"from": self.source, "to": self.target}


def dependents(address: str, dependencies: Iterable[Dependency]) -> list[str]:
    """Every resource that depends on another one, directly or not, sorted."""
    edges = list(dependencies)
    reached: set[str] = set()
    waiting = [address]
    while waiting:
        target = waiting.pop()
        fresh = {e.source for e in edges if e.target == target} - reached - {address}
        reached |= fresh
        waiting += fresh
    return sorted(reached)
