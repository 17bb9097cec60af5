"""`omnigraph fmt`: files in place, standard input to standard output, and what cannot be read."""

from pathlib import Path

import pytest

from tests.cli.program import PEOPLE, document, lines, run

LOOSE = "query a(){match{$p:A} // why\nreturn{$p}}"
TIDY = "query a() {\n  match { $p: A } // why\n  return { $p }\n}\n"
EXAMPLES = sorted([*PEOPLE.parent.rglob("*.pg"), *PEOPLE.parent.rglob("*.gq")])


def test_a_file_is_rewritten_once_and_named(tmp_path: Path) -> None:
    file = tmp_path / "a.gq"
    file.write_text(LOOSE)
    file.chmod(0o640)

    assert lines("fmt", "a.gq", cwd=tmp_path) == ["formatted a.gq"]
    assert file.read_text() == TIDY
    assert file.stat().st_mode & 0o777 == 0o640
    written = file.stat().st_mtime_ns
    assert lines("fmt", "a.gq", cwd=tmp_path) == []
    assert file.stat().st_mtime_ns == written
    assert [path.name for path in tmp_path.iterdir()] == ["a.gq"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.gq").write_text(LOOSE)
    (tmp_path / "link.gq").symlink_to("real.gq")

    run("fmt", "link.gq", cwd=tmp_path)

    assert (tmp_path / "link.gq").is_symlink()
    assert (tmp_path / "real.gq").read_text() == TIDY


def test_a_check_writes_nothing_and_fails_if_a_file_would_change(tmp_path: Path) -> None:
    (tmp_path / "a.gq").write_text(LOOSE)
    (tmp_path / "b.pg").write_text("node A { x: I32 }\n")

    done = run("fmt", "--check", "a.gq", "b.pg", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "would format a.gq\n")
    assert (tmp_path / "a.gq").read_text() == LOOSE
    assert run("fmt", "--check", "b.pg", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("text", "tidy"),
    [(LOOSE, TIDY), ("// x\nnode A{x:I32}", "// x\nnode A { x: I32 }\n"), ("", "")],
)
def test_standard_input_goes_to_standard_output(text: str, tidy: str) -> None:
    done = run("fmt", "-", stdin=text)
    assert (done.returncode, done.stdout, done.stderr) == (0, tidy, "")


def test_a_file_that_does_not_parse_leaves_the_others_to_be_formatted(tmp_path: Path) -> None:
    (tmp_path / "a.gq").write_text("query a( {")
    (tmp_path / "b.gq").write_text(LOOSE)
    (tmp_path / "c.txt").write_text("text")

    done = run("fmt", "a.gq", "c.txt", "missing.pg", "b.gq", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "formatted b.gq\n")
    assert (tmp_path / "a.gq").read_text() == "query a( {"
    assert "error: a.gq: parse error: unexpected '{'" in done.stderr
    assert "(line 1, column 10)\n1 | query a( {\n  |          ^" in done.stderr
    assert "error: c.txt: not a .pg or .gq file" in done.stderr
    assert "error: missing.pg: file 'missing.pg' not found" in done.stderr


def test_a_program_is_told_what_became_of_each_file(tmp_path: Path) -> None:
    (tmp_path / "a.gq").write_text(LOOSE)
    (tmp_path / "b.gq").write_text(TIDY)

    assert document("fmt", "--json", "a.gq", "b.gq", cwd=tmp_path) == {
        "files": [
            {"path": "a.gq", "status": "changed"},
            {"path": "b.gq", "status": "unchanged"},
        ],
        "changed": 1,
        "errors": 0,
    }
    (tmp_path / "c.pg").write_text("node {")
    done = run("fmt", "--json", "c.pg", cwd=tmp_path)
    assert done.returncode == 1
    assert '"line": 1' in done.stdout


def test_the_examples_are_formatted() -> None:
    assert len(EXAMPLES) > 5
    assert run("fmt", "--check", *map(str, EXAMPLES)).stdout == ""
