"""Hop ranges along edges between several types: forwards where such a walk can take them all."""

import pytest

import omnigraph as og

SCHEMA = """
node Pkg { name: String @key }
node Rel { name: String @key }
edge HasRel: Pkg -> Rel
edge Dep: Rel -> Pkg
edge Made: Pkg -> Pkg
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(tmp_path_factory.mktemp("walks") / "g.omni", schema=SCHEMA)
    graph.load([{"name": name} for name in "abc"], "append", type="Pkg")
    graph.load([{"name": f"{name}1"} for name in "abc"], "append", type="Rel")
    rels = [{"from": name, "to": f"{name}1"} for name in "abc"]
    graph.load(rels, "append", edge="HasRel")
    graph.load([{"from": "a1", "to": "b"}, {"from": "b1", "to": "c"}], "append", edge="Dep")
    return graph


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ('$a: Pkg { name: "a" }  $a hasRel|dep{1,4} $q  $q: Pkg', ["b", "c"]),
        ('$a: Pkg { name: "a" }  $a hasRel|dep{1,2} $q  $q: Pkg', ["b"]),
        ('$a: Rel { name: "a1" }  $a dep|hasRel{1,3} $q  $q: Pkg', ["b", "c"]),
        ('$b: Pkg { name: "c" }  $q hasRel|dep{1,4} $b  $q: Pkg', ["a", "b"]),
        ('$a: Rel { name: "a1" }  $a dep|hasRel $q  $q: Pkg', ["a", "b"]),  # one hop, either end
        ('$a: Rel { name: "a1" }  $a <dep|hasRel>{1,2} $q  $q: Rel', ["b1"]),
    ],
)
def test_a_chain_of_types_is_walked_forwards(
    graph: og.Graph, pattern: str, found: list[str]
) -> None:
    text = f"query q() {{ match {{ {pattern} }} return {{ $q.name as name }} order {{ name }} }}"
    assert [row["name"] for row in graph.query(text).rows] == found


def test_a_walk_that_leads_nowhere_says_which_way_each_edge_goes(graph: og.Graph) -> None:
    text = "query q() { match { $a: Rel  $a hasRel|made{2,3} $q  $q: Rel } return { $q } }"
    with pytest.raises(og.TypeCheckError, match="HasRel from Rel to Pkg, Made from Pkg to Pkg"):
        graph.query(text)
