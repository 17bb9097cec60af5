"""Lance's names for its own columns are spelled in one module."""

import re
from pathlib import Path

import pytest

from omnigraph.storage.lance import columns
from omnigraph.types import BLOB_EXTENSION, RESERVED_COLUMNS

ROOT = Path(__file__).parents[2] / "omnigraph"

HOMES = {"storage/lance/columns.py", "types.py"}

WORDS = re.compile(
    r"_rowid\b|_rowaddr\b|_rowoffset\b|_row_(created|last_updated)_at_|blob_uri|lance\.blob"
)


def spelled(text: str) -> set[str]:
    return {match.group() for match in WORDS.finditer(text)}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_lances_column_names_are_spelled_in_one_module(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    if name not in HOMES:
        assert spelled(path.read_text(encoding="utf-8")) == set()


def test_every_name_the_language_reserves_is_one_of_lances_columns() -> None:
    ours = {columns.ROW_ID, columns.ADDRESS, columns.OFFSET, columns.CREATED, columns.UPDATED}
    assert ours == RESERVED_COLUMNS


def test_the_guard_sees_what_it_guards_against() -> None:
    for word in (*RESERVED_COLUMNS, BLOB_EXTENSION, columns.BLOB_URI):
        assert spelled(f'rows["{word}"]'), word
