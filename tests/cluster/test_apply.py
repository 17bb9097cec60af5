"""Plan and apply: what is declared becomes what is, once, and what waits says why."""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

import omnigraph as og
from omnigraph.cluster import apply_run
from omnigraph.cluster.apply_run import ApplyRun
from omnigraph.cluster.resources import digest_of_content
from omnigraph.errors import StorageFailed
from omnigraph.storage.cluster_objects import ClusterObjects
from tests.cluster.world import (
    ACTOR,
    ONE_GRAPH,
    POLICY,
    QUERIES,
    SCHEMA,
    TWO_GRAPHS,
    WIDER,
    Cluster,
    changes,
    codes,
)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_a_cluster_is_planned_imported_applied_and_then_stands(cluster: Cluster) -> None:
    planned = cluster.command.plan()
    assert planned["ok"]
    assert codes(planned) == ["state_missing"]
    assert {c["operation"] for c in planned["changes"]} == {"create"}
    assert [c["resource"] for c in planned["changes"]] == sorted(planned["resource_digests"])
    assert not (cluster.folder / "__cluster").exists(), "a plan writes nothing"

    refused = cluster.apply()
    assert not refused["ok"]
    assert codes(refused) == ["state_missing"]
    assert not Path(cluster.uri()).exists()

    imported = cluster.command.import_()
    assert imported["ok"]
    assert imported["operation"] == "import"
    assert codes(imported) == ["graph_missing"]
    again = cluster.command.import_()
    assert codes(again) == ["state_already_exists"]
    assert not again["ok"]

    done = cluster.applied()
    assert list(done) == [
        "ok",
        "config_dir",
        "actor",
        "desired_revision",
        "state_observations",
        "changes",
        "applied_count",
        "deferred_count",
        "converged",
        "state_written",
        "resource_statuses",
        "diagnostics",
    ]
    assert done["applied_count"] == 6
    assert done["state_written"]
    assert {s["status"] for s in done["resource_statuses"].values()} == {"applied"}
    state = cluster.state()
    assert (
        state["applied_revision"]["config_digest"] == planned["desired_revision"]["config_digest"]
    )
    resources = state["applied_revision"]["resources"]
    assert {a: r["digest"] for a, r in resources.items()} == planned["resource_digests"]
    assert resources["policy.base"]["applies_to"] == ["graph.knowledge"]
    assert resources["provider.embedding.default"]["embedding_profile"] == {"kind": "mock"}
    assert resources["graph.knowledge"]["embedding_provider"] == "provider.embedding.default"
    sight = state["observations"]["graph.knowledge"]
    assert sight["exists"]
    assert sight["schema_matches_desired"]

    before = (cluster.folder / "__cluster/state.json").read_bytes()
    quiet = cluster.applied()
    assert quiet["changes"] == []
    assert not quiet["state_written"]
    assert (cluster.folder / "__cluster/state.json").read_bytes() == before
    assert cluster.leftovers() == []
    assert cluster.command.plan()["changes"] == []


def test_payloads_are_named_by_their_digests(cluster: Cluster) -> None:
    cluster.applied()
    folder = cluster.folder / "__cluster/resources"
    digest = digest_of_content(QUERIES.encode())
    assert (folder / f"query/knowledge/find/{digest}.gq").read_text() == QUERIES
    assert (folder / f"policy/base/{digest_of_content(POLICY.encode())}.yaml").read_text() == POLICY


def test_a_changed_query_moves_its_graph(cluster: Cluster) -> None:
    cluster.applied()
    cluster.write("queries/people.gq", QUERIES.replace("$p.age", "$p.age as years"))
    planned = changes(cluster.command.plan())
    assert {a: c["disposition"] for a, c in planned.items()} == {
        "graph.knowledge": "derived",
        "query.knowledge.add": "applied",
        "query.knowledge.find": "applied",
    }
    done = cluster.applied()
    assert done["applied_count"] == 2
    cluster.write("queries/people.gq", QUERIES.splitlines()[0])
    assert changes(cluster.command.plan())["query.knowledge.add"]["operation"] == "delete"
    cluster.applied()
    assert "query.knowledge.add" not in cluster.state()["applied_revision"]["resources"]
    assert "query.knowledge.add" not in cluster.state()["resource_statuses"]


def test_a_changed_schema_is_previewed_and_migrated(cluster: Cluster) -> None:
    cluster.applied()
    cluster.write("knowledge.pg", WIDER)
    planned = cluster.command.plan()
    migration = changes(planned)["schema.knowledge"]["migration"]
    assert migration["supported"]
    assert [step["kind"] for step in migration["steps"]] == ["add_property"]
    radius = {each["resource"]: each["affected"] for each in planned["blast_radius"]}
    assert radius["schema.knowledge"] == ["query.knowledge.add", "query.knowledge.find"]
    done = cluster.applied()
    assert done["actor"] == ACTOR
    with cluster.graph() as graph:
        assert "city" in graph.schema.text
        assert graph.commits.list()[0].actor == ACTOR


def test_a_remark_in_a_schema_is_applied_without_a_migration(cluster: Cluster) -> None:
    cluster.applied()
    cluster.write("knowledge.pg", f"// who we know\n{SCHEMA}")
    done = cluster.applied()
    assert changes(done)["schema.knowledge"]["migration"]["steps"] == []
    assert cluster.apply()["changes"] == []
    assert cluster.command.refresh()["ok"]
    assert cluster.apply()["changes"] == []


def test_a_migration_that_cannot_be_made_blocks_what_depends_on_it(cluster: Cluster) -> None:
    cluster.applied()
    cluster.write("knowledge.pg", SCHEMA.replace("age: I32?", "age: String?"))
    cluster.write(
        "queries/people.gq", QUERIES + "query all() { match { $p: Person } return { $p.name } }"
    )
    planned = changes(cluster.command.plan())
    assert planned["schema.knowledge"]["disposition"] == "blocked"
    assert not planned["schema.knowledge"]["migration"]["supported"]
    done = cluster.apply()
    assert not done["ok"]
    assert not done["converged"]
    assert "schema_apply_failed" in codes(done, "error")
    assert "apply_dependency_blocked" in codes(done, "warning")
    assert done["resource_statuses"]["schema.knowledge"]["status"] == "error"
    assert done["resource_statuses"]["query.knowledge.all"]["status"] == "blocked"
    assert "query.knowledge.all" not in cluster.state()["applied_revision"]["resources"]
    assert cluster.leftovers() == []
    cluster.write("knowledge.pg", SCHEMA)
    cluster.applied()


def test_a_narrowing_beside_other_branches_is_refused(cluster: Cluster) -> None:
    cluster.applied()
    with cluster.graph() as graph:
        graph.branches.create("review/x")
    cluster.write("knowledge.pg", SCHEMA.replace("  age: I32?\n", ""))
    cluster.write("queries/people.gq", QUERIES.replace(", $p.age", ""))
    done = cluster.apply()
    assert "schema_apply_failed" in codes(done, "error")
    with cluster.graph() as graph:
        graph.branches.delete("review/x")
    cluster.applied()


def test_drift_of_a_live_graph_is_migrated_back(cluster: Cluster) -> None:
    cluster.applied()
    with cluster.graph() as graph:
        graph.schema.apply(WIDER)
    refreshed = cluster.command.refresh()
    assert "schema_mismatch" in codes(refreshed, "warning")
    assert refreshed["resource_statuses"]["schema.knowledge"]["status"] == "drifted"
    assert cluster.command.plan()["changes"]
    cluster.applied()
    with cluster.graph() as graph:
        assert "city" not in graph.schema.text
        graph.schema.apply(WIDER)
    done = cluster.apply()  # without a refresh before
    assert "schema_mismatch" in codes(done, "warning")
    assert done["converged"]
    with cluster.graph() as graph:
        assert "city" not in graph.schema.text


def test_a_graph_that_vanished_is_created_empty(cluster: Cluster) -> None:
    cluster.applied()
    with cluster.graph() as graph:
        graph.mutate("query a() { insert Person { name: 'Ada' } }".replace("'", '"'))
    ClusterObjects(str(cluster.folder)).delete_graph("graphs/knowledge.omni")
    done = cluster.apply()
    assert "graph_missing" in codes(done, "warning")
    assert done["converged"]
    with cluster.graph() as graph:
        assert graph.query("query q() { match { $p: Person } return { $p.name } }").rows == []
    ClusterObjects(str(cluster.folder)).delete_graph("graphs/knowledge.omni")
    refreshed = cluster.command.refresh()
    assert refreshed["ok"]
    assert refreshed["resource_statuses"]["graph.knowledge"]["status"] == "drifted"
    assert "graph.knowledge" not in refreshed["resource_digests"]
    assert changes(cluster.command.plan())["graph.knowledge"]["operation"] == "create"
    cluster.applied()


def test_a_graph_that_exists_is_imported_and_one_in_the_way_is_not_touched(tmp_path: Path) -> None:
    first = Cluster(tmp_path / "a", ONE_GRAPH)
    og.init(first.uri(), SCHEMA).close()
    imported = first.command.import_()
    assert imported["resource_statuses"]["graph.knowledge"]["status"] == "applied"
    assert {c["operation"] for c in first.command.plan()["changes"]} == {"create", "update"}
    assert first.applied()["applied_count"] == 2

    second = Cluster(tmp_path / "b", ONE_GRAPH)
    assert second.command.import_()["ok"]
    og.init(second.uri(), WIDER).close()
    failed = second.apply()
    assert "graph_create_failed" in codes(failed, "error")
    assert {"query.knowledge.add", "schema.knowledge"} <= {
        d["path"] for d in failed["diagnostics"] if d["code"] == "apply_dependency_blocked"
    }
    assert second.leftovers() == []
    with second.graph() as graph:
        assert "city" in graph.schema.text
    assert second.command.refresh()["ok"]
    second.applied()


def test_a_policy_that_is_bound_anew_is_an_update(cluster: Cluster) -> None:
    cluster.write(
        "cluster.yaml",
        TWO_GRAPHS + "policies: { b: { file: base.policy.yaml, applies_to: [notes] } }\n",
    )
    cluster.applied()
    cluster.write(
        "cluster.yaml",
        TWO_GRAPHS
        + "policies: { b: { file: base.policy.yaml, applies_to: [notes, knowledge] } }\n",
    )
    change = changes(cluster.command.plan())["policy.b"]
    assert change["binding_change"] is True
    assert change["metadata_change"] == "policy_bindings"
    assert change["before_digest"] == change["after_digest"]
    cluster.applied()
    assert cluster.state()["applied_revision"]["resources"]["policy.b"]["applies_to"] == [
        "graph.knowledge",
        "graph.notes",
    ]


def test_a_lost_profile_is_written_again(cluster: Cluster) -> None:
    cluster.applied()
    state = cluster.state()
    del state["applied_revision"]["resources"]["provider.embedding.default"]["embedding_profile"]
    cluster.put_state(state)
    change = changes(cluster.command.plan())["provider.embedding.default"]
    assert change["metadata_change"] == "embedding_profile"
    assert "binding_change" not in change
    cluster.applied()


# ---- deletions


def test_a_graph_is_deleted_only_when_somebody_approved_exactly_that(cluster: Cluster) -> None:
    cluster.write("cluster.yaml", TWO_GRAPHS)
    cluster.applied()
    unneeded = cluster.command.approve("graph.notes", ACTOR)
    assert codes(unneeded) == ["approval_not_required"]
    cluster.write("cluster.yaml", ONE_GRAPH)

    planned = cluster.command.plan()
    assert planned["ok"]
    (gate,) = planned["approvals_required"]
    assert gate["resource"] == "graph.notes"
    assert gate["satisfied"] is False
    assert changes(planned)["graph.notes"]["reason"] == "approval_required"
    assert changes(planned)["schema.notes"]["disposition"] == "blocked"
    waiting = cluster.apply()
    assert waiting["ok"], "a partly blocked apply is no failure"
    assert not waiting["converged"]
    assert "approval_required" in codes(waiting, "warning")
    assert "config_digest" in cluster.state()["applied_revision"], "that of the last convergence"
    assert Path(cluster.uri("notes")).exists()

    assert codes(cluster.command.approve("graph.notes", None)) == ["actor_required"]
    assert codes(cluster.command.approve("schema.notes", ACTOR)) == ["approval_not_required"]
    assert codes(cluster.command.approve("graph.nowhere", ACTOR)) == ["approval_not_required"]
    approved = cluster.command.approve("graph.notes", ACTOR)
    assert approved["ok"]
    assert approved["approved_by"] == ACTOR
    assert approved["operation"] == "delete"
    assert cluster.command.plan()["approvals_required"][0]["satisfied"] is True

    cluster.write("queries/more.gq", "query more() { match { $p: Person } return { $p.name } }")
    stale = cluster.apply()
    assert "approval_stale" in codes(stale, "warning")
    assert Path(cluster.uri("notes")).exists()

    again = cluster.command.approve("graph.notes", ACTOR)
    done = cluster.applied()
    assert changes(done)["graph.notes"]["disposition"] == "applied"
    assert not Path(cluster.uri("notes")).exists()
    state = cluster.state()
    assert not [a for a in state["applied_revision"]["resources"] if "notes" in a]
    assert state["approval_records"][again["approval_id"]]["approved_by"] == ACTOR
    assert cluster.leftovers() == []

    cluster.write("cluster.yaml", TWO_GRAPHS)
    cluster.applied()
    cluster.write("cluster.yaml", ONE_GRAPH)
    assert not cluster.apply()["converged"], "an approval counts once"
    assert Path(cluster.uri("notes")).exists()


def test_a_graph_that_waits_for_its_deletion_keeps_its_policy_and_provider(
    cluster: Cluster,
) -> None:
    cluster.applied()
    cluster.write("cluster.yaml", "version: 1\n")
    done = cluster.apply()
    assert done["ok"]
    kept = changes(done)
    assert {kept[a]["disposition"] for a in kept} == {"blocked"}
    assert "policy.base" in cluster.state()["applied_revision"]["resources"]
    cluster.command.approve("graph.knowledge", ACTOR)
    done = cluster.apply()
    assert done["ok"]
    assert cluster.applied()["converged"]
    assert cluster.state()["applied_revision"]["resources"] == {}


def test_a_policy_stays_bound_to_a_graph_that_waits_for_its_deletion(cluster: Cluster) -> None:
    policy = "policies: { b: { file: base.policy.yaml, applies_to: %s } }\n"
    cluster.write("cluster.yaml", TWO_GRAPHS + policy % "[notes, knowledge]")
    cluster.applied()
    cluster.write("cluster.yaml", ONE_GRAPH + policy % "[knowledge]")
    cluster.apply()
    bound = cluster.state()["applied_revision"]["resources"]["policy.b"]["applies_to"]
    assert bound == ["graph.knowledge", "graph.notes"]
    cluster.command.approve("graph.notes", ACTOR)
    cluster.apply()
    cluster.applied()
    bound = cluster.state()["applied_revision"]["resources"]["policy.b"]["applies_to"]
    assert bound == ["graph.knowledge"]


def test_a_schema_without_its_graph_cannot_be_deleted(cluster: Cluster) -> None:
    cluster.applied()
    state = cluster.state()
    resources = state["applied_revision"]["resources"]
    resources["schema.ghost"] = {"digest": "0" * 64}
    cluster.put_state(state)
    change = changes(cluster.command.plan())["schema.ghost"]
    assert change["disposition"] == "deferred"
    done = cluster.apply()
    assert done["ok"]
    assert not done["converged"]
    assert "apply_unsupported_change" in codes(done, "warning")


# ---- refresh and payloads


@pytest.mark.parametrize(
    ("harm", "code", "condition"),
    [
        (lambda path: path.unlink(), "catalog_payload_missing", "payload_missing"),
        (lambda path: path.write_text("x"), "catalog_payload_mismatch", "payload_mismatch"),
    ],
)
def test_a_payload_that_is_lost_is_written_again(
    cluster: Cluster, harm: Callable[[Path], None], code: str, condition: str
) -> None:
    cluster.applied()
    digest = digest_of_content(QUERIES.encode())
    payload = cluster.folder / f"__cluster/resources/query/knowledge/find/{digest}.gq"
    harm(payload)
    done = cluster.command.refresh()
    assert done["ok"]
    assert codes(done, "warning") == [code]
    status = done["resource_statuses"]["query.knowledge.find"]
    assert status["status"] == "drifted"
    assert status["conditions"] == [condition]
    assert "query.knowledge.find" not in done["resource_digests"]
    cluster.applied()
    assert payload.read_text() == QUERIES


def test_what_cannot_be_read_has_the_status_error(cluster: Cluster) -> None:
    cluster.applied()
    read = ClusterObjects.read

    def failing(objects: ClusterObjects, path: str) -> bytes | None:
        if "/find/" in path:
            raise StorageFailed("read it", "no")
        return read(objects, path)

    with mock.patch.object(ClusterObjects, "read", failing):
        done = cluster.command.refresh()
    assert not done["ok"]
    assert "catalog_payload_read_error" in codes(done, "error")
    status = done["resource_statuses"]["query.knowledge.find"]
    assert status == {**status, "status": "error", "conditions": ["payload_read_error"]}
    assert "query.knowledge.find" in done["resource_digests"], "it is not known to be lost"


def test_a_graph_that_cannot_be_read_is_an_error(cluster: Cluster) -> None:
    cluster.applied()
    with mock.patch(
        "omnigraph.cluster.live_graphs.open_graph", side_effect=StorageFailed("opened it", "no")
    ):
        done = cluster.command.refresh()
        assert not done["ok"]
        assert codes(done) == ["graph_observation_error"]
        assert done["resource_statuses"]["graph.knowledge"]["status"] == "error"
        assert done["observations"]["graph.knowledge"]["error"]
        assert "graph.knowledge" in done["resource_digests"], "it is not known to be gone"
        failed = cluster.apply()
        assert "graph_observation_error" in codes(failed, "error")
        cluster.write("knowledge.pg", WIDER)
        assert "schema_preview_unavailable" in codes(cluster.command.plan(), "warning")


# ---- failures of single steps


def test_a_file_that_changes_while_it_is_applied_is_not(cluster: Cluster) -> None:
    assert cluster.command.import_()["ok"]

    def edited(run: ApplyRun) -> None:
        cluster.write("queries/people.gq", QUERIES + "\n// later\n")
        original(run)

    original = ApplyRun._catalog
    with mock.patch.object(ApplyRun, "_catalog", edited):
        done = cluster.apply()
    assert codes(done, "error") == ["resource_content_changed"] * 2
    assert "query.knowledge.find" not in cluster.state()["applied_revision"]["resources"]
    cluster.applied()


def test_a_payload_that_cannot_be_written_leaves_the_rest_applied(cluster: Cluster) -> None:
    assert cluster.command.import_()["ok"]
    folder = cluster.folder / "__cluster/resources/query"
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    done = cluster.apply()
    assert "resource_payload_write_error" in codes(done, "error")
    assert "policy.base" in cluster.state()["applied_revision"]["resources"]
    assert done["resource_statuses"]["query.knowledge.find"]["status"] == "error"
    assert not done["converged"]
    folder.unlink()
    cluster.applied()


def test_a_deletion_that_fails_is_tried_again(cluster: Cluster) -> None:
    cluster.write("cluster.yaml", TWO_GRAPHS)
    cluster.applied()
    cluster.write("cluster.yaml", ONE_GRAPH)
    cluster.command.approve("graph.notes", ACTOR)
    with mock.patch.object(
        apply_run, "delete_graph", side_effect=StorageFailed("removed it", "read-only")
    ):
        done = cluster.apply()
    assert "graph_delete_failed" in codes(done, "error")
    assert "graph.notes" in cluster.state()["applied_revision"]["resources"]
    cluster.applied()
    assert not Path(cluster.uri("notes")).exists()


def test_a_creation_whose_outcome_is_unknown_is_settled(cluster: Cluster) -> None:
    assert cluster.command.import_()["ok"]
    made = apply_run.create_graph

    def created_and_lost(*arguments: object) -> None:
        made(*arguments)  # type: ignore[arg-type]
        raise StorageFailed("flushed it", "the disk is gone")

    with mock.patch.object(apply_run, "create_graph", created_and_lost):
        done = cluster.apply()
    assert "graph_create_failed" in codes(done, "error")
    done = cluster.apply()
    assert "cluster_recovery_rolled_forward" in codes(done, "warning")
    assert done["converged"], done["changes"]
    assert cluster.leftovers() == []
