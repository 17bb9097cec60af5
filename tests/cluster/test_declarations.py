"""Every rule of cluster.yaml has a diagnostic, and a good file has none."""

import re
from pathlib import Path

import pytest

from omnigraph.cluster.diagnostics import CODES, CONFIG_CODES, Diagnostics
from tests.cluster.world import CONFIG, POLICY, QUERIES, SCHEMA, SERVER_POLICY, Cluster, codes

HEAD = "version: 1\ngraphs:\n"
GRAPH = HEAD + "  knowledge: { schema: knowledge.pg, queries: queries/ }\n"
PROVIDER = "version: 1\nproviders: { embedding: { p: { %s } } }\n"
BLOBS = HEAD + "  knowledge: { schema: knowledge.pg, external_blobs: %s }\n"
S3 = "{ base: 's3://%s', scope: server_safe }"
POLICIES = GRAPH + "policies:\n  base: { file: base.policy.yaml, applies_to: %s }\n"

FAULTS = [
    ("invalid_cluster_yaml", "version: 1\ngraphs: [\n"),
    ("invalid_cluster_yaml", "- a\n"),
    ("invalid_cluster_yaml", "version: 1\nnonsense: 2\n"),
    ("invalid_cluster_yaml", "version: 1\ngraphs: []\n"),
    ("invalid_cluster_yaml", HEAD + "  knowledge: { queries: queries/ }\n"),
    ("invalid_cluster_yaml", HEAD + "  knowledge: { schema: knowledge.pg, extra: 1 }\n"),
    ("invalid_cluster_yaml", HEAD + "  knowledge: { schema: knowledge.pg, queries: 7 }\n"),
    ("invalid_cluster_yaml", "version: 1\nstate: { lock: maybe }\n"),
    ("invalid_cluster_yaml", "a: &x [1]\nb: *x\nversion: 1\n"),
    ("duplicate_yaml_key", "version: 1\nversion: 1\n"),
    ("duplicate_yaml_key", GRAPH + "  knowledge: { schema: knowledge.pg }\n"),
    ("unsupported_cluster_config_version", "version: 2\n"),
    ("unsupported_cluster_config_version", "version: true\n"),
    ("unsupported_cluster_config_version", "graphs: {}\n"),
    ("empty_metadata_name", "version: 1\nmetadata: { name: ' ' }\n"),
    ("unsupported_state_backend", "version: 1\nstate: { backend: consul }\n"),
    ("invalid_storage_root", "version: 1\nstorage: http://host/x\n"),
    ("invalid_storage_root", "version: 1\nstorage: s3://key:secret@bucket/x\n"),
    ("invalid_storage_root", "version: 1\nstorage: ''\n"),
    ("invalid_storage_root", "version: 1\nstorage: s3://[x\n"),
    ("invalid_resource_id", HEAD + "  9lives: { schema: knowledge.pg }\n"),
    ("invalid_resource_id", HEAD + "  'a.b': { schema: knowledge.pg }\n"),
    ("invalid_resource_id", HEAD + "  '../up': { schema: knowledge.pg }\n"),
    *(
        ("future_phase_field", f"version: 1\n{key}: {{}}\n")
        for key in ("apply", "env_file", "pipelines", "embeddings", "ui", "aliases", "bindings")
    ),
    (
        "removed_streaming_declaration",
        HEAD + "  knowledge: { schema: knowledge.pg, streaming: {} }\n",
    ),
    ("schema_file_missing", HEAD + "  knowledge: { schema: gone.pg }\n"),
    ("schema_parse_error", HEAD + "  knowledge: { schema: broken.pg }\n"),
    ("schema_catalog_error", HEAD + "  knowledge: { schema: twice.pg }\n"),
    ("query_dir_unreadable", HEAD + "  knowledge: { schema: knowledge.pg, queries: gone/ }\n"),
    ("query_dir_empty", HEAD + "  knowledge: { schema: knowledge.pg, queries: empty/ }\n"),
    ("query_file_missing", HEAD + "  knowledge: { schema: knowledge.pg, queries: [gone.gq] }\n"),
    ("query_parse_error", HEAD + "  knowledge: { schema: knowledge.pg, queries: [broken.gq] }\n"),
    (
        "duplicate_query_name",
        HEAD + "  knowledge: { schema: knowledge.pg, queries: [queries/people.gq, again.gq] }\n",
    ),
    (
        "query_key_mismatch",
        HEAD + "  knowledge: { schema: knowledge.pg, queries: { other: { file: again.gq } } }\n",
    ),
    (
        "query_typecheck_error",
        HEAD + "  knowledge: { schema: knowledge.pg, queries: [wrong.gq] }\n",
    ),
    (
        "query_typecheck_skipped",
        HEAD + "  knowledge: { schema: broken.pg, queries: queries/ }\n",
    ),
    ("vector_parameter", HEAD + "  knowledge: { schema: knowledge.pg, queries: [vector.gq] }\n"),
    ("policy_missing_applies_to", POLICIES % "[]"),
    ("policy_missing_applies_to", GRAPH + "policies: { base: { file: base.policy.yaml } }\n"),
    ("policy_mixed_binding_kinds", POLICIES % "[cluster, knowledge]"),
    (
        "duplicate_policy_binding",
        POLICIES % "[knowledge]"
        + "  more: { file: base.policy.yaml, applies_to: [graph.knowledge] }\n",
    ),
    ("duplicate_policy_binding", POLICIES % "[knowledge, knowledge]"),
    ("policy_invalid", POLICIES % "[cluster]"),
    (
        "policy_invalid",
        GRAPH + "policies: { s: { file: server.policy.yaml, applies_to: [knowledge] } }\n",
    ),
    (
        "policy_invalid",
        GRAPH + "policies: { s: { file: broken.policy.yaml, applies_to: [knowledge] } }\n",
    ),
    ("policy_file_missing", GRAPH + "policies: { s: { file: gone, applies_to: [knowledge] } }\n"),
    ("dangling_graph_reference", POLICIES % "[nowhere]"),
    ("dangling_graph_reference", POLICIES % "['*']"),
    ("wrong_kind_reference", POLICIES % "[schema.knowledge]"),
    (
        "wrong_kind_reference",
        HEAD + "  knowledge: { schema: knowledge.pg, embedding_provider: graph.knowledge }\n",
    ),
    (
        "dangling_embedding_provider_reference",
        HEAD + "  knowledge: { schema: knowledge.pg, embedding_provider: gone }\n",
    ),
    ("invalid_embedding_provider", PROVIDER % "kind: carrier-pigeon"),
    ("invalid_embedding_provider", PROVIDER % "kind: mock, provider: openai, api_key: '${K}'"),
    ("invalid_embedding_provider", PROVIDER % "kind: mock, base_url: 'ftp://x'"),
    ("embedding_api_key_inline", PROVIDER % "kind: openai, api_key: sk-123"),
    ("embedding_api_key_inline", PROVIDER % "kind: openai, api_key: 'x${K}'"),
    ("embedding_api_key_required", PROVIDER % "kind: gemini"),
    ("invalid_external_blob_base", BLOBS % "{ allow: [{ base: photos/, scope: server_safe }] }"),
    (
        "invalid_external_blob_base",
        BLOBS % "{ allow: [{ base: 'file:///photos/', scope: server_safe }] }",
    ),
    (
        "invalid_external_blob_base",
        BLOBS % "{ allow: [{ base: 's3://k:s@b/x/', scope: server_safe }] }",
    ),
    (
        "invalid_external_blob_base",
        BLOBS % "{ allow: [{ base: 's3://b/x/?y', scope: server_safe }] }",
    ),
    (
        "invalid_external_blob_base",
        BLOBS % "{ allow: [{ base: 's3://b/x/../y/', scope: server_safe }] }",
    ),
    (
        "invalid_external_blob_base",
        BLOBS % f"{{ allow: [{S3 % 'b/'}, {S3 % 'b/x/'}] }}",
    ),
    ("invalid_external_blob_policy", BLOBS % "yes"),
    ("invalid_external_blob_policy", BLOBS % "{ allow: all }"),
    ("invalid_external_blob_policy", BLOBS % "{ allow: [{ base: 's3://b/', scope: open }] }"),
]
WARNED = {"query_dir_empty", "query_typecheck_skipped", "vector_parameter"}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    made.write("broken.pg", "node {")
    made.write("twice.pg", SCHEMA + SCHEMA)
    made.write("broken.gq", "query {")
    made.write("again.gq", QUERIES)
    made.write("wrong.gq", "query q() { match { $p: Persona } return { $p.name } }")
    made.write("vector.gq", "query v($v: Vector(3)) { match { $p: Person } return { $p.name } }")
    made.write("server.policy.yaml", SERVER_POLICY)
    made.write("broken.policy.yaml", "version: 3\n")
    (tmp_path / "empty").mkdir()
    return made


@pytest.mark.parametrize(("code", "config"), FAULTS)
def test_a_fault_has_its_code(cluster: Cluster, code: str, config: str) -> None:
    cluster.write("cluster.yaml", config)
    done = cluster.command.validate()
    assert code in codes(done), done["diagnostics"]
    severity = "warning" if code in WARNED else "error"
    assert {d["severity"] for d in done["diagnostics"] if d["code"] == code} == {severity}
    assert done["ok"] == (not codes(done, "error"))
    assert all(each["path"] and each["message"] for each in done["diagnostics"])


def test_a_folder_or_file_that_cannot_be_read_is_told(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").unlink()
    assert codes(cluster.command.validate()) == ["cluster_config_read_error"]
    nowhere = Cluster(tmp_path / "other").command
    nowhere.folder = tmp_path / "nowhere"
    assert codes(nowhere.validate()) == ["config_dir_not_found"]
    (tmp_path / "cluster.yaml").write_bytes(b"\xff\xfe")
    assert codes(cluster.command.validate()) == ["invalid_cluster_yaml"]


def test_every_code_of_the_configuration_is_reached() -> None:
    elsewhere = {"config_dir_not_found", "cluster_config_read_error"}
    assert set(CONFIG_CODES) == {code for code, _ in FAULTS} - {"vector_parameter"} | elsewhere


def test_every_code_has_a_test() -> None:
    folder = Path(__file__).parent
    texts = "".join(p.read_text("utf-8") for p in folder.glob("test_*.py"))
    named = set(re.findall(r'"([a-z_]+)"', texts)) | {code for code, _ in FAULTS}
    assert CODES - named == set()


def test_a_code_that_is_not_listed_cannot_be_told() -> None:
    with pytest.raises(ValueError, match="no diagnostic"):
        Diagnostics().add("something_else", "x", "y")


def test_several_faults_are_told_at_once(cluster: Cluster) -> None:
    text = "version: 7\nui: {}\ngraphs:\n  a: { schema: gone.pg }\n  b: { schema: broken.pg }\n"
    cluster.write("cluster.yaml", text)
    done = cluster.command.validate()
    assert set(codes(done)) == {
        "unsupported_cluster_config_version",
        "future_phase_field",
        "schema_file_missing",
        "schema_parse_error",
    }


@pytest.mark.parametrize(
    "provider",
    ["kind: openai, api_key: ${OUR_KEY}", "api_key: ${OUR_KEY}, kind: gemini", "api_key: ${K}"],
)
def test_a_key_between_braces_needs_no_quotes(cluster: Cluster, provider: str) -> None:
    cluster.write("cluster.yaml", PROVIDER % provider + GRAPH.removeprefix("version: 1\n"))
    assert cluster.command.validate()["diagnostics"] == []
    cluster.write("cluster.yaml", PROVIDER % provider + "graphs: [\n")
    assert codes(cluster.command.validate()) == ["invalid_cluster_yaml"]


def test_a_good_configuration_is_listed(cluster: Cluster) -> None:
    done = cluster.command.validate()
    assert done["ok"], done["diagnostics"]
    assert list(done) == [
        "ok",
        "config_dir",
        "config_file",
        "resource_digests",
        "resources",
        "dependencies",
        "diagnostics",
    ]
    assert [(r["address"], r["kind"], r.get("path")) for r in done["resources"]] == [
        ("graph.knowledge", "graph", None),
        ("policy.base", "policy", "base.policy.yaml"),
        ("provider.embedding.default", "embedding_provider", None),
        ("query.knowledge.add", "query", "queries/people.gq"),
        ("query.knowledge.find", "query", "queries/people.gq"),
        ("schema.knowledge", "schema", "knowledge.pg"),
    ]
    assert [(d["from"], d["to"]) for d in done["dependencies"]] == [
        ("graph.knowledge", "provider.embedding.default"),
        ("policy.base", "graph.knowledge"),
        ("query.knowledge.add", "graph.knowledge"),
        ("query.knowledge.add", "schema.knowledge"),
        ("query.knowledge.find", "graph.knowledge"),
        ("query.knowledge.find", "schema.knowledge"),
        ("schema.knowledge", "graph.knowledge"),
    ]
    assert not (cluster.folder / "__cluster").exists()


def test_the_three_forms_of_queries_declare_the_same(cluster: Cluster) -> None:
    digests = []
    for form in (
        "queries/",
        "[queries/people.gq]",
        "{ find: { file: queries/people.gq }, add: { file: queries/people.gq } }",
    ):
        config = HEAD + f"  knowledge: {{ schema: knowledge.pg, queries: {form} }}\n"
        cluster.write("cluster.yaml", config)
        done = cluster.command.validate()
        assert done["ok"], done["diagnostics"]
        digests.append(done["resource_digests"])
    assert digests[0] == digests[1] == digests[2]
    one = (
        HEAD
        + "  knowledge: { schema: knowledge.pg, queries: { find: { file: queries/people.gq } } }\n"
    )
    cluster.write("cluster.yaml", one)
    named = cluster.command.validate()["resource_digests"]
    assert "query.knowledge.find" in named
    assert "query.knowledge.add" not in named


def test_layout_of_the_configuration_does_not_change_a_digest(cluster: Cluster) -> None:
    before = cluster.command.validate()["resource_digests"]
    cluster.write(
        "cluster.yaml", "# a remark\n" + CONFIG.replace("{ kind: mock }", "{provider: mock}")
    )
    assert cluster.command.validate()["resource_digests"] == before
    cluster.write("base.policy.yaml", POLICY + "\n")
    after = cluster.command.validate()["resource_digests"]
    assert {each for each in after if after[each] != before[each]} == {"policy.base"}


def test_a_graph_may_be_called_as_the_scope_of_the_cluster(cluster: Cluster) -> None:
    config = (
        "version: 1\ngraphs: { cluster: { schema: knowledge.pg } }\n"
        "policies: { base: { file: base.policy.yaml, applies_to: [graph.cluster] } }\n"
    )
    cluster.write("cluster.yaml", config)
    done = cluster.command.validate()
    assert done["ok"], done["diagnostics"]
    assert {"from": "policy.base", "to": "graph.cluster"} in done["dependencies"]


def test_a_schema_that_cannot_be_read_is_missing(cluster: Cluster) -> None:
    cluster.write("cluster.yaml", HEAD + "  knowledge: { schema: queries }\n")
    assert "schema_file_missing" in codes(cluster.command.validate())


def test_a_storage_root_may_be_a_folder_a_file_url_or_a_bucket(cluster: Cluster) -> None:
    for storage, root in (
        ("store", str(cluster.folder / "store")),
        (f"file://{cluster.folder}/store", str(cluster.folder / "store")),
    ):
        cluster.write("cluster.yaml", f"storage: {storage}\n{CONFIG}")
        assert cluster.command.status()["state_observations"]["state_path"].startswith(root + "/")
    cluster.write("cluster.yaml", f"storage: s3://bucket/prefix\n{CONFIG}")
    assert cluster.command.validate()["ok"]
