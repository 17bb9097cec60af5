"""Reads after a merge: what a process holds in memory of the versions before follows it."""

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.names import MAIN
from tests.exec.branching import edit, knows, person

FRIENDS = """query friends($n: String) {
  match { $p: Person { name: $n } $p knows $f } return { $f.name, $f.age } order { $f.name asc }
}"""
ALL = "query all() { match { $p: Person } return { $p.name, $p.age } order { $p.name asc } }"


def friends(graph: Graph, name: str, branch: str = MAIN) -> list[tuple[str, int]]:
    rows = graph.query(FRIENDS, {"n": name}, branch=branch).rows
    return [(row["f.name"], row["f.age"]) for row in rows]


def everyone(graph: Graph, branch: str = MAIN) -> list[tuple[str, int]]:
    return [(row["p.name"], row["p.age"]) for row in graph.query(ALL, branch=branch).rows]


def test_reads_follow_a_merge_however_warm_they_are(small: Graph) -> None:
    names = [f"p{number:02}" for number in range(20)]
    edit(
        small,
        Person={name: person(name, 1) for name in names},
        Knows={f"e{n}": knows(f"e{n}", "p00", name) for n, name in enumerate(names[1:4])},
    )
    small.branches.create("b")
    for _ in range(5):
        assert len(everyone(small)) == 20
        assert len(friends(small, "p00")) == 3
        assert len(friends(small, "p00", "b")) == 3
    edit(
        small,
        "b",
        Person={"p01": person("p01", 2), "p19": None, "new": person("new", 3)},
        Knows={"e1": None, "e9": knows("e9", "p00", "new"), "e2": knows("e2", "p05", "p03")},
    )
    edit(small, Person={"p02": person("p02", 4)})
    for merge in (("b", MAIN), (MAIN, "b")):
        small.branches.merge(merge[0], into=merge[1])
        cold = og.open(small.uri)
        for _ in range(3):
            for branch in (MAIN, "b"):
                assert everyone(small, branch) == everyone(cold, branch)
                for name in ("p00", "p05"):
                    assert friends(small, name, branch) == friends(cold, name, branch)
    assert friends(small, "p00") == [("new", 3), ("p01", 2)]
    assert friends(small, "p05") == [("p03", 1)]
    assert dict(everyone(small))["p02"] == 4
    assert "p19" not in dict(everyone(small))
