"""Upkeep of a graph in a bucket."""

import pytest

import omnigraph as og
from omnigraph.errors import Reclaimed
from omnigraph.storage.manifest import manifest
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
