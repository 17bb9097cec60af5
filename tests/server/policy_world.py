"""A served graph under a policy, with an actor for every kind of grant, and a request a route."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from omnigraph.policy import Action
from omnigraph.policy.actions import SCOPE_KEYS
from omnigraph.server.bearer import digest_of
from omnigraph.server.serve_settings import Access, ServerSettings
from tests.server.world import ADD, NAMES, SCHEMA, Served, new_graph

GRAPH_ACTIONS = [str(action) for action in Action if action is not Action.GRAPH_LIST]
LINE = '{"type":"Person","data":{"name":"Zed"}}\n'
PROTECTED = ["main", "new-main", "tag-main"]


def actors() -> dict[str, list[dict[str, Any]]]:
    """What each actor is allowed: `has-X` X alone, `lacks-X` all but X, `on-…-X` X there."""
    granted: dict[str, list[dict[str, Any]]] = {
        "nothing": [],
        "everything": [_allow(GRAPH_ACTIONS)],
    }
    for action in GRAPH_ACTIONS:
        # A review shows the heads of its branches, so who may review may read them.
        more = [_allow(["read"])] if action == "review" else []
        granted[f"has-{action}"] = [_allow([action]), *more]
        granted[f"lacks-{action}"] = [_allow([a for a in GRAPH_ACTIONS if a != action])]
        key = SCOPE_KEYS.get(Action(action))
        for scope in ("protected", "unprotected"):
            if key is not None:
                granted[f"on-{scope}-{action}"] = [{**_allow([action]), key: scope}, *more]
    return granted


def _allow(actions: list[str]) -> dict[str, Any]:
    return {"actions": actions}


def policy_text(**members: Any) -> str:
    """A policy with a group an actor. `act-x` is the actor of group `x`."""
    granted = actors()
    rules = [
        {"id": f"{name}-{number}", "allow": {"actors": {"group": name}, **allow}}
        for name, allows in granted.items()
        for number, allow in enumerate(allows)
    ]
    document = {
        "version": 1,
        "groups": {name: [f"act-{name}"] for name in granted},
        "protected_branches": PROTECTED,
        "rules": rules,
        **members,
    }
    return yaml.safe_dump(document)


def bearer(name: str) -> dict[str, str]:
    """The header of an actor's token."""
    return {"Authorization": f"Bearer token-{name}"}


def served_policy(folder: Path, **settings: Any) -> Served:
    """A server with tokens and a policy; its graph has a protected branch and others."""
    uri = new_graph(folder)
    file = folder / "policy.yaml"
    file.write_text(policy_text())
    names = [*actors(), "stranger"]
    server = Served(
        ServerSettings(
            graphs={"people": uri},
            access=Access.READ_ONLY,
            tokens={digest_of(f"token-{name}"): f"act-{name}" for name in names},
            policies={"people": str(file)},
            **settings,
        )
    )
    graph = server.graph
    for branch in ("side", "draft"):
        graph.branches.create(branch)
        graph.mutate(ADD, {"n": f"on {branch}"}, branch=branch)
    graph.tags.create("t0")
    return server


@dataclass(frozen=True)
class Cell:
    """A request of a route. `branched` routes are about a branch, which the request names."""

    action: str
    send: Callable[["Sender", str], httpx.Response]
    branched: bool = True
    is_main: bool = False  # about main, whatever the request says
    statuses: tuple[int, ...] = (200,)
    denied: int = 403


class Sender:
    """Sends requests as one actor, or with any headers."""

    def __init__(self, server: Served, headers: dict[str, str], base: str | None = None) -> None:
        self.server = server
        self.headers = headers
        self.base = server.base if base is None else base

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.request("GET", path, params=params)

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return self.request("POST", path, json=body, headers=headers)

    def request(
        self, method: str, path: str, headers: dict[str, str] | None = None, **options: Any
    ) -> httpx.Response:
        sent = {**self.headers, **(headers or {})}
        return self.server.client.request(method, self.base + path, headers=sent, **options)

    def head(self, branch: str) -> str:
        return self.server.graph.snapshot(branch).commit_id

    def fresh(self, branch: str) -> str:
        """A branch `new-<branch>` that is there."""
        name = f"new-{branch}"
        if name not in self.server.graph.branches.list():
            self.server.graph.branches.create(name)
        return name

    def gone(self, branch: str) -> str:
        """A branch `new-<branch>` that is not there."""
        name = f"new-{branch}"
        if name in self.server.graph.branches.list():
            self.server.graph.branches.delete(name)
        return name

    def fresh_tag(self, branch: str) -> str:
        """A tag `tag-<branch>` that is there."""
        name = f"tag-{branch}"
        if name not in [tag.name for tag in self.server.graph.tags.list()]:
            self.server.graph.tags.create(name)
        return name

    def gone_tag(self, branch: str) -> str:
        """A tag `tag-<branch>` that is not there."""
        name = f"tag-{branch}"
        if name in [tag.name for tag in self.server.graph.tags.list()]:
            self.server.graph.tags.delete(name)
        return name

    def review(self, branch: str) -> str:
        """An open review of a merge into a branch, by somebody who is not asked about here."""
        reviews = self.server.graph.reviews
        for each in reviews.list(state="open", target=branch):
            if each.author == "act-author":
                return each.id
        return reviews.open("side", branch, title="A review", actor="act-author").id


def _stream(sender: Sender, branch: str) -> httpx.Response:
    url = f"{sender.base}/changes/stream"
    params = {"branch": branch, "start": "beginning"}
    with sender.server.client.stream("GET", url, params=params, headers=sender.headers) as response:
        if response.status_code == 200:
            next(response.iter_raw())
        else:
            response.read()
        return response


def _own_job(sender: Sender, branch: str) -> str:
    """A job of this server's upkeep, on a branch."""
    body = {"kind": "optimize", "branch": branch, "engine": "local"}
    everything = Sender(sender.server, bearer("everything"))
    return str(everything.post("/jobs", body).json()["id"])


_BLOB = {"entity": "node", "type": "Person", "id": "Ada", "property": "photo"}
_MUTATION = {"query": ADD, "params": {"n": "New"}}

CELLS: dict[str, Cell] = {
    "cluster_query": Cell("read", lambda s, b: s.post("/query", {"query": NAMES, "branch": b})),
    "cluster_read": Cell(
        "read", lambda s, b: s.post("/read", {"query_source": NAMES, "branch": b})
    ),
    "cluster_mutate": Cell("change", lambda s, b: s.post("/mutate", {**_MUTATION, "branch": b})),
    "cluster_mutate_if_graph_commit": Cell(
        "change",
        lambda s, b: s.post(
            "/mutate/if-graph-commit",
            {**_MUTATION, "branch": b},
            **{"Omnigraph-If-Graph-Commit": s.head(b)},
        ),
    ),
    "cluster_change": Cell("change", lambda s, b: s.post("/change", {**_MUTATION, "branch": b})),
    "cluster_list_queries": Cell("read", lambda s, b: s.get("/queries"), is_main=True),
    "cluster_invoke_query": Cell(
        "invoke_query",
        lambda s, b: s.post("/queries/nope", {"branch": b}),
        branched=False,
        statuses=(404,),
        denied=404,
    ),
    "cluster_invoke_query_if_graph_commit": Cell(
        "invoke_query",
        lambda s, b: s.post(
            "/queries/nope/if-graph-commit", {}, **{"Omnigraph-If-Graph-Commit": s.head(b)}
        ),
        branched=False,
        statuses=(404,),
        denied=404,
    ),
    "cluster_load": Cell("change", lambda s, b: s.post("/load", {"data": LINE, "branch": b})),
    "cluster_loadNdjson": Cell(
        "change",
        lambda s, b: s.request(
            "POST",
            "/load/ndjson",
            params={"branch": b},
            content=LINE,
            headers={"Content-Type": "application/x-ndjson"},
        ),
    ),
    "cluster_ingest": Cell("change", lambda s, b: s.post("/ingest", {"data": LINE, "branch": b})),
    "cluster_listBranches": Cell("read", lambda s, b: s.get("/branches"), branched=False),
    "cluster_createBranch": Cell(
        "branch_create", lambda s, b: s.post("/branches", {"name": s.gone(b), "from": "draft"})
    ),
    "cluster_deleteBranch": Cell(
        "branch_delete", lambda s, b: s.request("DELETE", f"/branches/{s.fresh(b)}")
    ),
    "cluster_mergeBranches": Cell(
        "branch_merge",
        lambda s, b: s.post("/branches/merge", {"source": "side", "target": b}),
    ),
    "cluster_openReview": Cell(
        "review", lambda s, b: s.post("/reviews", {"source": "side", "target": b, "title": "t"})
    ),
    "cluster_listReviews": Cell("read", lambda s, b: s.get("/reviews"), branched=False),
    # Its source is another branch than its target, and both must be read.
    "cluster_getReview": Cell(
        "read", lambda s, b: s.get(f"/reviews/{s.review(b)}"), branched=False
    ),
    "cluster_commentOnReview": Cell(
        "review", lambda s, b: s.post(f"/reviews/{s.review(b)}/comments", {"text": "t"})
    ),
    "cluster_approveReview": Cell(
        "review", lambda s, b: s.post(f"/reviews/{s.review(b)}/approve", {})
    ),
    "cluster_closeReview": Cell("review", lambda s, b: s.post(f"/reviews/{s.review(b)}/close", {})),
    "cluster_mergeReview": Cell(
        "branch_merge", lambda s, b: s.post(f"/reviews/{s.review(b)}/merge", {})
    ),
    "cluster_listCommits": Cell("read", lambda s, b: s.get("/commits", branch=b)),
    "cluster_getCommit": Cell("read", lambda s, b: s.get(f"/commits/{s.head(b)}"), branched=False),
    "cluster_getCommitChanges": Cell("read", lambda s, b: s.get(f"/commits/{s.head(b)}/changes")),
    "cluster_pollChanges": Cell("read", lambda s, b: s.get("/changes", branch=b, start="now")),
    "cluster_streamChanges": Cell("read", _stream),
    "cluster_captureChangeBaseline": Cell(
        "export", lambda s, b: s.post("/changes/baseline", {"branch": b})
    ),
    "cluster_export": Cell("export", lambda s, b: s.post("/export", {"branch": b})),
    "cluster_getSchema": Cell("read", lambda s, b: s.get("/schema"), branched=False),
    "cluster_applySchema": Cell(
        "schema_apply",
        lambda s, b: s.post("/schema/apply", {"schema_source": SCHEMA, "branch": b}),
    ),
    "cluster_getSnapshot": Cell("read", lambda s, b: s.get("/snapshot", branch=b)),
    "cluster_getBlob": Cell("read", lambda s, b: s.get("/blob", **_BLOB, branch=b)),
    "cluster_headBlob": Cell(
        "read", lambda s, b: s.request("HEAD", "/blob", params={**_BLOB, "branch": b})
    ),
    "cluster_putBlob": Cell(
        "change",
        lambda s, b: s.request(
            "PUT",
            "/blob",
            params={**_BLOB, "branch": b},
            content=b"bytes",
            headers={"Content-Type": "application/octet-stream"},
        ),
    ),
    "cluster_getEntity": Cell("read", lambda s, b: s.get("/entities/node/Person/Ada", branch=b)),
    "cluster_getEntityHistory": Cell(
        "read", lambda s, b: s.get("/entities/node/Person/Ada/history", branch=b)
    ),
    "cluster_startJob": Cell(
        "change",
        lambda s, b: s.post("/jobs", {"kind": "optimize", "branch": b, "engine": "local"}),
    ),
    "cluster_listJobs": Cell("read", lambda s, b: s.get("/jobs"), branched=False),
    "cluster_getJob": Cell("read", lambda s, b: s.get(f"/jobs/{_own_job(s, b)}"), branched=False),
    "cluster_cancelJob": Cell(
        "change", lambda s, b: s.request("DELETE", f"/jobs/{_own_job(s, b)}")
    ),
    "cluster_listIndexes": Cell("read", lambda s, b: s.get("/indexes", branch=b)),
    "cluster_getOperation": Cell("read", lambda s, b: s.get("/operations/some-key", branch=b)),
    "cluster_listTags": Cell("read", lambda s, b: s.get("/tags"), branched=False),
    "cluster_createTag": Cell(
        "branch_create",
        lambda s, b: s.post("/tags", {"name": s.gone_tag(b), "point": "draft"}),
    ),
    "cluster_deleteTag": Cell(
        "branch_delete", lambda s, b: s.request("DELETE", f"/tags/{s.fresh_tag(b)}")
    ),
    "cluster_revert": Cell(
        "change", lambda s, b: s.post("/revert", {"commit": s.head(b), "branch": b})
    ),
    "cluster_restore": Cell(
        "change", lambda s, b: s.post("/restore", {"point": s.head(b), "branch": b})
    ),
    "cluster_transact": Cell(
        "change", lambda s, b: s.post("/transactions", {"branch": b, "statements": [_MUTATION]})
    ),
    "cluster_diff": Cell("read", lambda s, b: s.get("/diff", **{"from": s.head(b), "to": b})),
    "cluster_lint": Cell("read", lambda s, b: s.post("/lint", {"query": NAMES}), branched=False),
    "cluster_explain": Cell(
        "read", lambda s, b: s.post("/explain", {"query": NAMES}), branched=False
    ),
}
