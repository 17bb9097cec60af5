"""Live reload: queries, checks, policies and tokens in every worker, whole or not at all."""

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from omnigraph.server.applied_sets import AppliedSets
from omnigraph.server.bearer import digest_of
from omnigraph.server.policy_files import ReloadedFiles
from omnigraph.server.request_log import RequestLog
from omnigraph.server.serve_settings import Access, ServerSettings
from omnigraph.server.served_sets import extras_of_folder, set_of_cluster
from tests.cluster.world import POLICY, QUERIES, Cluster
from tests.server.process import ServerProcess
from tests.server.world import NAMES, Served, new_graph

ADA = {"Authorization": "Bearer token-ada"}
OLD = "query old() { match { $p: Person  $p.age > 99 } return { $p.name as name } }"
FEW_S = 60.0


class Reloading:
    """A server, and the looks that a worker takes every second."""

    def __init__(self, settings: ServerSettings) -> None:
        self.server = Served(settings)
        log = RequestLog(as_json=False)
        files = ReloadedFiles(settings, self.server.app.gate, log)
        self.sets = AppliedSets(settings, self.server.graphs, self.server.app.gate, files, log)
        self.server.app.sets = self.sets

    def look(self) -> int:
        """Take one look; how many sets were swapped."""
        self.sets._files.look()
        swaps = self.sets.look()
        for swap in swaps:
            swap()
        return len(swaps)

    def queries(self) -> list[str]:
        listed = self.server.get("/queries", headers=ADA).json()["queries"]
        return [each["name"] for each in listed]

    def ready(self) -> dict[str, Any]:
        response = self.server.client.get("/readyz")
        assert response.status_code == 200
        (worker,) = response.json()["workers"]
        return dict(worker)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "queries"
    made.mkdir()
    (made / "names.gq").write_text(NAMES)
    return made


def test_SV14_a_folder_of_queries_takes_effect_whole_and_a_broken_one_not_at_all(
    tmp_path: Path, folder: Path
) -> None:
    world = Reloading(
        ServerSettings(
            {"people": new_graph(tmp_path)}, extras={"people": extras_of_folder(str(folder))}
        )
    )
    try:
        assert world.look() == 0
        first = world.ready()
        assert (world.queries(), first["kept"]) == (["names"], [])
        (folder / "old.gq").write_text(OLD)
        (folder / "checks.yaml").write_text("version: 1\nchecks: [{target: main, query: old}]\n")
        assert world.look() == 1
        assert world.queries() == ["names", "old"]
        second = world.ready()
        assert second["applied"] != first["applied"]
        for broken in (
            "query x() { match { $p: Nope } return { $p } }",
            "query x( {",
            OLD,  # declared twice
        ):
            (folder / "more.gq").write_text(broken)
            (folder / "names.gq").unlink(missing_ok=True)  # part of the same broken set
            assert world.look() == 0
            assert world.look() == 0
            assert world.queries() == ["names", "old"]
            assert world.ready() == {**second, "kept": ["people"]}
            text = world.server.client.get("/metrics").text
            assert "omnigraph_applied_kept 1\n" in text
        graph = world.server.graph
        graph.branches.create("work")
        add = 'query a() { insert Person { name: "Old", age: 120 } }'
        graph.mutate(add, branch="work")
        merge = world.server.post("/branches/merge", {"source": "work"})
        assert merge.status_code == 409, "the check of the old set is in force"
        (folder / "more.gq").unlink()
        (folder / "checks.yaml").unlink()
        assert world.look() == 1
        assert world.queries() == ["old"]
        assert world.ready()["kept"] == []
        assert world.server.post("/branches/merge", {"source": "work"}).status_code == 200
    finally:
        world.server.close()


def test_SV14_an_apply_takes_effect_and_what_cannot_be_used_keeps_the_old_set(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    cluster.applied()
    served = set_of_cluster(str(tmp_path))
    world = Reloading(
        ServerSettings(
            served.graphs,
            access=Access.READ_ONLY,
            tokens={digest_of("token-ada"): "act-ada"},
            extras=served.extras,
            cluster=served.cluster,
            cluster_policy=served.cluster_policy,
        )
    )
    try:
        assert world.look() == 0
        before = world.ready()
        assert world.queries() == ["add", "find"]
        cluster.write("queries/people.gq", QUERIES.replace("query find", "query seek"))
        cluster.write("base.policy.yaml", POLICY.replace("[read]", "[read, invoke_query]"))
        seek = {"params": {"n": "Ada"}}
        assert world.server.post("/queries/find", seek, headers=ADA).status_code == 404, "denied"
        assert world.look() == 0, "nothing was applied yet"
        cluster.applied()
        assert world.look() == 1
        after = world.ready()
        assert after["applied"] != before["applied"]
        assert world.queries() == ["add", "seek"]
        assert world.server.post("/queries/seek", seek, headers=ADA).status_code == 200
        state = tmp_path / "__cluster" / "state.json"
        good = state.read_bytes()
        for broken in (b"{", b"", good[:-20]):
            state.write_bytes(broken)
            assert world.look() == 0
            assert world.ready()["applied"] == after["applied"]
            assert world.ready()["kept"] != []
        state.unlink()
        assert world.look() == 0
        assert world.queries() == ["add", "seek"]
        state.write_bytes(good)
        assert world.look() == 0
        assert world.ready() == after
    finally:
        world.server.close()


def _ready(client: httpx.Client) -> list[dict[str, Any]]:
    workers = client.get("/readyz").json()["workers"]
    return sorted(workers, key=lambda worker: int(worker["worker"]))


def _until(client: httpx.Client, reached: Any) -> list[dict[str, Any]]:
    """The workers once all of them are as they should be."""
    end = time.monotonic() + FEW_S
    while True:
        workers = _ready(client)
        if len(workers) == 2 and all(map(reached, workers)):
            return workers
        assert time.monotonic() < end, workers
        time.sleep(0.1)


def test_SV14_every_worker_of_a_process_takes_over_tokens_policies_and_queries(
    tmp_path: Path, folder: Path
) -> None:
    tokens, policy = tmp_path / "tokens.json", tmp_path / "policy.yaml"
    tokens.write_text(json.dumps({"ada": "token-ada"}))
    policy.write_text(
        "version: 1\ngroups: {all: [ada, bob]}\n"
        "rules: [{id: r, allow: {actors: {group: all}, actions: [read]}}]\n"
    )
    with (
        ServerProcess(
            new_graph(tmp_path),
            *("--queries", str(folder), "--tokens", str(tokens), "--policy", str(policy)),
            *("--workers", "2"),
        ) as server,
        server.client() as client,
    ):
        first = _until(client, lambda worker: worker["applied"] and not worker["kept"])
        digests = {worker["applied"] for worker in first}
        assert len(digests) == 1
        (folder / "old.gq").write_text(OLD)
        second = _until(client, lambda worker: worker["applied"] not in digests)
        digests |= {worker["applied"] for worker in second}
        tokens.write_text(json.dumps({"bob": "token-bob"}))
        third = _until(client, lambda worker: worker["applied"] not in digests)
        digests |= {worker["applied"] for worker in third}
        policy.write_text(policy.read_text().replace("[read]", "[read, change]"))
        last = _until(client, lambda worker: worker["applied"] not in digests)
        assert len({worker["applied"] for worker in last}) == 1
        for _ in range(8):  # whichever worker answers
            with server.client() as each:
                assert each.get("/graphs/people/branches", headers=ADA).status_code == 401
                bob = {"Authorization": "Bearer token-bob"}
                listed = each.get("/graphs/people/queries", headers=bob).json()["queries"]
                assert [query["name"] for query in listed] == ["names", "old"]
        policy.write_text("version: 1\nrules: [")
        (folder / "old.gq").write_text("query (")
        _until(client, lambda worker: worker["kept"] == ["people", "policies"])
        assert {worker["applied"] for worker in _ready(client)} == {
            worker["applied"] for worker in last
        }
        metrics = client.get("/metrics").text
        assert "omnigraph_applied_kept 4" in metrics
        assert server.stop() == 0
        assert [line for line in server.log if "applied_kept" in line and "people" in line]
