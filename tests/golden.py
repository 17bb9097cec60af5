"""Golden files: what a text is expected to give, kept beside it.

Run with OMNIGRAPH_UPDATE_GOLDEN=1 to write the expectations anew; then read the difference.
"""

import os
import re
from pathlib import Path

from omnigraph.errors import SourceError

FIXTURES = Path(__file__).parent / "fixtures"
UPDATE = bool(os.environ.get("OMNIGRAPH_UPDATE_GOLDEN"))


def read(path: Path) -> str:
    """A fixture's text. Half surrogate pairs are let in: one fixture is about them."""
    return path.read_bytes().decode("utf-8", "surrogatepass")


def write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))


def assert_golden(path: Path, actual: str) -> None:
    """The file holds `actual`; it is made if it is missing and updates were asked for."""
    if UPDATE:
        write(path, actual)
    assert path.exists(), f"run with OMNIGRAPH_UPDATE_GOLDEN=1 to make {path.name}"
    assert actual == read(path)


EXPECT = "// expect: "


def assert_refused(path: Path, error: SourceError) -> None:
    """The first line of a rejected fixture says how and where it is refused."""
    code, place = error.code or "-", f"{error.line}:{error.column}"
    actual = f"{EXPECT}{code} {place} {error.headline}"
    first, _, rest = read(path).partition("\n")
    if UPDATE:
        write(path, f"{actual}\n{rest}")
    else:
        assert actual == first
    assert error.byte_span[1] > error.byte_span[0]


def expected_codes(rejected: list[Path]) -> set[str]:
    """The codes that rejected fixtures expect."""
    return {read(path).removeprefix(EXPECT).split(" ")[0] for path in rejected} - {"-"}


def documented_codes(page: str) -> set[str]:
    """The codes in the table of a page in docs."""
    text = (FIXTURES.parents[1] / "docs" / page).read_text(encoding="utf-8")
    table = text.partition("## Error codes")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([A-Za-z0-9-]+)` \|", table, re.M))
