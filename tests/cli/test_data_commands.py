"""Writing, reading, branching and merging a graph from a terminal."""

import csv
import io
import json
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.program import PEOPLE, SCHEMA, document, lines, run

MUTATIONS, QUERIES = str(PEOPLE / "mutations.gq"), str(PEOPLE / "queries.gq")
PEOPLE_ROWS = "query who() { match { $p: Person } return { $p.name as name, $p.age as age } }"
HIRE = json.dumps({"name": "Dee", "age": 41, "company": "Acme", "title": 'a, "b"'})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a graph that holds the example's people."""
    lines("init", "--schema", SCHEMA, "g.omni", cwd=tmp_path)
    data = str(PEOPLE / "people.jsonl")
    lines("load", "g.omni", "--data", data, "--mode", "merge", cwd=tmp_path)
    return tmp_path


def test_rows_are_shown_in_five_formats(folder: Path) -> None:
    def shown(*options: str) -> list[str]:
        return lines("query", "-e", PEOPLE_ROWS, "g.omni", *options, cwd=folder)

    assert shown() == [
        "3 rows from branch main via who",
        "name | age ",
        "-----+-----",
        "Ada  | 36  ",
        "Bob  | 25  ",
        "Cy   | null",
    ]
    assert shown("--format", "csv") == ["name,age", "Ada,36", "Bob,25", "Cy,"]
    assert shown("--format", "kv")[:4] == [
        "3 rows from branch main via who",
        "row 1",
        "name: Ada",
        "age: 36",
    ]
    metadata, first, *_ = map(json.loads, shown("--format", "jsonl"))
    assert metadata == {
        "kind": "metadata",
        "query_name": "who",
        "row_count": 3,
        "target": {"branch": "main", "snapshot": None},
    }
    assert first == {"name": "Ada", "age": 36}
    whole = document("query", "-e", PEOPLE_ROWS, "g.omni", cwd=folder)
    assert list(whole) == [
        "query_name",
        "target",
        "row_count",
        "columns",
        "rows",
        "graph_commit_id",
    ]


def test_csv_is_read_back_as_it_was_written(folder: Path) -> None:
    texts = ["two\nlines", "a\rb", 'say "x"', "a,b", " plain ", ""]
    columns = ", ".join(f"{json.dumps(text)} as c{place}" for place, text in enumerate(texts))
    only = "match { $p: Person { name: $who } }"
    source = f"query q($who: String) {{ {only} return {{ {columns} }} }}"
    params = ("--params", '{"who": "Ada"}', "--format", "csv")
    done = run("query", "-e", source, "g.omni", *params, cwd=folder)

    assert done.returncode == 0, done.stderr
    head, row = csv.reader(io.StringIO(done.stdout, newline=""))
    assert head == [f"c{place}" for place in range(len(texts))]
    assert row == texts
    assert done.stdout.count('"') == 14  # five fields need quotes, and one holds two of its own


def test_a_query_is_found_by_its_name_in_both_spellings(folder: Path) -> None:
    params = json.dumps({"name": "Ada"})
    new = document(
        "query", "person", "--query", QUERIES, "--params", params, "--store", "g.omni", cwd=folder
    )
    old = run(
        *("read", "--query", QUERIES, "--name", "person", "--params", params, "./g.omni", "--json"),
        cwd=folder,
    )

    assert json.loads(old.stdout) == new
    assert old.stderr == "warning: 'omnigraph read' is now 'omnigraph query'\n"
    older = ("query", "person", "--query", QUERIES, "--params", params, "--uri", "g.omni")
    assert document(*older, cwd=folder) == new
    assert run(*older, "--store", "g.omni", cwd=folder).returncode == 2


def test_a_mutation_says_what_it_changed(folder: Path) -> None:
    done = document(
        *("mutate", "hire", "--query", MUTATIONS, "--params", HIRE, "--as", "act-me"),
        *("--store", "g.omni"),
        cwd=folder,
    )

    assert (done["affected_nodes"], done["affected_edges"]) == (1, 1)
    assert done["actor_id"] == done["commit"]["actor_id"] == "act-me"
    (commit,) = lines("commit", "list", "g.omni", "--filter", "actor=act-me", cwd=folder)
    assert commit.startswith(done["commit"]["graph_commit_id"][:10])
    older = run(
        "change", "--query", MUTATIONS, "--name", "hire", "--params", HIRE, "./g.omni", cwd=folder
    )
    assert older.stdout == "changed main via hire: 1 nodes, 1 edges\n"
    flag = ("--uri", "g.omni", "mutate", "hire", "--query", MUTATIONS, "--params", HIRE)
    assert run(*flag, cwd=folder).stdout == older.stdout


def test_a_condition_that_does_not_hold_exits_with_4(folder: Path) -> None:
    source = 'query drop() { delete Person where name = "Ada" }'
    done = run("mutate", "-e", source, "g.omni", "--if-commit", "01X", "--json", cwd=folder)

    assert done.returncode == 4
    assert json.loads(done.stdout)["precondition_failure"]["expected"] == "01X"
    assert len(document("query", "-e", PEOPLE_ROWS, "g.omni", cwd=folder)["rows"]) == 3


def test_a_mutation_may_be_prepared_again_but_not_with_a_condition(folder: Path) -> None:
    source = 'query drop() { delete Person where name = "Ada" }'
    refused = run(
        "mutate", "-e", source, "g.omni", "--retry", "2", "--if-commit", "01X", cwd=folder
    )
    assert refused.returncode == 1
    assert "retries does not go with if_commit" in refused.stderr
    done = document("mutate", "-e", source, "g.omni", "--retry", "2", cwd=folder)
    assert done["affected_nodes"] == 1
    assert run("mutate", "-e", source, "g.omni", "--retry", "-1", cwd=folder).returncode == 2


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("query", "-e", "query q() {", "g.omni"), 1, "parse error"),
        (("query", "-e", "query q() { match { $p: Robot } return { $p } }", "g.omni"), 1, "T1"),
        (("query", "-e", PEOPLE_ROWS, "g.omni", "--branch", "nowhere"), 1, "branch 'nowhere' not"),
        (("query", "-e", PEOPLE_ROWS, "g.omni", "--params-file", "{"), 1, "file '{' not found"),
        (("query", "-e", PEOPLE_ROWS, "g.omni", "--params", "[]"), 1, "must be a JSON object"),
        (("query", "g.omni"), 2, "--query FILE or as -e"),
        (("query", "-e", PEOPLE_ROWS, "g.omni", "--format", "xml"), 2, "xml"),
        (
            ("query", "-e", PEOPLE_ROWS, "g.omni", "--branch", "main", "--snapshot", "x"),
            2,
            "--branch and --snapshot are mutually exclusive",
        ),
        (
            ("query", "-e", PEOPLE_ROWS, "g.omni", "--format", "csv", "--json"),
            2,
            "--json and --format are mutually exclusive",
        ),
        (("mutate", "-e", PEOPLE_ROWS, "g.omni"), 1, "who"),
        (
            ("mutate", "-e", 'query m() { insert Knows { from: "Ada", to: "Zed" } }', "g.omni"),
            1,
            "dst 'Zed' not found in Person",
        ),
    ],
)
def test_bad_input_is_told_in_one_place(
    arguments: tuple[str, ...], status: int, message: str, folder: Path
) -> None:
    done = run(*arguments, cwd=folder)

    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_branch_is_written_and_merged(folder: Path) -> None:
    lines("branch", "create", "--from", "main", "onboarding/1", "./g.omni", cwd=folder)
    lines(
        *("change", "--branch", "onboarding/1", "--query", MUTATIONS, "--name", "hire"),
        *("--params", HIRE, "./g.omni"),
        cwd=folder,
    )
    assert len(document("query", "-e", PEOPLE_ROWS, "g.omni", cwd=folder)["rows"]) == 3

    merged = ("branch", "merge", "onboarding/1", "--into", "main", "./g.omni", "--delete-branch")
    assert lines(*merged, cwd=folder) == [
        "merged onboarding/1 into main: fast_forward",
        "deleted branch onboarding/1",
    ]
    assert len(document("query", "-e", PEOPLE_ROWS, "g.omni", cwd=folder)["rows"]) == 4


def test_an_earlier_commit_can_be_read_again(folder: Path) -> None:
    head = document("query", "-e", PEOPLE_ROWS, "g.omni", cwd=folder)["graph_commit_id"]
    lines("mutate", "-e", 'query d() { delete Person where name = "Cy" }', "g.omni", cwd=folder)

    then = document("query", "-e", PEOPLE_ROWS, "g.omni", "--snapshot", head, cwd=folder)
    assert (then["row_count"], then["target"]) == (3, {"branch": None, "snapshot": head})
    assert document("query", "-e", PEOPLE_ROWS, "g.omni", cwd=folder)["row_count"] == 2


def test_files_of_other_systems_are_read(tmp_path: Path) -> None:
    """With a byte order mark and Windows line ends."""
    texts = {
        "s.pg": "node Person {\n  name: String @key\n}\n",
        "q.gq": "query q($n: String) {\n  match { $p: Person { name: $n } }\n  return { $p }\n}\n",
        "p.json": '{\n  "n": "Ada"\n}\n',
        "d.jsonl": '{"type": "Person", "data": {"name": "Ada"}}\n\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.replace("\n", "\r\n").encode("utf-8-sig"))
    lines("init", "--schema", "s.pg", "g.omni", cwd=tmp_path)
    lines("load", "g.omni", "--data", "d.jsonl", "--mode", "append", cwd=tmp_path)
    ask = ("query", "--query", "q.gq", "--params-file", "p.json", "g.omni", "--format", "csv")
    assert lines(*ask, cwd=tmp_path) == ["p", "Ada"]


def test_a_file_that_is_not_there_is_told_with_the_one_that_is_near(people: Path) -> None:
    for name in ("people.csv", "shape.pg", "ask.gq"):
        (people / name).write_text("")
    load = ("load", "g.omni", "--mode", "merge", "--node", "Person", "--data")
    complaints = {
        (*load, "peopel.csv"): "input file 'peopel.csv' not found; did you mean 'people.csv'?",
        (*load, "nofile.csv"): "input file 'nofile.csv' not found; give a file",
        (*load, "dta/people.csv"): "'dta/people.csv' not found; there is no folder 'dta'",
        (*load, "*.tsv"): "'*.tsv' not found; give a file, a folder or a pattern",
        ("init", "--schema", "shpae.pg", "n.omni"): "did you mean 'shape.pg'?",
        ("query", "g.omni", "--query", "ask.qg"): "file 'ask.qg' not found; did you mean 'ask.gq'?",
        ("schema", "check", "./shapes.pg"): "did you mean './shape.pg'?",
    }
    for words, complaint in complaints.items():
        done = run(*words, cwd=people)
        assert (done.returncode, complaint in done.stderr) == (1, True), done.stderr
    with pytest.raises(og.NotFound, match=r"did you mean '.*ask\.gq'"):
        og.open(people / "g.omni").query(people / "aks.gq")


def test_rows_as_csv_are_loaded_back_unchanged(folder: Path) -> None:
    schema = "node Row { k: String @key  t: String?  n: I64?  d: Date?  l: [String]? }"
    (folder / "rows.pg").write_text(schema)
    rows = [
        {"k": "a", "t": None, "n": None, "d": None, "l": None},
        {"k": "b", "t": "", "n": 0, "d": "2024-01-02", "l": []},
        {"k": "c", "t": "null", "n": -1, "d": "1969-12-31", "l": ["x,y", '"', ""]},
        {"k": "d", "t": 'two\nlines, "quoted"', "n": 2**62, "d": None, "l": ["null"]},
    ]
    lines_ = "\n".join(json.dumps({"type": "Row", "data": row}) for row in rows)
    (folder / "rows.jsonl").write_text(lines_)
    for graph in ("one.omni", "two.omni"):
        assert run("init", graph, "--schema", "rows.pg", cwd=folder).returncode == 0
    load = ("load", "one.omni", "--data", "rows.jsonl", "--mode", "append")
    assert run(*load, cwd=folder).returncode == 0
    returned = ", ".join(f"$r.{name} as {name}" for name in "ktndl")
    text = f"query q() {{ match {{ $r: Row }} return {{ {returned} }} }}"
    query = ("query", "-e", text, "--store", "one.omni", "--format", "csv")
    (folder / "rows.csv").write_text(run(*query, cwd=folder).stdout)
    load = ("load", "two.omni", "--data", "rows.csv", "--node", "Row", "--mode", "append")
    assert run(*load, cwd=folder).returncode == 0
    read = [
        document("query", "-e", text, "--store", graph, cwd=folder)["rows"]
        for graph in ("one.omni", "two.omni")
    ]
    assert read[0] == read[1] == rows
