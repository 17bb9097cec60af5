"""The environment is read in one place, and the page lists what that place does."""

import ast

import pytest

from omnigraph import environment
from tests.golden import UPDATE
from tests.shape.modules import ROOT, modules

PAGE = ROOT / "docs" / "cli.md"
BEGIN, END = "| variable | default | allowed | use |\n|---|---|---|---|\n", "\n\n"
SHELLS = {environment.COMPLETE, environment.COMPLETE_WORDS, environment.COMPLETE_ARGUMENTS}
TESTS = {environment.FAILPOINTS, environment.TEST_THRESHOLDS}
NOT_LISTED = {"PATH", "HOME", "TERM", *(each.name for each in SHELLS | TESTS)}
READERS = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def readings(tree: ast.AST) -> list[str]:
    """Every name through which a program reaches the environment."""
    names = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    names += [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "posix")
        for alias in node.names
    ]
    return [name for name in names if name in READERS]


def test_no_other_module_reads_the_environment() -> None:
    # The thresholds are below the table of variables, which takes defaults from them.
    assert {m.name for m in modules() if readings(m.tree)} == {"environment.py", "costs.py"}


@pytest.mark.parametrize(
    "text",
    ["os.environ['A']", "os.getenv('A')", "from os import environ", "import os as o; o.environ"],
)
def test_the_search_for_readers_sees_every_way(text: str) -> None:
    assert readings(ast.parse(text))


def test_every_variable_is_in_the_table_once_under_a_name_of_its_own() -> None:
    defined = [v for v in vars(environment).values() if isinstance(v, environment.Variable)]
    names = [variable.name for variable in environment.TABLE]
    assert len(names) == len(set(names))
    assert {variable.name for variable in defined} <= set(names)


def row(variable: environment.Variable) -> str:
    default = f"`{variable.default}`" if variable.default != "" else ""
    cells = (f"`{variable.name}`", default, variable.allowed, variable.use)
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def test_the_page_lists_every_variable_with_its_default_and_bounds() -> None:
    rows = "\n".join(row(v) for v in environment.TABLE if v.name not in NOT_LISTED)
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    listed, end, after = rest.partition(END)
    assert listed.startswith("| `"), "the table has no row that could be replaced"
    if UPDATE:
        PAGE.write_text(before + begin + rows + end + after, encoding="utf-8")
    else:
        assert listed == rows
