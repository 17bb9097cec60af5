"""Every command on a page does what the page shows."""

import os
import re
from pathlib import Path

import pytest

from omnigraph.cli.app import app
from tests.golden import UPDATE
from tests.shape.pages import BLOCK, FOLDER, ROOT, Code, Command, File, fits, steps, walk

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
RUN = ("```console\n", "```python\n")
# The README's session and the page of the library have tests of their own.
WITH_COMMANDS = [
    page
    for page in PAGES
    if page.name != "python.md" and any(mark in page.read_text("utf-8") for mark in RUN)
]
REFERENCE = ROOT / "docs" / "cli.md"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_a_page_shows_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    wrong = walk(page, tmp_path, update=UPDATE)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_command_on_a_page_escapes_being_run(page: Path) -> None:
    """A line that a reader would copy stands in a block marked `console`."""
    if page == REFERENCE:
        return  # its blocks say which words a command takes
    text = page.read_text("utf-8")
    blocks = [m["body"] for m in BLOCK.finditer(text) if m["kind"] not in ("console", None)]
    lines = [line for body in blocks for line in body.splitlines()]
    assert [line for line in lines if re.match(r"\s*(\$ )?omnigraph [a-z-]", line)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_says_which_folder_its_commands_are_run_in(page: Path) -> None:
    text = page.read_text("utf-8")
    folders = [m["path"] for m in FOLDER.finditer(text)]
    assert len(folders) <= 1
    assert [path for path in folders if f"`cd {path}`" not in text] == []


def test_several_pages_show_commands() -> None:
    assert len(WITH_COMMANDS) >= 4
    assert sum(len(steps(page.read_text("utf-8"))) for page in WITH_COMMANDS) > 50


def test_the_reference_lists_every_command() -> None:
    page = REFERENCE.read_text("utf-8")
    names = [c.name or c.callback.__name__ for c in app.registered_commands if c.callback]
    for group in app.registered_groups:
        inner = group.typer_instance
        assert inner is not None
        names += [
            f"{inner.info.name} {c.name or c.callback.__name__}"
            for c in inner.registered_commands
            if c.callback and not c.hidden
        ]
    assert [name for name in names if f"omnigraph {name}" not in page] == []


def test_a_page_is_read_as_a_reader_reads_it() -> None:
    page = (
        "Save this as `a.pg`:\n\n```pg\nnode A\n```\n\nThen:\n\n"
        "```console\n$ one \\\n  two\nout\n$ three\n```\n"
    )
    file, first, second = steps(page)
    assert file == File("a.pg", "node A\n")
    assert isinstance(first, Command)
    assert isinstance(second, Command)
    assert (first.text, first.shown) == ("one \\\n  two", "out\n")
    assert (second.text, second.shown) == ("three", "")


def test_code_on_a_page_is_one_program_with_what_it_prints() -> None:
    page = (
        "<!-- python\na = 1\n-->\n\n```python\nprint(a)\n```\n\n```text\n1\n```\n\n```py\nb\n```\n"
    )
    assert [(s.text, s.shown) for s in steps(page) if isinstance(s, Code)] == [
        ("a = 1\n", None),
        ("print(a)\n", "1\n"),
    ]


def test_code_that_prints_otherwise_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\na = 2\n```\n\n```python\nprint(a)\n```\n\n```text\n1\n```\n")
    (wrong,) = walk(page, tmp_path, update=False)
    assert wrong.endswith("--- shown\n1\n--- printed\n2\n")


def test_a_page_starts_from_the_environment_of_a_new_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n"
        "$ echo ${OMNIGRAPH_EMBED_PROVIDER-unset} ${OPENAI_API_KEY-unset}\nunset unset\n"
        "$ export OMNIGRAPH_EMBED_PROVIDER=gemini\n"
        "$ echo $OMNIGRAPH_EMBED_PROVIDER\ngemini\n```\n"
    )
    assert walk(page, tmp_path, update=False) == []
    assert os.environ["OMNIGRAPH_EMBED_PROVIDER"] == "mock"


def test_what_varies_is_not_compared_and_the_rest_is() -> None:
    assert fits("01M7FPTVPR2MM0J5G9WCJQYN11 a\n…\nz\n", "01M7FQ0VDFNRS3YE4J09VJG2H9 a\nb\nc\nz\n")
    assert not fits("a\n", "b\n")
    assert not fits("a\n…\nz\n", "a\nb\n")


def test_the_code_on_the_page_of_the_library_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    blocks = [m["body"] for m in BLOCK.finditer(page) if m["kind"] == "python"]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    assert capsys.readouterr().out.startswith("graph is there already\n")
