"""Paths that commands write to and read from: every one is used as what it is, or refused."""

import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
import typer

from omnigraph.cli.app import app
from tests.cli.program import lines, run
from tests.thinned import thinned

EXPORT = ("export", "g.omni", "--out")
BASELINE = ("changes", "baseline", "g.omni", "--out")
EMBED = ("embed", "--input", "docs.jsonl", "--spec", "spec.json", "--output")
BLOB = ("blob", "get", "node", "Doc", "d", "file", "d.omni", "--out")
COMMANDS = {"export": EXPORT, "baseline": BASELINE, "embed": EMBED, "blob": BLOB}


@pytest.fixture(scope="session")
def with_docs(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's folder, and what `embed` and `blob` need."""
    folder = Path(shutil.copytree(prepared, tmp_path_factory.mktemp("docs") / "people"))
    (folder / "docs.jsonl").write_text('{"type": "Doc", "data": {"title": "x"}}\n')
    (folder / "spec.json").write_text(
        '{"dimension": 4, "types": {"Doc": {"target": "embedding", "fields": ["title"]}}}'
    )
    (folder / "doc.pg").write_text("node Doc { name: String @key  file: Blob? }")
    (folder / "d.jsonl").write_text('{"type": "Doc", "data": {"name": "d", "file": "base64:aGk="}}')
    lines("init", "--schema", "doc.pg", "d.omni", cwd=folder)
    lines("load", "d.omni", "--data", "d.jsonl", "--mode", "append", cwd=folder)
    return folder


@pytest.fixture
def folder(with_docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    return Path(shutil.copytree(with_docs, tmp_path / "people"))


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_link_stays_and_its_target_is_written(folder: Path, words: tuple[str, ...]) -> None:
    real = folder / "elsewhere" / "real"
    real.parent.mkdir()
    real.write_text("before")
    real.chmod(0o600)
    link = folder / "link"
    link.symlink_to(real)
    lines(*words, "link", cwd=folder)
    assert link.is_symlink()
    assert real.read_bytes() not in (b"", b"before")
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    dangling = folder / "dangling"
    dangling.symlink_to(folder / "elsewhere" / "new")
    lines(*words, "dangling", cwd=folder)
    assert dangling.is_symlink()
    assert (folder / "elsewhere" / "new").read_bytes() == real.read_bytes()
    assert list(real.parent.glob(".*")) == []


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_fifo_is_written_through(folder: Path, words: tuple[str, ...]) -> None:
    lines(*words, "plain", cwd=folder)
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(fifo.read_bytes()), daemon=True)
    reader.start()
    lines(*words, "fifo", cwd=folder)
    reader.join(10)
    assert received == [(folder / "plain").read_bytes()]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_device_stays_a_device(folder: Path, words: tuple[str, ...]) -> None:
    null = folder / "null"
    null.symlink_to("/dev/null")
    for target in ("null", "/dev/null"):
        lines(*words, target, cwd=folder)
    assert null.is_symlink()
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_an_output_that_fails_half_way_leaves_the_file_as_it_was(
    folder: Path, words: tuple[str, ...]
) -> None:
    (folder / "kept").write_text("before")
    (folder / "docs.jsonl").write_text('{"type": "Doc", "data": {"title": "x"}}\n{')
    broken = (*words[:-1], "--type", "Nope") if words in (EXPORT, BASELINE) else words[:-1]
    broken = tuple("nope" if word == "d" else word for word in broken)
    assert run(*broken, words[-1], "kept", cwd=folder).returncode == 1
    assert (folder / "kept").read_text() == "before"


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("", "is empty"),
        (".", "is a folder"),
        ("there/", "is a folder"),
        ("http://x", "give a path"),
        ("no\0where", "NUL"),
        ("x" * 300, "File name too long"),
        ("people.jsonl/x", "Not a directory"),
    ],
)
def test_an_output_that_names_no_file_is_refused(
    folder: Path, words: tuple[str, ...], target: str, complaint: str
) -> None:
    (folder / "there").mkdir()
    (folder / "there" / "file").touch()
    done = run(*words, target, cwd=folder)
    assert done.returncode in (1, 2)
    assert "failed unexpectedly" not in done.stderr
    if words == EMBED and not target:
        complaint = "pass --seed MANIFEST"
    if words == EXPORT and target in (".", "there/"):
        complaint = "give an empty folder"  # a folder gets a file a type
    assert complaint in done.stderr or "is a folder" in done.stderr


def test_parquet_does_not_go_to_a_file(folder: Path) -> None:
    done = run(*EXPORT, "people.jsonl", "--format", "parquet", cwd=folder)
    assert "'people.jsonl' is not a folder; name a folder" in done.stderr


# Every path, wherever it is given

PATHS = {"FILE", "PATH", "DIR", "URI", "MANIFEST", "FOLDER", "FILE…", "[NAME] [URI]"}
ODD = ("", ".", "empty", "http://x", "no\0where", "file://", "people.jsonl/x", "-")
FITTING = {
    "schema": "schema.pg", "query": "queries.gq", "data": "people.jsonl", "input": "docs.jsonl",
    "spec": "spec.json", "output": "made.jsonl", "out": "made.jsonl", "mode": "merge",
    "shell": "bash", "commit": "01X", "before": "main", "after": "main", "name": "b",
    "source": "main", "kind": "node", "type_name": "Person", "id": "Ada", "property": "name",
    "file": "schema.pg", "files": "schema.pg",
}  # fmt: skip
LEFT_OUT = {"demo", "completion", "package", "shell"}


def commands(group: Any, before: tuple[str, ...] = ()) -> Any:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))
        elif name not in LEFT_OUT:
            yield (*before, name), command


def calls() -> Any:
    for words, command in commands(typer.main.get_command(app)):
        paths = [p for p in command.params if p.metavar in PATHS]
        for odd in paths:
            call: list[str] = []
            for param in command.params:
                chosen = "{}" if param is odd else FITTING.get(param.name)
                if param is odd and param.param_type_name == "argument":
                    call += ["{}"]
                elif param.required or param is odd:
                    flag = [] if param.param_type_name == "argument" else [param.opts[0]]
                    call += [*flag, str(chosen)]
            if odd.metavar not in ("URI", "[NAME] [URI]") and "store" in {
                param.name for param in command.params
            }:
                call += ["--store", "g.omni"]
            yield " ".join((*words, odd.name)), (*words, *call)


CALLS = dict(calls())


@pytest.mark.parametrize("name", thinned(CALLS, every=8))
def test_a_path_that_leads_nowhere_is_one_sentence(folder: Path, name: str) -> None:
    call = CALLS[name]
    (folder / "empty").mkdir(exist_ok=True)
    for odd in ODD:
        words = [odd if word == "{}" else word for word in call]
        done = run(*words, cwd=folder)
        assert "failed unexpectedly" not in done.stderr, (words, done.stderr)
        assert "Traceback" not in done.stderr, (words, done.stderr)


NAMES = "query q() { match { $p: Person } return { $p.name } order { $p.name } limit 1 }"


@pytest.mark.parametrize(
    ("file", "format"),
    [
        ("rows.csv", "csv"),
        ("rows.jsonl", "jsonl"),
        ("rows.ndjson", "jsonl"),
        ("rows.JSON", "json"),
        ("rows.md", "markdown"),
        ("rows.parquet", "parquet"),
        ("rows.arrow", "arrow"),
        ("rows.txt", "table"),
        ("rows", "table"),
    ],
)
def test_rows_are_written_as_the_ending_of_the_file_says(
    folder: Path, file: str, format: str
) -> None:
    query = ("query", "g.omni", "-e", NAMES, "--out")
    lines(*query, file, cwd=folder)
    lines(*query, "asked", "--format", format, cwd=folder)
    assert (folder / file).read_bytes() == (folder / "asked").read_bytes()
    lines(*query, file, "--format", "kv", cwd=folder)
    assert (folder / file).read_text().startswith("1 rows from branch main"), "as it was asked for"


def test_an_export_is_written_as_the_ending_of_its_path_says(folder: Path) -> None:
    lines(*EXPORT, "all.parquet", cwd=folder)
    lines("init", "--schema", "schema.pg", "copy.omni", cwd=folder)
    lines("load", "copy.omni", "--data", "all.parquet", "--mode", "append", cwd=folder)
    lines(*EXPORT, "all.jsonl", cwd=folder)
    lines("export", "copy.omni", "--out", "copy.jsonl", cwd=folder)
    assert (folder / "copy.jsonl").read_bytes() == (folder / "all.jsonl").read_bytes()
    lines(*EXPORT, "people.csv", "--type", "Person", cwd=folder)
    assert (folder / "people.csv").read_text().startswith("id,")
    lines(*EXPORT, "all.csv", "--format", "jsonl", cwd=folder)
    assert (folder / "all.csv").read_bytes() == (folder / "all.jsonl").read_bytes()
    assert "one type" in run(*EXPORT, "other.csv", cwd=folder).stderr


def test_rows_that_leave_out_a_column_say_so_and_parquet_refuses_them(folder: Path) -> None:
    text = "query q() { match { $p: Person } return { $p.name as n, $p.age as n } }"
    query = ("query", "g.omni", "-e", text, "--format")
    for format in ("json", "jsonl"):
        assert "several columns are called 'n'" in run(*query, format, cwd=folder).stderr
    assert run(*query, "csv", cwd=folder).stderr == ""
    refused = run(*query, "parquet", "--out", "rows", cwd=folder)
    assert (refused.returncode, "two columns called 'n'" in refused.stderr) == (1, True)
