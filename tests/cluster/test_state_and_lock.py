"""The ledger and its lock: compare-and-swap, broken files, and who may have them."""

import json
import os
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from omnigraph.cluster.commands import ClusterCommand
from omnigraph.cluster.diagnostics import ClusterRefusal
from omnigraph.cluster.ledger import STATE, Ledger, read_ledger, write_ledger
from omnigraph.cluster.state_lock import LOCK, locked
from omnigraph.errors import StorageFailed
from omnigraph.storage.cluster_objects import ClusterObjects
from tests import forked
from tests.cluster.world import CONFIG, ONE_GRAPH, WIDER, Cluster, codes

LOCKED = {
    "version": 1,
    "lock_id": "01JZ0000000000000000000000",
    "operation": "apply",
    "created_at": "2026-01-01T00:00:00Z",
    "pid": 1,
}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, ONE_GRAPH)


def test_a_status_tells_what_the_ledger_says(cluster: Cluster) -> None:
    missing = cluster.command.status()
    assert missing["ok"]
    assert codes(missing, "warning") == ["state_missing"]
    assert missing["state_observations"] == {
        "state_path": str(cluster.folder / STATE),
        "lock_path": str(cluster.folder / LOCK),
        "state_found": False,
        "state_revision": 0,
        "resource_count": 0,
        "locked": False,
        "lock_acquired": False,
    }
    cluster.applied()
    status = cluster.command.status()
    assert list(status) == [
        "ok",
        "config_dir",
        "state_observations",
        "resource_digests",
        "resource_statuses",
        "observations",
        "diagnostics",
    ]
    state = status["state_observations"]
    assert state["state_found"]
    assert state["state_revision"] == 2
    assert state["state_cas"].startswith("sha256:")
    assert state["resource_count"] == 4
    assert state["applied_config_digest"]
    cluster.write("knowledge.pg", "node {")
    assert cluster.command.status()["ok"], "declarations do not matter to it"


def test_every_write_of_the_ledger_grows_its_revision(cluster: Cluster) -> None:
    cluster.applied()
    before = cluster.state()["state_revision"]
    assert cluster.command.refresh()["ok"]
    assert cluster.state()["state_revision"] == before + 1
    assert codes(Cluster(cluster.folder / "new").command.refresh()) == ["state_missing"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "invalid_state_json"),
        ("[]", "invalid_state_json"),
        ('{"version": 1}', "invalid_state_json"),
        ('{"version": 2}', "unsupported_state_version"),
        (
            '{"version":1,"state_revision":1,"applied_revision":{"resources":{}},"more":1}',
            "invalid_state_json",
        ),
        (
            '{"version":1,"state_revision":1,"applied_revision":{"resources":'
            '{"graph.x":{"digest":"no"}}}}',
            "invalid_state_json",
        ),
        (
            '{"version":1,"state_revision":1,"applied_revision":{"resources":'
            '{"../x":{"digest":"' + "0" * 64 + '"}}}}',
            "invalid_state_json",
        ),
    ],
)
def test_a_ledger_that_cannot_be_used_stops_every_command(
    cluster: Cluster, text: str, code: str
) -> None:
    cluster.write(STATE, text)
    for run in (
        cluster.command.plan,
        cluster.apply,
        cluster.command.status,
        cluster.command.refresh,
        cluster.command.import_,
    ):
        done = run()
        assert not done["ok"]
        assert codes(done, "error") == [code]
    assert (cluster.folder / STATE).read_text() == text
    assert cluster.leftovers() == []


def test_a_ledger_that_cannot_be_read_or_written_is_told(cluster: Cluster) -> None:
    cluster.applied()
    broken = StorageFailed("read it", "no")
    with mock.patch.object(ClusterObjects, "read", side_effect=broken):
        assert codes(cluster.command.status(), "error") == ["state_lock_read_error"]
    read = ClusterObjects.read

    def failing(objects: ClusterObjects, path: str) -> bytes | None:
        if path == STATE:
            raise broken
        return read(objects, path)

    with mock.patch.object(ClusterObjects, "read", failing):
        assert codes(cluster.command.status(), "error") == ["state_read_error"]
        assert codes(cluster.apply(), "error") == ["state_read_error"]
    swap = ClusterObjects.swap

    def unwritable(objects: ClusterObjects, path: str, *rest: Any) -> bool:
        if path == STATE:
            raise broken
        return swap(objects, path, *rest)

    cluster.write("knowledge.pg", WIDER)
    with mock.patch.object(ClusterObjects, "swap", unwritable):
        failed = cluster.apply()
    assert codes(failed, "error") == ["state_write_error", "actual_applied_state_pending"]
    assert not failed["state_written"]
    done = cluster.apply()
    assert "cluster_recovery_rolled_forward" in codes(done, "warning")
    assert done["converged"]
    assert cluster.leftovers() == []


def test_a_ledger_that_moved_is_not_overwritten(cluster: Cluster) -> None:
    objects = ClusterObjects(str(cluster.folder))
    first = read_ledger(objects)
    write_ledger(objects, first, Ledger())
    with pytest.raises(ClusterRefusal) as refused:
        write_ledger(objects, first, Ledger())
    assert refused.value.code == "state_cas_mismatch"
    seen = read_ledger(objects)
    write_ledger(objects, seen, Ledger(config_digest="a"))
    with pytest.raises(ClusterRefusal) as refused:
        write_ledger(objects, seen, Ledger(config_digest="b"))
    assert refused.value.code == "state_cas_mismatch"
    assert read_ledger(objects).ledger.config_digest == "a"
    assert read_ledger(objects).ledger.revision == 2


# ---- the lock


def test_a_lock_keeps_others_out_until_its_exact_id_is_given(cluster: Cluster) -> None:
    cluster.applied()
    cluster.write(LOCK, json.dumps(LOCKED))
    for run in (cluster.command.plan, cluster.apply, cluster.command.refresh):
        done = run()
        assert not done["ok"]
        assert codes(done, "error") == ["state_lock_held"]
        state = done["state_observations"]
        assert state["locked"]
        assert not state["lock_acquired"]
        assert state["lock_id"] == LOCKED["lock_id"]
        assert state["lock_operation"] == "apply"
        assert state["lock_pid"] == 1
        assert state["lock_age_seconds"] > 0
    assert codes(cluster.command.approve("graph.knowledge", "a"), "error") == ["state_lock_held"]
    assert cluster.command.status()["state_observations"]["locked"]
    wrong = cluster.command.unlock("01JZ")
    assert codes(wrong) == ["state_lock_id_mismatch"]
    assert not wrong["lock_removed"]
    right = cluster.command.unlock(str(LOCKED["lock_id"]))
    assert right["ok"]
    assert right["lock_removed"]
    assert list(right) == [
        "ok",
        "config_dir",
        "state_observations",
        "lock_removed",
        "diagnostics",
    ]
    assert codes(cluster.command.unlock("01JZ")) == ["state_lock_missing"]
    cluster.applied()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "invalid_state_lock"),
        ("{}", "invalid_state_lock"),
        (json.dumps({**LOCKED, "created_at": "yesterday"}), "invalid_state_lock"),
        (json.dumps({**LOCKED, "version": 9}), "unsupported_state_lock_version"),
    ],
)
def test_a_lock_that_cannot_be_read_is_respected(cluster: Cluster, text: str, code: str) -> None:
    cluster.applied()
    cluster.write(LOCK, text)
    assert codes(cluster.apply(), "error") == [code]
    assert codes(cluster.command.unlock("01JZ"), "error") == [code]
    assert (cluster.folder / LOCK).read_text() == text


def test_a_lock_that_cannot_be_written_is_told(cluster: Cluster) -> None:
    cluster.applied()
    with mock.patch.object(ClusterObjects, "swap", side_effect=StorageFailed("put it", "no")):
        assert codes(cluster.apply(), "error") == ["state_lock_error"]


def test_without_a_lock_the_last_write_decides(cluster: Cluster) -> None:
    cluster.write("cluster.yaml", "state: { lock: false }\n" + ONE_GRAPH)
    assert "state_lock_disabled" in codes(cluster.command.import_(), "warning")
    cluster.write(LOCK, json.dumps(LOCKED))
    done = cluster.applied()
    assert codes(done, "warning") == ["state_lock_disabled"]
    assert not done["state_observations"]["lock_acquired"]


# ---- real processes


def _hold(folder: str, ready: str) -> None:
    with locked(ClusterObjects(folder), "apply"):
        Path(ready).write_text("")
        time.sleep(600)


def test_the_lock_of_a_dead_process_is_taken_over_and_that_of_a_living_one_is_not(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.applied()
    ready = tmp_path / "ready"
    process = forked.context().Process(target=_hold, args=(str(cluster.folder), str(ready)))
    process.start()
    try:
        deadline = time.monotonic() + 90
        while not ready.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        done = cluster.apply()
        assert codes(done, "error") == ["state_lock_held"]
        assert done["state_observations"]["lock_pid"] == process.pid != os.getpid()
    finally:
        process.kill()
        process.join(60)
    assert (cluster.folder / LOCK).exists()
    cluster.applied()
    assert cluster.leftovers() == []


def _race(folder: str, results: str, number: int, start: float) -> None:
    time.sleep(max(0.0, start - time.time()))
    done = ClusterCommand(Path(folder)).apply(f"act-{number}")
    Path(results, str(number)).write_text(json.dumps(done))


@pytest.mark.parametrize("config", [CONFIG, "state: { lock: false }\n" + CONFIG])
def test_of_two_applies_at_once_one_wins_and_one_says_so(tmp_path: Path, config: str) -> None:
    cluster = Cluster(tmp_path / "c", config)
    results = tmp_path / "results"
    results.mkdir()
    assert cluster.command.import_()["ok"]
    start = time.time() + 1
    processes = [
        forked.context().Process(target=_race, args=(str(cluster.folder), str(results), n, start))
        for n in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    done = [json.loads((results / str(n)).read_text()) for n in range(2)]
    if config == CONFIG:  # without a lock the one that made the graph may lose the ledger
        assert any(each["ok"] and each["converged"] for each in done)
    refusals = {"state_lock_held", "state_cas_mismatch", "graph_create_failed"}
    for each in done:
        assert each["ok"] or set(codes(each, "error")) & refusals, each["diagnostics"]
    cluster.applied()
    assert cluster.leftovers() == []
    assert cluster.state()["state_revision"] <= 4
