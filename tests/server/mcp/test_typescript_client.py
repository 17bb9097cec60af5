"""The official TypeScript client of the protocol, where Node.js is (`make test-mcp-typescript`)."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.server.mcp.agent_client import ADD, NAMES, new_graph
from tests.server.world import served

FOLDER = Path(__file__).parents[3] / ".build" / "mcp-typescript"
pytestmark = [pytest.mark.slow, pytest.mark.typescript]


def test_the_typescript_client_reads_results_and_errors(tmp_path: Path) -> None:
    person = {"type": "Person", "id": "Ada"}
    right: list[tuple[str, dict[str, Any]]] = [
        ("health", {}),
        ("graphs_list", {}),
        ("schema_get", {}),
        ("snapshot", {}),
        ("query", {"query": NAMES}),
        ("lint", {"query": NAMES}),
        ("explain", {"query": NAMES}),
        ("branches_create", {"name": "work", "from": "main"}),
        ("branches_list", {}),
        ("mutate", {"query": ADD, "params": {"n": "Ann"}, "branch": "work"}),
        ("load", {"data": '{"type":"Person","data":{"name":"Len"}}', "branch": "work"}),
        ("diff", {"from": "main", "to": "work"}),
        ("commits_list", {}),
        ("changes_poll", {"start": "beginning"}),
        ("entity_get", person),
        ("entity_history", person),
        ("neighbours", person),
        ("search", {"text": "pump", "by": "text"}),
        ("branches_merge", {"source": "work"}),
        ("branches_delete", {"name": "work"}),
    ]
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("query", {"query": "query q( {"}),
        ("entity_get", {"type": "Person", "id": "nobody"}),
        ("commits_get", {"commit": "nothing"}),
        ("commits_changes", {"commit": "nothing"}),
        *((name, {"graph": "none-such", **given}) for name, given in right[2:]),
    ]
    with served(new_graph(tmp_path)) as server:
        command = ["node", "client.mjs", f"{server.url}/mcp", json.dumps([*right, *wrong])]
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert set(document["tools"]) == {name for name, _ in (*right, *wrong)}
    answers = document["answers"]
    assert [each for each in answers if "raised" in each] == []
    for answer in answers[: len(right)]:
        assert not answer["isError"], answer
        assert json.loads(answer["text"]) == answer["structured"]
    for answer in answers[len(right) :]:
        assert answer["isError"], answer
        assert json.loads(answer["text"])["error"]
