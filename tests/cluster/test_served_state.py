"""What a server reads of a cluster: the applied state, whole or with graphs left out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cluster.diagnostics import ClusterRefusal
from omnigraph.cluster.embedding_profile import provider_of
from omnigraph.cluster.graph_intents import GraphStep, write_intent
from omnigraph.cluster.query_catalog import checked_queries, texts_of_folder
from omnigraph.cluster.resources import digest_of_content
from omnigraph.cluster.served_state import (
    enclosing_cluster,
    graph_of_cluster,
    served_state,
)
from omnigraph.errors import BadRequest, NotFound
from omnigraph.storage.cluster_objects import ClusterObjects
from tests.cluster.world import CONFIG, POLICY, QUERIES, SERVER_POLICY, Cluster

BOTH = CONFIG.replace("policies:", "  notes:\n    schema: knowledge.pg\npolicies:") + (
    "  server: { file: server.policy.yaml, applies_to: [cluster] }\n"
)


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    cluster = Cluster(tmp_path_factory.mktemp("served"), BOTH)
    cluster.write("server.policy.yaml", SERVER_POLICY)
    blobs = "    external_blobs: { allow: [{ base: 's3://b/x', scope: server_safe }, %s] }\n"
    disk = "{ base: 'file:///x/', scope: embedded_only }"
    cluster.write(
        "cluster.yaml",
        BOTH.replace("    queries: queries/\n", "    queries: queries/\n" + blobs % disk),
    )
    cluster.applied()
    return cluster


@pytest.fixture
def cluster(applied: Cluster) -> Any:
    """The cluster, whose ledger is put back afterwards."""
    before = applied.state()
    yield applied
    applied.put_state(before)


def refused(cluster: Cluster) -> str:
    with pytest.raises(ClusterRefusal) as caught:
        served_state(str(cluster.folder))
    return caught.value.code


def test_the_applied_state_is_read_whole(cluster: Cluster) -> None:
    for name in (str(cluster.folder), f"file://{cluster.folder}"):
        state = served_state(name)
        assert set(state.graphs) == {"knowledge", "notes"}
        graph = state.graphs["knowledge"]
        assert graph.uri == cluster.uri()
        assert graph.queries == {"find": QUERIES, "add": QUERIES}
        assert graph.profile == {"kind": "mock"}
        assert graph.blob_bases == ("s3://b/x/",)
        assert graph.policy == POLICY
        assert state.server_policy == SERVER_POLICY
        assert state.graphs["notes"].policy is None
        assert state.quarantined == {}


def test_what_is_declared_and_not_applied_is_not_served(cluster: Cluster) -> None:
    before = (cluster.folder / "cluster.yaml").read_text()
    cluster.write("cluster.yaml", "version: 1\ngraphs: {}\n")
    assert set(served_state(str(cluster.folder)).graphs) == {"knowledge", "notes"}
    cluster.write("cluster.yaml", before)


def test_a_cluster_without_state_or_graphs_cannot_be_served(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "version: 1\n")
    assert refused(cluster) == "cluster_state_missing"
    cluster.applied()
    assert refused(cluster) == "cluster_empty"
    with pytest.raises(ClusterRefusal, match="http"):
        served_state("http://host/x")


Resources = dict[str, dict[str, Any]]


def _forget(address: str) -> Callable[[Resources], None]:
    return lambda resources: resources.pop(address) and None


def _no_profile(resources: Resources) -> None:
    del resources["provider.embedding.default"]["embedding_profile"]


def _other_profile(resources: Resources) -> None:
    resources["provider.embedding.default"]["embedding_profile"] = {"kind": "openai"}


def _other_bases(resources: Resources) -> None:
    bases = [{"uri": "s3://elsewhere/", "scope": "server_safe"}]
    resources["graph.knowledge"]["external_blob_policy"] = {"mode": "allow", "bases": bases}


@pytest.mark.parametrize(
    ("harm", "code"),
    [
        (_forget("schema.knowledge"), "graph_not_applied"),
        (_forget("graph.knowledge"), "graph_not_applied"),
        (_forget("provider.embedding.default"), "embedding_provider_missing"),
        (_no_profile, "embedding_provider_profile_missing"),
        (_other_profile, "embedding_provider_digest_mismatch"),
        (_other_bases, "external_blob_policy_digest_mismatch"),
    ],
)
def test_a_fault_of_one_graph_leaves_it_out(
    cluster: Cluster, harm: Callable[[Resources], None], code: str
) -> None:
    state = cluster.state()
    harm(state["applied_revision"]["resources"])
    cluster.put_state(state)
    served = served_state(str(cluster.folder))
    assert set(served.graphs) == {"notes"}
    assert served.quarantined["knowledge"].startswith(f"{code}:")


def test_a_graph_with_an_interrupted_step_is_left_out(cluster: Cluster) -> None:
    objects = ClusterObjects(str(cluster.folder))
    facts: dict[str, Any] = {"before": None, "after": None, "actor": None}
    one = write_intent(objects, GraphStep.MIGRATE, "knowledge", **facts)
    served = served_state(str(cluster.folder))
    assert served.quarantined["knowledge"].startswith("cluster_recovery_pending")
    two = write_intent(objects, GraphStep.MIGRATE, "notes", **facts)
    assert refused(cluster) == "cluster_no_healthy_graphs"
    objects.delete(one.path)
    objects.delete(two.path)


def test_a_policy_that_is_bound_to_nothing_stops_the_server(cluster: Cluster) -> None:
    state = cluster.state()
    del state["applied_revision"]["resources"]["policy.base"]["applies_to"]
    cluster.put_state(state)
    assert refused(cluster) == "policy_bindings_missing"


@pytest.mark.parametrize("address", ["query/knowledge/find", "policy/base"])
def test_a_payload_that_was_tampered_with_stops_the_server(cluster: Cluster, address: str) -> None:
    (payload,) = (cluster.folder / "__cluster/resources" / address).iterdir()
    before = payload.read_bytes()
    payload.write_text("version: 1\n")
    assert refused(cluster) == "catalog_payload_digest_mismatch"
    payload.unlink()
    assert refused(cluster) == "catalog_payload_missing"
    payload.write_bytes(before)
    assert digest_of_content(before) == payload.name.partition(".")[0]


def test_a_graph_is_not_served_without_the_policy_it_lost(cluster: Cluster) -> None:
    (payload,) = (cluster.folder / "__cluster/resources/policy/base").iterdir()
    before = payload.read_bytes()
    payload.unlink()
    assert cluster.command.refresh()["ok"]
    assert refused(cluster) == "catalog_payload_digest_mismatch"
    payload.write_bytes(before)


def test_a_graph_of_a_cluster_has_an_address(cluster: Cluster) -> None:
    assert graph_of_cluster(str(cluster.folder), "notes") == cluster.uri("notes")
    with pytest.raises(NotFound, match="knowledge, notes"):
        graph_of_cluster(str(cluster.folder), None)
    with pytest.raises(NotFound):
        graph_of_cluster(str(cluster.folder), "nowhere")
    assert enclosing_cluster(cluster.uri()) == str(cluster.folder)
    assert enclosing_cluster(str(cluster.folder / "other" / "x.omni")) is None


def test_a_key_is_read_from_the_environment_of_the_server() -> None:
    profile = {"kind": "openai", "api_key": "${OUR_KEY}", "model": "m"}
    with pytest.raises(BadRequest, match="OUR_KEY"):
        provider_of(profile, {})
    provider = provider_of(profile, {"OUR_KEY": "sk-secret"})
    assert provider.model == "m"
    assert "sk-secret" not in repr(provider)


def test_queries_of_a_folder_are_read_and_checked(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "a.gq").write_text(QUERIES)
    (tmp_path / "b.gq").write_text("query broken() { match { $p: Nobody } return { $p.name } }")
    (tmp_path / "c.txt").write_text("no query")
    texts = texts_of_folder(str(tmp_path))
    assert set(texts) == {"find", "add", "broken"}
    with cluster.graph() as graph:
        queries, broken = checked_queries({**texts, "gone": QUERIES}, graph.schema.catalog)
    assert [query.name for query in queries] == ["add", "find"]
    assert [each.name for each in broken] == ["broken", "gone"]
    assert "T" in broken[0].message
    (tmp_path / "b.gq").write_text(QUERIES)
    with pytest.raises(BadRequest, match=r"a\.gq and in b\.gq"):
        texts_of_folder(str(tmp_path))
    with pytest.raises(BadRequest):
        texts_of_folder(str(tmp_path / "gone"))
