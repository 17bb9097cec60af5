"""The OpenAPI document: generated, checked in, and true."""

import json
from pathlib import Path

import pytest

from omnigraph.server import openapi
from omnigraph.server.route_table import FLAT, NESTED
from omnigraph.server.server_endpoints import server_endpoints
from tests.golden import UPDATE
from tests.server.world import Served

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"
OPERATIONS = {
    "health", "listGraphs", "cluster_query", "cluster_read", "cluster_mutate",
    "cluster_mutate_if_graph_commit", "cluster_change", "cluster_list_queries",
    "cluster_invoke_query", "cluster_invoke_query_if_graph_commit", "cluster_load",
    "cluster_loadNdjson", "cluster_ingest", "cluster_listBranches", "cluster_createBranch",
    "cluster_deleteBranch", "cluster_mergeBranches", "cluster_listCommits", "cluster_getCommit",
    "cluster_getCommitChanges", "cluster_pollChanges", "cluster_captureChangeBaseline",
    "cluster_export", "cluster_getSchema", "cluster_applySchema", "cluster_getSnapshot",
    "cluster_getBlob", "cluster_headBlob",
}  # fmt: skip


def made() -> dict[str, object]:
    return openapi.document((*server_endpoints(), *NESTED, *FLAT), with_tokens=True)


def operations(document: dict[str, object]) -> dict[str, dict[str, object]]:
    paths: dict[str, dict[str, dict[str, object]]] = document["paths"]  # type: ignore[assignment]
    return {str(op["operationId"]): op for path in paths.values() for op in path.values()}


def test_the_document_that_is_checked_in_is_the_one_that_is_generated() -> None:
    text = json.dumps(made(), indent=1, sort_keys=True) + "\n"
    if UPDATE:
        FILE.write_text(text, encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == text


def test_every_operation_of_the_api_is_in_the_document() -> None:
    assert operations(made()).keys() >= OPERATIONS
    deprecated = {name for name, op in operations(made()).items() if op.get("deprecated")}
    assert deprecated >= {"cluster_read", "cluster_change", "cluster_ingest"}


def test_without_tokens_nothing_asks_for_one(server: Served) -> None:
    document = server.client.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert "securitySchemes" not in document["components"]
    assert not any("security" in op for op in operations(document).values())


@pytest.mark.parametrize("name", sorted(OPERATIONS - {"health"}))
def test_with_tokens_every_operation_of_a_graph_asks_for_one(name: str) -> None:
    assert operations(made())[name]["security"] == [{"bearer_token": []}]
