"""Columns at a terminal: a CSV of somebody else in, rows out as Markdown, Parquet and Arrow."""

from pathlib import Path

import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from tests.cli.program import lines, run

SCHEMA = "node Paper { doi: String @key, title: String?, day: Date? }\nedge Cites: Paper -> Paper"
ASKED = "query q() { match { $p: Paper } return { $p.title as title, $p.day as day } }"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    og.init(tmp_path / "g.omni", schema=SCHEMA).close()
    (tmp_path / "x.csv").write_text("DOI,Title,When\n1,a|b,2024-01-02\n")
    return tmp_path


def test_a_column_fills_a_property_of_another_name(folder: Path) -> None:
    load = ("load", "g.omni", "--data", "x.csv", "--mode", "merge")
    bare = run(*load, cwd=folder)
    assert (bare.returncode, "--node or --edge" in bare.stderr) == (1, True)
    unnamed = run(*load, "--type", "Paper", cwd=folder)
    assert "hint: --column 'Title=title' fills Paper.title" in unnamed.stderr
    wrong = run(*load, "--type", "Papr", cwd=folder)
    assert wrong.stderr.endswith("error: type 'Papr' not found; did you mean 'Paper'?\n")
    columns = [f"--column={pair}" for pair in ("DOI=doi", "Title=title", "When=day")]
    done = lines(*load, "--type", "Paper", *columns, cwd=folder)
    assert done == [
        "loaded g.omni on branch main with merge: 1 entities across 1 node types and 0 edge types"
    ]
    asked = ("query", "g.omni", "-e", ASKED)
    assert lines(*asked, "--format", "markdown", cwd=folder) == [
        "| title | day |",
        "| --- | --- |",
        "| a\\|b | 2024-01-02 |",
    ]
    for format in ("parquet", "arrow"):
        lines(*asked, "--format", format, "--out", f"rows.{format}", cwd=folder)
    tables = [
        pq.read_table(folder / "rows.parquet"),
        ipc.open_stream(folder / "rows.arrow").read_all(),
    ]
    assert [str(table.schema.field("day").type) for table in tables] == ["date32[day]"] * 2


def test_columns_of_edges_fill_their_ends(folder: Path) -> None:
    (folder / "c.csv").write_text("citing,cited\n1,1\n")
    load = ("load", "g.omni", "--data", "c.csv", "--mode", "merge", "--edge", "Cites")
    hints = run(*load, cwd=folder).stderr.splitlines()[1:3]
    assert hints == [
        f"hint: --column '{name}=…' fills one of Cites's from, to; "
        f"--column '{name}=' leaves the column out"
        for name in ("cited", "citing")
    ]


def test_a_column_is_left_out_and_what_came_twice_is_told(folder: Path) -> None:
    (folder / "w.csv").write_text("doi,boss,title\n1,x,a\n1,y,b\n2,,c\n")
    load = ("load", "g.omni", "--data", "w.csv", "--mode", "merge", "--node", "Paper")
    done = lines(*load, "--column", "boss=", cwd=folder)
    assert done[1:] == ["1 row has a key or an id that a later row has too; the last counts"]
    asked = ("query", "g.omni", "-e", ASKED, "--format", "csv")
    assert lines(*asked, cwd=folder) == ["title,day", "b,", "c,"]


def test_cells_that_another_sign_separates_are_no_columns_to_rename(folder: Path) -> None:
    (folder / "w.csv").write_text("doi;title\n1;a\n")
    done = run(
        *["load", "g.omni", "--data", "w.csv", "--mode", "merge", "--node", "Paper"], cwd=folder
    )
    assert "separated by ';'" in done.stderr
    assert "--column" not in done.stderr


def test_bad_records_are_where_the_command_says(folder: Path) -> None:
    (folder / "w.csv").write_text("doi,day\n1,3/2/1904\n")
    load = ("load", "g.omni", "--data", "w.csv", "--mode", "merge", "--node", "Paper")
    done = run(*load, "--rejects", "bad", cwd=folder)
    assert "bad/rejects.jsonl has every bad record" in done.stderr
    assert "3/2/1904" in (folder / "bad/rejects.jsonl").read_text()


def test_a_graph_that_is_named_twice_is_refused(folder: Path) -> None:
    done = run("query", "g.omni", "--store", "g.omni", "-e", ASKED, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "named twice, by 'g.omni' and 'g.omni'" in " ".join(done.stderr.split())


def test_the_shell_branches_merges_diffs_and_loads(folder: Path) -> None:
    (folder / "more.csv").write_text("doi,title\n2,two\n")
    typed = """.branch draft main
.load more.csv Paper
.param t "two"
match { $p: Paper { title: $t } } return { $p.doi }
.branch main
.diff draft
.merge draft
exit
match { nonsense
"""
    done = run("shell", "g.omni", stdin=typed, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.splitlines()
    assert shown[:2] == ["draft", "loaded 1 Paper into draft"]
    assert shown[-2:] == ["main → draft: 1 changes", "merged draft into main: fast_forward"]
    assert "+ node Paper 2" in shown


def test_a_date_is_a_parameter_of_a_bare_query(folder: Path) -> None:
    (folder / "d.csv").write_text("doi,title,day\n1,one,2024-01-02\n2,2024-06-01,2025-01-01\n")
    typed = """.load d.csv Paper
.format csv
.param since 2024-06-01
match { $p: Paper  $p.day > $since } return { $p.doi }
match { $p: Paper { title: $since } } return { $p.doi }
.param since "2024-06-01"
match { $p: Paper  $p.day < $since } return { $p.doi }
.explain match { $p: Paper  $p.day < $since } return { $p.doi }
.param since so
"""
    done = run("shell", "g.omni", stdin=typed, cwd=folder)
    shown = done.stdout.splitlines()
    assert shown[1:8] == [
        'since = "2024-06-01"', "p.doi", "2", "p.doi", "2", 'since = "2024-06-01"', "p.doi",
    ]  # fmt: skip
    assert shown[8] == "1"
    assert "($since: Date)" in shown[9]
    assert "'so' is not JSON" in done.stderr


def test_a_baseline_has_dates_as_text_too(folder: Path) -> None:
    (folder / "d.csv").write_text("doi,day\n1,2024-01-02\n")
    lines("load", "g.omni", "--data", "d.csv", "--mode", "merge", "--node", "Paper", cwd=folder)
    for dates, day in (("iso", '"2024-01-02"'), ("numbers", "19724")):
        out = folder / f"{dates}.jsonl"
        lines("changes", "baseline", "g.omni", "--out", out.name, "--dates", dates, cwd=folder)
        assert f'"day":{day}' in out.read_text()


def test_a_type_of_the_other_kind_is_told_with_the_option_that_takes_it(folder: Path) -> None:
    load = ("load", "g.omni", "--data", "x.csv", "--mode", "append")
    edge = run(*load, "--node", "Cites", cwd=folder)
    assert edge.stderr.endswith(
        "error: node type 'Cites' not found; it is an edge type: use edge=, at a terminal --edge\n"
    )
    node = run(*load, "--edge", "Paper", cwd=folder)
    assert node.stderr.endswith(
        "error: edge type 'Paper' not found; it is a node type: use type=, at a terminal --node\n"
    )


def test_a_folder_whose_columns_have_other_names_is_told_how_to_load_one_file(folder: Path) -> None:
    (folder / "all").mkdir()
    (folder / "all/node-Paper.csv").write_text("doi,Title\n1,a\n")
    done = run("load", "g.omni", "--data", "all", "--mode", "merge", cwd=folder)
    assert "so load this file by itself:" in done.stderr
    assert "hint: --type Paper --column 'Title=title' fills Paper.title" in done.stderr


def test_flat_lines_without_a_type_are_told_to_name_one(folder: Path) -> None:
    for row in ('{"doi": "1", "title": "a"}', '{"type": "Paper", "doi": "1"}'):
        (folder / "w.jsonl").write_text(f"{row}\n")
        done = run("load", "g.omni", "--data", "w.jsonl", "--mode", "merge", cwd=folder)
        assert "a row of one type" in done.stderr
        assert "--node or --edge" in done.stderr


def test_the_index_of_pandas_is_left_out_as_its_hint_says(folder: Path) -> None:
    (folder / "w.csv").write_text(",doi,title\n0,1,a\n")
    load = ("load", "g.omni", "--data", "w.csv", "--mode", "merge", "--node", "Paper")
    assert "--column '=' leaves the column out" in run(*load, cwd=folder).stderr
    assert "1 entities" in lines(*load, "--column", "=", cwd=folder)[0]


def test_a_csv_with_nulls_has_empty_cells(folder: Path) -> None:
    (folder / "w.csv").write_text("doi,title\n1,a\n")
    run("load", "g.omni", "--data", "w.csv", "--mode", "merge", "--node", "Paper", cwd=folder)
    asked = ("query", "g.omni", "-e", ASKED, "--format", "csv", "--out", "out.csv")
    told = run(*asked, cwd=folder).stderr
    assert "wrote 1 rows to out.csv" in told
    assert "wrote" not in run(*asked, "--quiet", cwd=folder).stderr
    assert (folder / "out.csv").read_text() == "title,day\na,\n"
