"""A cluster whose storage is a bucket: the same commands, the same ledger, the same swap."""

import uuid
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cluster.commands import ClusterCommand
from omnigraph.cluster.diagnostics import ClusterRefusal
from omnigraph.cluster.ledger import Ledger, read_ledger, write_ledger
from omnigraph.cluster.payloads import RESOURCES
from omnigraph.cluster.served_state import served_state
from omnigraph.cluster.state_lock import LOCK, locked
from omnigraph.storage.cluster_objects import ClusterObjects
from tests.cluster.world import ACTOR, ONE_GRAPH, QUERIES, TWO_GRAPHS, WIDER, Cluster, codes
from tests.storage.conftest import s3_server
from tests.storage.s3 import BUCKET, Server

__all__ = ["s3_server"]


def test_a_cluster_lives_in_a_bucket(tmp_path: Path, s3_server: Server) -> None:
    root = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    head = f"storage: {root}\n"
    cluster = Cluster(tmp_path, head + TWO_GRAPHS)

    def command() -> ClusterCommand:
        return ClusterCommand(tmp_path, s3_server.options)

    assert command().import_()["ok"]
    done = command().apply(ACTOR)
    assert done["converged"], done["diagnostics"]
    assert not command().apply(ACTOR)["state_written"]
    objects = ClusterObjects(root, s3_server.options)
    assert objects.read(LOCK) is None

    with locked(objects, "apply"):
        assert codes(command().apply(ACTOR), "error") == ["state_lock_held"]
    seen = read_ledger(objects)
    write_ledger(objects, seen, seen.ledger)
    with pytest.raises(ClusterRefusal) as refused:
        write_ledger(objects, seen, Ledger())
    assert refused.value.code == "state_cas_mismatch"

    cluster.write("knowledge.pg", WIDER)
    cluster.write("cluster.yaml", head + ONE_GRAPH)
    assert command().approve("graph.notes", ACTOR)["ok"]
    done = command().apply(ACTOR)
    assert done["converged"], done["diagnostics"]
    assert objects.list("graphs/notes.omni") == ()
    with og.open(f"{root}/graphs/knowledge.omni", storage_options=s3_server.options) as graph:
        assert "city" in graph.schema.text

    state = served_state(root, s3_server.options)
    assert state.graphs["knowledge"].queries["find"] == QUERIES
    for path in objects.list(f"{RESOURCES}/query/knowledge/find"):
        objects.delete(path)
    assert codes(command().refresh(), "warning") == ["catalog_payload_missing"]
    assert command().apply(ACTOR)["converged"]
    assert objects.list("__cluster/recoveries") == ()
