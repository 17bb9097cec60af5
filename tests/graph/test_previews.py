"""What a graph, a result, a diff and a commit show of themselves, as text and in a notebook."""

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.graph import Graph

SCHEMA = "node Thing {\n  k: String @key\n  n: I64?\n  d: Date?\n}\nedge Likes: Thing -> Thing\n"
ALL = "query q() { match { $t: Thing } return { $t.k as k, $t.n as n } order { $t.n } }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with og.init(tmp_path_factory.mktemp("g") / "kg.omni", SCHEMA) as made:
        rows = [{"type": "Thing", "data": {"k": f"<b>{n}\n", "n": n}} for n in range(30)]
        made.load(rows, "append", message="first", actor="ada")
        yield made


class Cells(HTMLParser):
    """The cells of a table, as a browser would show them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_graph_says_where_it_is_and_what_it_has(graph: Graph) -> None:
    head = graph.commits.list()[0]
    expected = f"Graph({graph.uri!r}, main@{head.id}, 1 node type, 30 nodes, 0 edges)"
    assert repr(graph) == expected
    assert repr(graph.branches) == "Branches(main)"
    assert repr(graph.tags) == "Tags()"
    assert repr(head) == f"Commit({head.id}, main, {head.when}, ada, +30 Thing, 'first')"
    assert repr(graph.branch("main")) == f"BranchHandle('main' of {graph.uri!r})"
    assert "first" in repr(graph.commits)
    assert {"table", "td"} <= Cells(graph.commits._repr_html_()).tags


def test_a_closed_graph_says_so(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    graph.close()
    assert repr(graph) == "Graph(GraphClosed)"
    assert repr(graph.commits) == "Commits(GraphClosed)"


def test_a_result_shows_its_first_rows(graph: Graph) -> None:
    result = graph.query(ALL)
    lines = repr(result).splitlines()
    assert lines[0].startswith("QueryResult('q', 30 rows, 2 columns, commit ")
    assert lines[3].startswith("<b>0\\n")
    assert (len(lines), lines[-1]) == (3 + 10 + 1, "… 20 more rows")
    cells = Cells(result._repr_html_())
    assert "b" not in cells.tags, "every text is escaped"
    assert "<b>0\n" in cells.texts
    assert "rows" not in result.__dict__, "a preview converts what it shows"


def test_rows_by_number_and_by_slice(graph: Graph) -> None:
    result = graph.query(ALL)
    assert result[0] == {"k": "<b>0\n", "n": 0}
    assert result[-1]["n"] == 29
    assert result[2:4] == result.rows[2:4]
    assert result[::-10] == result.rows[::-10]
    with pytest.raises(IndexError):
        result[30]


def test_one_row_and_one_value(graph: Graph) -> None:
    count = graph.query("query c() { match { $t: Thing } return { count($t) as n } }")
    assert (count.one(), count.scalar()) == ({"n": 30}, 30)
    with pytest.raises(og.BadRequest, match="30 rows, not one"):
        graph.query(ALL).one()
    with pytest.raises(og.BadRequest, match="2 columns, not one"):
        graph.query(ALL).scalar()


def test_a_result_is_a_stream_for_libraries_that_take_arrow(graph: Graph) -> None:
    result = graph.query(ALL)
    assert pa.table(result).equals(result.to_arrow())


def test_a_diff_shows_its_first_changes(graph: Graph) -> None:
    diff = graph.diff("main~1", "main")
    title, head, _, *rows, more = repr(diff).splitlines()
    assert title == f"Changes(from {diff.between[0]} to {diff.between[1]})"
    assert [name.strip() for name in head.split("|")] == ["op", "type", "id", "before", "after"]
    assert (len(rows), more) == (10, "…")
    cells = Cells(diff._repr_html_())
    assert cells.texts.count("insert") == 10
    assert cells.texts[-1] == "…"


def test_a_page_of_the_feed_shows_its_first_changes(graph: Graph) -> None:
    page = graph.changes.poll(start="beginning")
    title, head, _, *rows, more = repr(page).splitlines()
    assert title == "FeedPage(1 commit, 30 changes, with cursor)"
    assert (head.split(), len(rows), more) == (
        ["op", "|", "kind", "|", "type", "|", "id"],
        10,
        "… 20 more rows",
    )
    newest = page.blocks[-1]
    assert repr(newest) == f"FeedBlock({newest.cause!r}, 30 changes)"


def test_a_load_and_a_plan_say_what_they_did(graph: Graph) -> None:
    rows = [{"k": "a", "n": 1}, {"k": "a", "n": 2}]
    graph.branches.create("twice")
    done = graph.load(rows, "merge", type="Thing", branch="twice", engine="local")
    graph.branches.delete("twice")
    assert (done.superseded, done.inserted) == (1, 1)
    assert repr(done) == (
        f"LoadResult(2 Thing: 1 inserted, 0 updated, 1 superseded; merge, local, {done.commit!r})"
    )
    plan = graph.schema.plan(SCHEMA + " node Other { k: String @key }")
    assert repr(plan).splitlines() == ["MigrationPlan(supported)", "- add node type 'Other'"]
    same = graph.schema.apply(graph.schema.text)
    assert repr(same) == "SchemaApplied(nothing to do)"


def test_the_name_of_a_file_is_no_query(graph: Graph) -> None:
    with pytest.raises(og.BadRequest, match=r"pass Path\('people.gq'\)"):
        graph.query("people.gq")


def test_the_module_shows_its_door() -> None:
    assert {"open", "init", "Graph", "BadRequest"} <= set(dir(og))
    assert all(hasattr(og, name) for name in dir(og))


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "omnigraph", "version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert og.__version__ in done.stdout
