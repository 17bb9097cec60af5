"""Upkeep of a graph in a bucket."""

import time

import pytest

import omnigraph as og
from omnigraph.errors import Reclaimed
from omnigraph.exec.schemas import ARCHIVE
from omnigraph.storage.locks import locks
from omnigraph.storage.locks.locks import hold
from omnigraph.storage.manifest import manifest
from omnigraph.storage.names import lock_name
from tests.exec.upkeep_world import PERSON, SCHEMA, add, content, fragments
from tests.storage.world import Where


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts versions here, so that cleanup need not wait."""
    monkeypatch.setattr(manifest, "RECLAIM_AGE_S", 0.0)


def test_optimize_cleanup_repair_and_check_on_s3(s3: Where) -> None:
    with og.init(s3.uri, SCHEMA, storage_options=s3.options, fold=False) as graph:
        for number in range(4):
            add(graph, number * 10, number * 10 + 10)
        graph.branches.create("side")
        before, first = content(graph), graph.commits.list()[2].id
        report = graph.optimize()
        assert (report.commit_id is not None, fragments(graph)) == (True, 1)
        cleaned = graph.cleanup(keep=1, grace=0, confirm=True)
        assert cleaned.errors == ()
        assert sum(table.versions for table in cleaned.tables) > 5
        assert content(graph) == before
        assert len(content(graph, "side")[PERSON]) == 40
        assert {table.action for table in graph.repair(confirm=True).tables} == {"none"}
        assert graph.check().findings == ()
    with og.open(s3.uri, storage_options=s3.options) as again:
        with pytest.raises(Reclaimed, match="commit"):
            again.snapshot(commit=first)
        add(again, 100, 101)
        assert len(content(again)[PERSON]) == 41


def test_schemas_and_leases_that_nobody_needs_go_on_s3(
    s3: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_IDLE_TERMS", 0)
    monkeypatch.setattr(locks, "LEASE_TERM_S", 3.0)
    with og.init(s3.uri, SCHEMA, storage_options=s3.options) as graph:
        store = graph._store
        for number in range(3):
            graph.schema.apply(graph.schema.text.replace("age:", f"a{number}: I32?  age:"))
        with hold(store.locks, [lock_name(PERSON, "gone"), lock_name(PERSON, "main")]):
            pass
        time.sleep(1.1)  # a listing tells ages in seconds
        schemas = {
            path.rpartition("/")[2].partition(".")[0] for path in store.objects.list(ARCHIVE)
        }
        assert len(schemas) == 4
        report = graph.cleanup(keep=1, grace=0, confirm=True)
        assert report.errors == ()
        removed = {each.table: each.files for each in report.tables}
        assert (removed[ARCHIVE], removed[locks.FOLDER]) == (9, 1)
        assert lock_name(PERSON, "main") in store.locks.known("")
        add(graph, 0, 3)
    with og.open(s3.uri, storage_options=s3.options) as again:
        assert len(content(again)[PERSON]) == 3
        assert again.schema.text.count("I32?") == 4


def test_a_transaction_does_not_pay_for_those_before_it_on_s3(s3: Where) -> None:
    with og.init(s3.uri, SCHEMA, storage_options=s3.options) as graph:
        calls = []
        for number in range(5):
            before = graph.stats()
            with graph.transaction() as tx:
                tx.mutate(f'query q() {{ insert Place {{ name: "p{number}" }} }}')
            calls.append(sum(graph.stats().since(before).calls.values()))
        assert max(calls[2:]) <= max(calls[:2]), calls
        assert not [name for name in graph._store.locks.known("transaction")]
