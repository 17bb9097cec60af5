"""The consistency check passes on healthy graphs and names what differs on others."""

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.storage.derived.node_file import NodeFile
from omnigraph.testing import Inconsistent, assert_consistent, lower_thresholds

SCHEMA = """
interface Named { name: String @key }
node Person implements Named { age: I32?, photo: Blob?, tags: [String]? }
node Town implements Named { size: F64? }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> Town @key(src, dst)
edge Mentions: Person -> Named { at: DateTime? }
"""


def people(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"name": f"p{n:03d}", "age": n, "photo": "base64:AAEC"} for n in range(first, first + count)
    ]


@pytest.fixture
def graph(tmp_path: Path) -> Any:
    """A graph with two branches, all kinds of edges, and derived files of small tables."""
    with lower_thresholds(None, values={"topology_rows_min": 5}):
        graph = og.init(tmp_path / "g.omni", SCHEMA)
        graph.load(people(0, 20), "append", type="Person")
        graph.load([{"name": "Oslo", "size": 1.5}], "append", type="Town")
        edges = [
            {"edge": "Knows", "from": "p001", "to": "p002", "data": {"since": "2024-01-01"}},
            {"edge": "LivesIn", "from": "p001", "to": "Oslo"},
            {"edge": "Mentions_Town", "from": "p001", "to": "Oslo"},
            {"edge": "Mentions_Person", "from": "p001", "to": "p003"},
        ]
        graph.load(edges, "append")
        graph.branches.create("b")
        graph.load(people(15, 20), "merge", type="Person", branch="b")
        graph.mutate("query d() { delete Person where age = 3 }", branch="b")
        yield graph
        graph.close()


def test_a_healthy_graph_is_consistent(graph: og.Graph) -> None:
    assert_consistent(graph)
    assert_consistent(graph, branches=["b"])


def test_rows_of_a_handle_that_differ_are_named(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = graph.query

    def one_row_less(*args: Any, **kwargs: Any) -> Any:
        result = ask(*args, **kwargs)
        if kwargs["branch"] == "b" and len(result.rows) > 1:
            result.rows.pop()
        return result

    monkeypatch.setattr(graph, "query", one_row_less)
    with pytest.raises(Inconsistent, match=r"b: node:Person: the handle and tables .* lacks \['p"):
        assert_consistent(graph)


def test_derived_files_that_differ_from_their_table_are_found(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids_of = NodeFile.id_of
    strings = NodeFile.strings.fget  # type: ignore[attr-defined]

    def reversed_strings(self: NodeFile) -> Any:
        return strings(self)[::-1]

    monkeypatch.setattr(NodeFile, "strings", property(reversed_strings))
    monkeypatch.setattr(NodeFile, "id_of", lambda self, n: ids_of(self, self.count - 1 - n))
    with pytest.raises(Inconsistent):
        assert_consistent(graph)
