"""An apply that is killed at any step: the next one converges, and loses nothing."""

import json
import shutil
from pathlib import Path

import pytest

from omnigraph.cluster.commands import ClusterCommand
from omnigraph.cluster.graph_intents import GraphStep, write_intent
from omnigraph.cluster.ledger import STATE
from omnigraph.cluster.resources import digest_of_content
from omnigraph.storage import failpoints
from omnigraph.storage.cluster_objects import ClusterObjects
from tests import forked
from tests.cluster.world import ACTOR, QUERIES, SCHEMA, WIDER, Cluster, changes, codes

OLD = (
    "version: 1\ngraphs:\n  kept: { schema: knowledge.pg, queries: queries/ }\n"
    "  leaving: { schema: old.pg }\n"
    "policies: { base: { file: base.policy.yaml, applies_to: [kept] } }\n"
)
NEW = OLD.replace("leaving: { schema: old.pg }", "coming: { schema: old.pg, queries: queries/ }")
ADD = 'query a() { insert Person { name: "Ada" } }'
NAMES = "query n() { match { $p: Person } return { $p.name } }"

REPEATED = {
    "cluster.intent_written": 3,
    "cluster.graph_moved": 3,
    "cluster.intent_deleted": 3,
    "cluster.payload_before": 4,
    "cluster.payload_written": 4,
}
FIRST = [(name, 1) for name in failpoints.CLUSTER]
LATER = [(name, nth) for name, most in REPEATED.items() for nth in range(2, most + 1)]
LAST_OF_GRAPHS = [("cluster.intent_written", 3), ("cluster.graph_moved", 3)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster whose next apply creates, migrates and deletes a graph and writes payloads."""
    cluster = Cluster(tmp_path_factory.mktemp("world"), OLD)
    cluster.write("old.pg", SCHEMA)
    cluster.applied()
    for name in ("kept", "leaving"):
        with cluster.graph(name) as graph:
            graph.mutate(ADD)
    cluster.write("knowledge.pg", WIDER)
    cluster.write("queries/people.gq", QUERIES + NAMES)
    cluster.write("cluster.yaml", NEW)
    assert cluster.command.approve("graph.leaving", ACTOR)["ok"]
    planned = cluster.command.plan()
    assert {c["disposition"] for c in planned["changes"]} == {"applied", "derived"}
    return cluster.folder


def _apply(folder: str, name: str, nth: int) -> None:
    failpoints.arm(name, "kill", nth)
    ClusterCommand(Path(folder)).apply(ACTOR)


def _require_converged(cluster: Cluster) -> None:
    state = cluster.state()
    resources = state["applied_revision"]["resources"]
    assert {a: r["digest"] for a, r in resources.items()} == cluster.command.validate()[
        "resource_digests"
    ]
    assert not Path(cluster.uri("leaving")).exists()
    with cluster.graph("kept") as graph:
        assert "city" in graph.schema.text
        assert graph.query(NAMES).rows == [{"p.name": "Ada"}]
    with cluster.graph("coming") as graph:
        assert graph.query(NAMES).rows == []
    assert len(state["approval_records"]) == 1
    (_approval,) = (cluster.folder / "__cluster/approvals").glob("*.json")
    assert cluster.leftovers() == []
    assert {s["status"] for s in state["resource_statuses"].values()} == {"applied"}
    assert cluster.apply()["changes"] == []


def _killed(world: Path, tmp_path: Path, name: str, nth: int) -> None:
    cluster = Cluster.__new__(Cluster)
    cluster.folder = tmp_path / "c"
    shutil.copytree(world, cluster.folder)
    assert forked.run(_apply, str(cluster.folder), name, nth) == forked.KILLED
    status = cluster.command.status()
    assert status["ok"], "it can be looked at meanwhile"
    assert status["state_observations"]["locked"]
    done = cluster.apply()
    assert done["ok"], done["diagnostics"]
    assert done["converged"], done["changes"]
    _require_converged(cluster)


@pytest.mark.parametrize(("name", "nth"), [*FIRST, *LAST_OF_GRAPHS])
def test_a_killed_apply_is_finished_by_the_next_one(
    world: Path, tmp_path: Path, name: str, nth: int
) -> None:
    _killed(world, tmp_path, name, nth)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "nth"), [each for each in LATER if each not in LAST_OF_GRAPHS])
def test_a_killed_apply_is_finished_by_the_next_one_at_every_repeat(
    world: Path, tmp_path: Path, name: str, nth: int
) -> None:
    _killed(world, tmp_path, name, nth)


INSIDE = ("init.tables", "init.objects", "init.manifest", "commit.tables_done", "publish.after")


@pytest.mark.slow
@pytest.mark.parametrize("name", INSIDE)
def test_an_apply_that_is_killed_inside_the_engine_is_finished_too(
    world: Path, tmp_path: Path, name: str
) -> None:
    _killed(world, tmp_path, name, 1)


# ---- what the sweep makes of each intent


ONE = "version: 1\ngraphs:\n  knowledge: { schema: knowledge.pg }\n"
WITH_MORE = ONE + "  more: { schema: knowledge.pg }\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path, ONE)
    made.applied()
    return made


def _intent(cluster: Cluster, operation: GraphStep, graph: str, **digests: str | None) -> Path:
    facts = {"before": None, "after": None, "actor": ACTOR, **digests}
    objects = ClusterObjects(str(cluster.folder))
    return cluster.folder / write_intent(objects, operation, graph, **facts).path  # type: ignore[arg-type]


def test_an_interrupted_step_is_told_until_it_is_settled(cluster: Cluster) -> None:
    digest = digest_of_content(SCHEMA.encode())
    _intent(cluster, GraphStep.MIGRATE, "knowledge", before="0" * 64, after=digest)
    for document in (cluster.command.plan(), cluster.command.status()):
        assert document["ok"]
        assert codes(document, "warning") == ["cluster_recovery_pending"]
    assert cluster.command.refresh()["ok"]
    assert cluster.leftovers() == []


def test_a_graph_at_neither_schema_counts_as_drifted(cluster: Cluster) -> None:
    with cluster.graph() as graph:
        graph.schema.apply(WIDER)
    _intent(cluster, GraphStep.MIGRATE, "knowledge", before="0" * 64, after="1" * 64)
    done = cluster.apply()
    assert "cluster_recovery_unattributed" in codes(done, "warning")
    assert done["converged"]
    with cluster.graph() as graph:
        assert "city" not in graph.schema.text


def test_files_of_a_creation_that_was_cut_off_are_used(cluster: Cluster) -> None:
    cluster.write("graphs/more.omni/nodes/rest", "x")
    _intent(cluster, GraphStep.CREATE, "more", after=digest_of_content(SCHEMA.encode()))
    cluster.write("cluster.yaml", WITH_MORE)
    done = cluster.apply()
    assert "graph_create_incomplete" in codes(done, "warning")
    assert done["converged"]
    assert cluster.leftovers() == []


def test_a_deletion_that_had_not_begun_is_decided_again(cluster: Cluster) -> None:
    _intent(cluster, GraphStep.DELETE, "knowledge")
    done = cluster.apply()
    assert done["converged"]
    assert changes(done) == {}
    cluster.graph().close()
    assert cluster.leftovers() == []


def test_a_deletion_that_had_begun_is_finished(cluster: Cluster) -> None:
    _intent(cluster, GraphStep.DELETE, "knowledge")
    cluster.write("graphs/knowledge.omni/__deleting", "")
    cluster.write("cluster.yaml", "version: 1\n")
    done = cluster.apply()
    assert {"graph_delete_incomplete", "cluster_recovery_rolled_forward"} <= set(
        codes(done, "warning")
    )
    assert done["converged"]
    assert not Path(cluster.uri()).exists()
    (record,) = cluster.state()["recovery_records"].values()
    assert record["outcome"] == "rolled_forward"


def test_a_graph_that_cannot_be_looked_at_keeps_its_intent(cluster: Cluster) -> None:
    note = _intent(cluster, GraphStep.MIGRATE, "knowledge", before="0" * 64, after="1" * 64)
    manifest = cluster.folder / "graphs/knowledge.omni/__manifest"
    aside = cluster.folder / "aside"
    versions = manifest / "_versions"
    versions.rename(aside)
    versions.mkdir()
    for file in aside.iterdir():
        (versions / file.name).write_bytes(b"no manifest")
    cluster.write("cluster.yaml", WITH_MORE)
    done = cluster.apply()
    assert "cluster_recovery_pending" in codes(done, "error")
    assert not done["converged"]
    assert note.exists()
    cluster.graph("more").close()
    shutil.rmtree(versions)
    aside.rename(versions)
    cluster.applied()
    assert not note.exists()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "invalid_recovery_sidecar"),
        ("{}", "invalid_recovery_sidecar"),
        ('{"version": 4}', "unsupported_recovery_sidecar_version"),
    ],
)
def test_an_intent_that_cannot_be_read_stops_an_apply(
    cluster: Cluster, text: str, code: str
) -> None:
    before = (cluster.folder / STATE).read_bytes()
    cluster.write("__cluster/recoveries/01JZ.json", text)
    cluster.write("knowledge.pg", WIDER)
    for document in (cluster.apply(), cluster.command.plan(), cluster.command.refresh()):
        assert codes(document, "error") == [code]
    assert (cluster.folder / STATE).read_bytes() == before


def test_an_intent_under_another_name_is_not_trusted(cluster: Cluster) -> None:
    note = _intent(cluster, GraphStep.DELETE, "knowledge")
    note.rename(note.with_name("01JZ.json"))
    assert codes(cluster.apply(), "error") == ["invalid_recovery_sidecar"]


def test_an_approval_that_cannot_be_read_approves_nothing(cluster: Cluster) -> None:
    cluster.write("cluster.yaml", "version: 1\n")
    approved = cluster.command.approve("graph.knowledge", ACTOR)
    path = cluster.folder / f"__cluster/approvals/{approved['approval_id']}.json"
    document = json.loads(path.read_text())
    path.write_text("{")
    done = cluster.apply()
    assert "invalid_approval" in codes(done, "warning")
    assert not done["converged"]
    path.write_text(json.dumps({**document, "consumed_at": "2026-01-01T00:00:00Z"}))
    assert not cluster.apply()["converged"]
    path.write_text(json.dumps(document))
    cluster.applied()
