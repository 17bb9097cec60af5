"""Every route × every kind of token: its status, its words, and that a denial writes nothing."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from omnigraph.server.route_table import FLAT, NESTED
from omnigraph.server.server_endpoints import server_endpoints
from tests.server.policy_world import CELLS, Cell, Sender, bearer, served_policy
from tests.server.world import Served

OPEN_TO_ALL = {"health", "ready", "metrics", "openapi", "oauthProtectedResource"}
WITH_ANY_TOKEN = {"whoami"}
REVIEWED = [cell for name, cell in CELLS.items() if name.endswith("Review")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = served_policy(tmp_path_factory.mktemp("policy"))
    try:
        yield running
    finally:
        running.close()


def state(server: Served) -> Any:
    """Everything that a request could have written, beside a job that is running."""
    graph = server.graph
    heads = {name: graph.snapshot(name).commit_id for name in graph.branches.list()}
    tags = [tag.name for tag in graph.tags.list()]
    return heads, tags, graph.beside.names("jobs"), graph.reviews.list()


def settled(server: Served) -> None:
    """Wait for the jobs that a cell started."""
    while server.app.jobs.running:
        pass


def test_every_route_has_an_action_and_a_cell() -> None:
    assert CELLS.keys() == {endpoint.operation for endpoint in NESTED}
    for endpoint in NESTED:
        assert endpoint.action == CELLS[endpoint.operation].action
    without = {each.operation for each in server_endpoints() if each.action is None}
    assert without == OPEN_TO_ALL
    assert {each.operation for each in server_endpoints()} - without == {"listGraphs", "whoami"}


def denied(server: Served, cell: Cell, name: str, branch: str) -> None:
    """A cell that is denied: with the right status, the right words and nothing written."""
    sender = Sender(server, bearer(name))
    _prepared(cell, sender, branch)
    was = state(server)
    response = cell.send(sender, branch)
    settled(server)
    assert response.status_code in (cell.denied, 404 if _is_hidden(cell) else 0), response.text
    assert state(server) == was
    if response.status_code == 403 and response.request.method != "HEAD":
        text = response.json()["error"]
        assert text.startswith(f"policy denied action '{cell.action}'")
        assert text.endswith(f"actor 'act-{name}'")


def _is_hidden(cell: Cell) -> bool:
    return cell is CELLS["cluster_getCommitChanges"]


def _prepared(cell: Cell, sender: Sender, branch: str) -> None:
    """What a cell makes beforehand is no trace of its request."""
    if cell in REVIEWED:
        sender.review(branch)
    if cell.action == "branch_delete":
        sender.fresh(branch)
        sender.fresh_tag(branch)
    elif cell.action == "branch_create":
        sender.gone(branch)
        sender.gone_tag(branch)


def unauthenticated(server: Served, send: Any) -> None:
    for headers, text in (
        ({}, "missing bearer token"),
        ({"Authorization": "Basic token-everything"}, "missing bearer token"),
        ({"Authorization": "Bearer wrong"}, "invalid bearer token"),
        ({"Authorization": "Bearer wrong", "X-Actor": "act-everything"}, "invalid bearer token"),
    ):
        response: httpx.Response = send(Sender(server, headers))
        assert response.status_code == 401
        assert response.request.method == "HEAD" or response.json()["error"] == text


@pytest.mark.parametrize("operation", [each for each in CELLS if "Job" not in each])
def test_a_route_lets_in_whom_the_policy_allows_and_nobody_else(
    server: Served, operation: str
) -> None:
    _walk(server, operation)


@pytest.mark.parametrize("operation", [each for each in CELLS if "Job" in each])
def test_a_route_of_jobs_lets_in_whom_the_policy_allows(server: Served, operation: str) -> None:
    cell = CELLS[operation]
    for name in ("nothing", "stranger"):
        response = cell.send(Sender(server, bearer(name)), "main")
        assert response.status_code == 403
    settled(server)
    before = len(server.graph.commits.list())
    if cell.branched:
        response = cell.send(Sender(server, bearer("on-unprotected-change")), "main")
        assert response.status_code == 403
        assert "on branch 'main' for actor" in response.json()["error"]
    else:
        response = cell.send(Sender(server, bearer("on-unprotected-read")), "main")
        assert response.status_code == 403
    settled(server)
    assert len(server.graph.commits.list()) == before
    response = cell.send(Sender(server, bearer(f"has-{cell.action}")), "draft")
    assert response.status_code == 200, response.text
    settled(server)


def _walk(server: Served, operation: str) -> None:
    cell = CELLS[operation]
    _prepared(cell, Sender(server, {}), "main")
    was = state(server)
    if cell.action not in ("branch_create", "branch_delete"):
        unauthenticated(server, lambda sender: cell.send(sender, "main"))
        assert state(server) == was
    for name in ("nothing", f"lacks-{cell.action}", "stranger"):
        denied(server, cell, name, "main")
    if cell.action == "invoke_query":
        assert cell.send(Sender(server, bearer("everything")), "main").status_code == 404
        return
    denied(server, cell, f"on-unprotected-{cell.action}", "main")
    if not cell.is_main:
        denied(server, cell, f"on-protected-{cell.action}", "draft")
    allowed = [(f"has-{cell.action}", "main")]
    if cell.branched:
        allowed.append((f"on-protected-{cell.action}", "main"))
    if cell.branched and not cell.is_main:
        allowed.append((f"on-unprotected-{cell.action}", "draft"))
    for name, branch in allowed:
        sender = Sender(server, bearer(name))
        _prepared(cell, sender, branch)
        response = cell.send(sender, branch)
        assert response.status_code in cell.statuses, (name, branch, response.text)


@pytest.mark.parametrize("flat", FLAT, ids=lambda flat: flat.operation)
def test_a_flat_route_asks_as_its_nested_one(server: Served, flat: Any) -> None:
    cell = CELLS[f"cluster_{flat.operation}"]

    def send(name: str, branch: str) -> httpx.Response:
        sender = Sender(server, bearer(name), base="")
        _prepared(cell, sender, branch)
        return cell.send(sender, branch)

    for name in ("nothing", "stranger", f"on-unprotected-{cell.action}"):
        _prepared(cell, Sender(server, bearer(name)), "main")
        was = state(server)
        assert send(name, "main").status_code == 403
        assert state(server) == was
    assert send(f"has-{cell.action}", "draft").status_code in cell.statuses


def test_routes_about_no_graph(server: Served) -> None:
    for endpoint in server_endpoints():
        response = server.client.get(endpoint.path)
        if endpoint.operation == "oauthProtectedResource":
            assert response.status_code == 404, "nobody else is trusted"
            continue
        if endpoint.operation in OPEN_TO_ALL:
            assert response.status_code == 200
        else:
            assert response.status_code == 401
        response = server.client.get(endpoint.path, headers=bearer("everything"))
        expected = 403 if endpoint.operation == "listGraphs" else 200
        assert response.status_code == expected, response.text
    assert server.client.get("/whoami", headers=bearer("nothing")).json() == {
        "actor_id": "act-nothing",
        "access": "policy",
    }
