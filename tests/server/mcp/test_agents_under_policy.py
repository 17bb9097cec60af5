"""A policy holds for agents as for everybody: each tool asks as the route behind it does."""

import json
from pathlib import Path

from omnigraph.server.serve_settings import Access
from tests.server.mcp.agent_client import ADD, NAMES, connected, new_graph, with_token
from tests.server.world import TOKENS, served

POLICY = {
    "version": 1,
    "groups": {"agents": ["act-bob"], "reviewers": ["act-ada"]},
    "protected_branches": ["main"],
    "rules": [
        {
            "id": "agents-read",
            "allow": {"actors": {"group": "agents"}, "actions": ["read"]},
        },
        {
            "id": "agents-branch",
            "allow": {
                "actors": {"group": "agents"},
                "actions": ["branch_create"],
                "target_branch_scope": "unprotected",
            },
        },
        {
            "id": "agents-write-drafts",
            "allow": {
                "actors": {"group": "agents"},
                "actions": ["change"],
                "branch_scope": "unprotected",
            },
        },
        {
            "id": "reviewers-read",
            "allow": {"actors": {"group": "reviewers"}, "actions": ["read"]},
        },
        {
            "id": "reviewers-merge",
            "allow": {
                "actors": {"group": "reviewers"},
                "actions": ["branch_merge"],
                "target_branch_scope": "any",
            },
        },
    ],
}


def test_an_agent_writes_on_its_branch_and_a_reviewer_merges(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(json.dumps(POLICY))
    settings = {"access": Access.READ_ONLY, "policies": {"people": str(file)}}
    with served(new_graph(tmp_path), **settings) as server:  # type: ignore[arg-type]
        url = f"{server.url}/mcp"
        with connected(with_token(f"{url}?branch=agent/bob", TOKENS["act-bob"])) as agent:
            added = agent.done("mutate", query=ADD, params={"n": "Dee"})
            assert (added["branch"], added["actor_id"]) == ("agent/bob", "act-bob")
            refused = agent.failed("mutate", query=ADD, params={"n": "Eve"}, branch="main")
            assert (refused["status"], refused["code"]) == (403, "forbidden")
            assert refused["error"] == (
                "policy denied action 'change' on branch 'main' for actor 'act-bob'"
            )
            denied = agent.failed("branches_merge")
            assert denied["status"] == 403
            assert "targeting branch 'main'" in denied["error"]
            line = '{"type":"Person","data":{"name":"Zed"}}'
            assert agent.failed("load", data=line, branch="main")["status"] == 403
            assert agent.failed("branches_delete", name="agent/bob")["status"] == 403
            assert agent.failed("branches_create", name="main")["status"] in (403, 409)
        with connected(with_token(url, TOKENS["act-ada"])) as reviewer:
            assert reviewer.failed("mutate", query=ADD, params={"n": "X"})["status"] == 403
            preview = reviewer.done("branches_merge", source="agent/bob", dry_run=True)
            assert preview["outcome"] == "fast_forward"
            reviewer.done("branches_merge", source="agent/bob")
            names = [row["name"] for row in reviewer.done("query", query=NAMES)["rows"]]
            assert names == ["Ada", "Bob", "Cyd", "Dee"]
