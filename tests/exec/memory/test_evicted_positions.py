"""A version of which only a part is still in memory reads as one that is read anew."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.exec.memory.filed_tables import FiledEdges
from omnigraph.graph import Graph
from tests.exec.memory.test_resident import SCHEMA, E, Model, P
from tests.exec.topology.test_topology_files import check
from tests.exec.world import graph_of


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    with graph_of(tmp_path / "g", SCHEMA) as made:
        yield made


@pytest.mark.parametrize("filed", [False, True])
def test_what_is_kept_by_position_serves_no_table_with_other_positions(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, *, filed: bool
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0" if filed else "1000000")
    model = Model(graph)
    model.begin_anew()
    check(model)
    model.put_nodes(["p5", "p6"], 3)
    model.put_edges(["e10", "e11"], 5, 7)
    check(model)
    model.drop_edges(["e02", "e10"])
    model.drop_node("p5")
    model.put_nodes(["p7"], 2)
    model.put_edges(["e12", "e13"], 4, 9)
    check(model)
    cache = graph._reading.holdings.cache
    newest = graph._reading._view(graph.snapshot()).topology(E, P, P).edges
    assert isinstance(newest, FiledEdges) == filed
    assert newest.change is not None, "it followed, so it has positions of edges that are gone"
    for key in list(cache._kept):
        cache.put(key, None, cache.bytes_max + 1)  # too large to be kept: the entry is gone
        cache.epoch += 1
        check(model)
