"""Failures of commands that print JSON: one document on standard output, with the fields."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

import omnigraph
from omnigraph import errors
from omnigraph.cli.failure_document import failure_code, failure_document
from omnigraph.cli.terminal import OPTIONS, in_options
from omnigraph.server.status import error_answer
from tests.cli.program import SCHEMA, run
from tests.shape.test_exports import ERRORS, example


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_a_failure_has_the_code_that_a_server_gives_it(
    kind: type[errors.OmnigraphError],
) -> None:
    cause = example(kind)
    code = error_answer(cause).body.code
    assert failure_code(cause) == (None if code is UNSET else code)
    document = json.loads(json.dumps(failure_document(str(cause), cause)))
    assert document["error"] == str(cause)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_a_failure_has_the_members_that_a_server_gives_it(
    kind: type[errors.OmnigraphError],
) -> None:
    cause = example(kind)
    if isinstance(cause, errors.MergeConflicts):
        return  # its conflicts have both sides here
    served = msgspec.to_builtins(error_answer(cause).body)
    document = json.loads(json.dumps(failure_document(str(cause), cause)))
    own = {"error", "fault"}
    assert {k: v for k, v in document.items() if k not in own} == {
        k: v for k, v in served.items() if k not in own
    }


def test_half_a_surrogate_pair_can_be_printed_and_written(tmp_path: Path) -> None:
    run("init", "g.omni", "--schema", SCHEMA, cwd=tmp_path)
    lines = '{"type": "\\udfff", "data": {}}\n{"type": "Company", "data": {"name": "\\ud800"}}\n'
    (tmp_path / "half.jsonl").write_text(lines)
    load = ("load", "g.omni", "--data", "half.jsonl", "--mode", "merge", "--json")
    done = run(*load, "--rejects", "bad", cwd=tmp_path)
    assert "unknown node type '\\udfff'" in json.loads(done.stdout)["error"]
    entries = (tmp_path / "bad" / "rejects.jsonl").read_text().splitlines()
    assert [json.loads(each)["value"] for each in entries] == ["\\udfff", "\\ud800"]


def test_SV15_a_text_that_is_wrong_has_a_diagnostic(tmp_path: Path) -> None:
    run("init", "g.omni", "--schema", SCHEMA, cwd=tmp_path)
    done = run("query", "g.omni", "-e", "query q( { match", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["diagnostic"] == {
        "code": "syntax",
        "line": 1,
        "column": 10,
        "expected": "')' or a $variable",
        "suggestion": None,
    }


@pytest.mark.parametrize("words", OPTIONS)
def test_a_terminal_is_told_of_options_and_not_of_arguments_of_python(words: str) -> None:
    package = Path(omnigraph.__file__).parent
    others = (path for path in package.rglob("*.py") if package / "cli" not in path.parents)
    assert any(words in path.read_text("utf-8") for path in others), "no error says it"
    assert "=" not in in_options(f"it is wrong; {words}")


def test_a_failure_is_a_document_and_a_message(tmp_path: Path) -> None:
    run("init", "g.omni", "--schema", SCHEMA, cwd=tmp_path)
    asked = "query q() { match { $p: Persn } return { $p.name } }"
    done = run("query", "g.omni", "-e", asked, "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert (done.returncode, told["code"], told["fault"]["name"]) == (
        1,
        "bad_request",
        "TypeCheckError",
    )
    facts = told["fault"]["facts"]
    assert (facts["code"], facts["hint"]) == ("T1", "did you mean 'Person'?")
    assert done.stderr.startswith("error: type error: T1")
    plain = run("query", "g.omni", "-e", asked, cwd=tmp_path)
    assert (plain.stdout, plain.stderr) == ("", done.stderr)


def test_a_wrong_call_prints_no_document(tmp_path: Path) -> None:
    done = run("query", "g.omni", "--json", "--fromat", "csv", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--format" in done.stderr
