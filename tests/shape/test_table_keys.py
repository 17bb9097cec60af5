"""`node:Person` is taken apart and put together in `omnigraph.types` alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.types import Kind, TableKey, counts_of_kind, parse_table_key, table_key

ROOT = Path(__file__).parents[2] / "omnigraph"
PREFIXES = ("node:", "edge:")
EXEMPT = {
    "types.py",  # the parser itself
    "cli/embed.py",  # reads `[Type:]field=value`, which is no table key
}


def hand_made(text: str) -> Iterator[str]:
    """Calls that cut a text at its colon or its kind, and texts that begin with a kind."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            first, name = node.args[0], node.func.attr
            argument = first.value if isinstance(first, ast.Constant) else None
            if name in ("partition", "rpartition", "split", "rsplit") and argument == ":":
                yield ast.unparse(node)
            if name in ("removeprefix", "startswith") and str(argument) in PREFIXES:
                yield ast.unparse(node)
        if isinstance(node, ast.JoinedStr) and ast.unparse(node)[2:].startswith(PREFIXES):
            yield ast.unparse(node)


def sources() -> list[str]:
    paths = (path.relative_to(ROOT).as_posix() for path in sorted(ROOT.rglob("*.py")))
    return [path for path in paths if path not in EXEMPT]


@pytest.mark.parametrize("path", sources())
def test_no_room_parses_a_table_key_by_hand(path: str) -> None:
    assert list(hand_made((ROOT / path).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "text",
    [
        "kind, _, name = key.partition(':')",
        "key.removeprefix('node:')",
        "key.startswith('edge:')",
        "f'node:{name}'",
    ],
)
def test_the_guard_sees_what_it_guards_against(text: str) -> None:
    assert list(hand_made(text))


@pytest.mark.parametrize("kind", [Kind.NODE, Kind.EDGE])
def test_a_key_is_parsed_into_what_made_it(kind: Kind) -> None:
    assert parse_table_key(table_key(kind, "Person")) == (kind, "Person")


@pytest.mark.parametrize("text", ["", "node", "node:", "Person", "interface:Named", "audit"])
def test_other_texts_are_no_table_keys(text: str) -> None:
    with pytest.raises(ValueError, match="is no table key"):
        parse_table_key(text)


def test_counts_are_told_apart_by_kind() -> None:
    counts = {TableKey("node:A"): 1, TableKey("edge:A"): 2, TableKey("node:B"): 3}
    assert counts_of_kind(counts, Kind.NODE) == {"A": 1, "B": 3}
    assert counts_of_kind(counts, Kind.EDGE) == {"A": 2}
