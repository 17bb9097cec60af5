"""The commands as a user meets them: output, errors and exit status of a real process."""

import json
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import omnigraph
from tests.cli.program import PEOPLE, PROGRAM, SCHEMA, lines, run, start

QUERIES = str(PEOPLE / "queries.gq")
MUTATIONS = str(PEOPLE / "mutations.gq")


@pytest.fixture
def written(tmp_path: Path) -> "Writer":
    return Writer(tmp_path)


class Writer:
    """Writes files into the test's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, text: str | bytes) -> str:
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)


def test_version_prints_program_and_format() -> None:
    expected = [f"omnigraph {omnigraph.__version__}", "internal-schema 4"]

    assert lines("version") == expected
    assert lines("--version") == expected
    assert lines("-v") == expected
    assert lines("branch", "list", "-v") == expected, "as every flag of the program, anywhere"


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("lint", "--help"), ("schema", "-h")])
def test_help_is_a_result(arguments: Sequence[str]) -> None:
    done = start(*arguments)

    assert done.returncode == 0
    assert done.stdout.startswith("Usage: omnigraph")
    assert done.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("lint",),
        ("lint", "--schema", SCHEMA),
        ("lint", "--schema", SCHEMA, "--query", QUERIES, "--frobnicate"),
        ("schema", "check"),
        ("explain", "--query", QUERIES),
    ],
)
def test_a_wrong_call_exits_with_2(arguments: Sequence[str]) -> None:
    done = run(*arguments)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "Error: " in done.stderr


def test_lint_says_a_line_a_query() -> None:
    shown = lines("lint", "--schema", SCHEMA, "--query", QUERIES)

    assert shown[0] == "OK    query `person` (read)"
    assert shown[-1] == (
        "INFO  Lint complete: 8 queries processed (0 error(s), 0 warning(s), 0 info item(s))"
    )


def test_lint_reports_as_json() -> None:
    done = run("lint", "--schema", SCHEMA, "--query", MUTATIONS, "--json")
    report = json.loads(done.stdout)

    assert done.returncode == 0
    assert list(report) == [
        "status",
        "schema_source",
        "query_path",
        "queries_processed",
        "errors",
        "warnings",
        "infos",
        "results",
        "findings",
    ]
    assert report["schema_source"] == {"kind": "file", "path": SCHEMA}
    assert report["query_path"] == MUTATIONS
    assert {result["kind"] for result in report["results"]} == {"mutation"}
    assert done.stdout.startswith('{\n  "status": "ok",\n')


def test_lint_with_an_error_exits_with_1(written: Writer) -> None:
    bad = written(
        "bad.gq",
        "query a() { match { $p: Robot } return { $p } }\n"
        'query b() { insert Company { name: "x" } }',
    )

    done = start("lint", "--schema", SCHEMA, "--query", bad)
    assert done.returncode == 1
    assert done.stdout.splitlines()[:4] == [
        "ERROR query `a`: type error: T1: unknown node type 'Robot' (line 1, column 25)",
        "      1 | query a() { match { $p: Robot } return { $p } }",
        "        |                         ^^^^^",
        "      help: known: Company, Doc, Named, Person",
    ]
    assert "WARN  query `b`: mutation declares no params" in done.stdout

    report = json.loads(run("lint", "--schema", SCHEMA, "--query", bad, "--json").stdout)
    assert (report["status"], report["errors"], report["warnings"]) == ("error", 1, 1)


def test_lint_of_a_file_that_does_not_parse(written: Writer) -> None:
    done = run("lint", "--schema", SCHEMA, "--query", written("bad.gq", "query q() {"))

    assert done.returncode == 1
    assert done.stdout.startswith("ERROR Q000 parse error: unexpected end of the text")
    assert done.stdout.splitlines()[-1].startswith("INFO  Lint complete: 0 queries processed")


@pytest.mark.parametrize("old", [("check",), ("query", "lint"), ("query", "check")])
def test_older_spellings_of_lint_work_and_warn(old: Sequence[str]) -> None:
    done = run(*old, "--schema", SCHEMA, "--query", QUERIES)

    assert done.returncode == 0
    assert done.stderr == f"warning: 'omnigraph {' '.join(old)}' is now 'omnigraph lint'\n"


def test_a_file_can_come_from_standard_input() -> None:
    done = run("lint", "--schema", SCHEMA, "--query", "-", stdin=Path(QUERIES).read_text())

    assert done.returncode == 0


def test_explain_prints_one_plan() -> None:
    assert lines("explain", "--schema", SCHEMA, "--query", QUERIES, "person")[0] == (
        "read person($name: String)"
    )
    assert lines("explain", "--schema", SCHEMA, "--query", QUERIES, "--name", "person")


def test_explain_without_a_name_asks_for_one() -> None:
    done = run("explain", "--schema", SCHEMA, "--query", QUERIES)

    assert done.returncode == 1
    assert "query file contains multiple queries; name one as the first word: " in done.stderr


def test_schema_check_counts_what_it_accepted() -> None:
    assert lines("schema", "check", SCHEMA) == [
        f"OK    {SCHEMA}: 3 node type(s), 3 edge type(s), 1 interface(s)"
    ]
    report = json.loads(run("schema", "check", SCHEMA, "--json").stdout)
    assert report["status"] == "ok"
    assert report["nodes"] == ["Person", "Company", "Doc"]


def test_schema_check_points_at_a_fault(written: Writer) -> None:
    bad = written("bad.pg", "node A {\n  x: String? @key\n}")

    done = run("schema", "check", bad)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: parse error: @key property A.x cannot be nullable")
    assert "\n2 |   x: String? @key\n" in done.stderr

    done = run("schema", "check", bad, "--json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["line"]) == ("nullable-key", 2)


def test_schema_check_plans_the_change_from_an_older_schema(written: Writer) -> None:
    old = written("old.pg", "node A { x: String @key }")
    new = written("new.pg", "node A { x: String @key  y: I32? }\nnode B { z: I64 }")

    assert lines("schema", "check", new, "--against", old)[1:] == [
        f"schema plan for {new}",
        "supported: yes",
        "- add property 'A.y' (I32?) on node 'A'",
        "- add node type 'B'",
    ]
    report = json.loads(run("schema", "check", new, "--against", old, "--json").stdout)
    assert report["plan"]["supported"] is True
    assert [step["kind"] for step in report["plan"]["steps"]] == ["add_property", "add_type"]


@pytest.mark.parametrize("command", [("schema", "check"), ("lint", "--query", QUERIES, "--schema")])
def test_a_file_that_cannot_be_read_is_one_sentence(
    command: Sequence[str], written: Writer, tmp_path: Path
) -> None:
    latin = written("latin.pg", "node Café {}".encode("latin-1"))
    for path, message in (
        (str(tmp_path / "none.pg"), f"error: file '{tmp_path / 'none.pg'}' not found\n"),
        (str(tmp_path), f"error: cannot read '{tmp_path}': Is a directory\n"),
        (latin, f"error: '{latin}' is not UTF-8 text (byte 8); save it as UTF-8\n"),
    ):
        done = run(*command, path)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_a_byte_order_mark_is_no_part_of_the_text(written: Writer) -> None:
    assert lines("schema", "check", written("bom.pg", b"\xef\xbb\xbfnode A {}"))


def test_a_reader_that_leaves_early_is_no_failure() -> None:
    call = shlex.join([*PROGRAM, "lint", "--schema", SCHEMA, "--query", QUERIES, "--json"])
    script = f"{call} | head -n 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("{\n", "")
