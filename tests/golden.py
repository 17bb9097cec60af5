"""Golden files: what a text is expected to give, kept beside it.

Run with OMNIGRAPH_UPDATE_GOLDEN=1 to write the expectations anew; then read the difference.
"""

import os
from pathlib import Path

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
