"""Node files of sibling branches: each numbers new ids after those of the file that both follow."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.costs import COSTS
from omnigraph.graph import Graph
from omnigraph.storage.derived.derived_folder import NODES, DerivedEntry, DerivedFiles, line_name
from omnigraph.types import TableKey

SCHEMA = """
node Person { name: String @key  age: I32 }
edge Knows: Person -> Person { since: I32? }
"""
PERSON = TableKey("node:Person")
COUNT = 60
PEOPLE = "query q() { match { $p: Person } return { $p.name as name, $p.age as age } }"


def people(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    ages = pa.array([n % 10 for n in numbers], pa.int32())
    return pa.table({"name": [f"p{n:04d}" for n in numbers], "age": ages})


@pytest.fixture
def siblings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """A graph with two branches whose node files follow the one of main; a search for a file of a
    lineage finds that of `other` first."""
    monkeypatch.setenv("OMNIGRAPH_TOPOLOGY_ROWS_MIN", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(COSTS, "commit_file_rows_max", -1)
    everything = DerivedFiles.everything

    def other_first(self: DerivedFiles) -> list[DerivedEntry]:
        entries = list(everything(self))
        other = line_name(graph._store.snapshot("other").tables[PERSON])
        return sorted(entries, key=lambda entry: entry.name.line != other)

    with omnigraph.init(tmp_path / "g", SCHEMA) as graph:
        graph.load(people(0, COUNT), "append", type="Person", engine="local")
        ends = {"src": [f"p{n:04d}" for n in range(30)], "dst": [f"p{n:04d}" for n in range(1, 31)]}
        graph.load(pa.table(ends), "append", edge="Knows", engine="local")
        for name, first in (("one", 100), ("other", 200)):
            graph.branches.create(name)
            graph.load(people(first, 20), "append", type="Person", branch=name, engine="local")
        monkeypatch.setattr(DerivedFiles, "everything", other_first)
        yield graph


def test_rows_of_a_branch_stay_on_it_after_edges_were_looked_up_elsewhere(siblings: Graph) -> None:
    lines = {each.name.line for each in siblings._store.derived.files.everything()}
    assert len(lines) == 3
    before = {name: siblings.query(PEOPLE, branch=name).rows for name in ("main", "one", "other")}
    siblings._store.derived.clear()  # as building any file does
    siblings.mutate("query q() { delete Person where age = 7 }", branch="one")
    siblings.branches.merge("one")
    expected = [row for row in before["one"] if row["age"] != 7]
    for graph in (siblings, omnigraph.open(siblings.uri)):
        assert _by_name(graph.query(PEOPLE).rows) == _by_name(expected)
        assert _by_name(graph.query(PEOPLE, branch="other").rows) == _by_name(before["other"])
        found = graph.query('query q() { match { $p: Person { name: "p0201" } } return { $p } }')
        assert not len(found)
        assert not graph.check().findings
    graph.close()


def test_a_digest_never_answers_with_a_file_that_follows_it(siblings: Graph) -> None:
    derived = siblings._store.derived
    derived.clear()
    main = siblings._store.snapshot().tables[PERSON]
    digests = {
        entry.name.line: entry.name.digest
        for entry in derived.files.everything()
        if entry.name.kind == NODES
    }
    digest = digests[line_name(main)]
    numbering = derived._parsed.numbering(digest)
    assert numbering is not None
    assert numbering.digest != digest
    assert derived._parsed.numbering(digest) is numbering
    base = derived.nodes(main)
    assert base is not None
    assert (base.file.digest, base.file.count) == (digest, COUNT)


def _by_name(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: str(row["name"]))
