"""Only the storage room opens datasets or lets Lance commit."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "omnigraph"

COMMITTING = {
    "commit",
    "restore",
    "write_dataset",
    "merge_insert",
    "compact_files",
    "create_index",
    "create_scalar_index",
    "optimize_indices",
    "add_columns",
    "drop_columns",
    "alter_columns",
    "cleanup_old_versions",
    "create_branch",
    "update_schema_metadata",
}
"""Methods of Lance that commit by themselves."""

RESIDUAL = {
    "restore": {"inline_commits.py"},
    "Compaction": {"inline_commits.py"},
    "write_dataset": {"datasets.py"},
}
"""Inside the room: where each inline commit lives, and nowhere else."""

INNER = {
    "failpoints",
    "lance.datasets",
    "lance.inline_commits",
    "locks.locks",
    "objects",
    "protocol.sidecars",
}
"""Modules that no other room may import: they open datasets, let Lance commit, or hold locks."""


def sources(*, inside: bool) -> list[Path]:
    files = sorted(ROOT.rglob("*.py"))
    return [f for f in files if (ROOT / "storage" in f.parents) == inside]


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in ("import_module", "__import__"):
                yield str(node.args[0].value)


def offences(text: str) -> list[str]:
    """What a file outside the storage room must not do."""
    tree = ast.parse(text)
    found = [name for name in imports_of(tree) if name.partition(".")[0] in ("lance", "obstore")]
    room = {
        "lance.datasets",
        "lance.inline_commits",
        "objects",
        "failpoints",
        "locks.locks",
        "protocol.sidecars",
    }
    found += [
        name for name in imports_of(tree) if name in {f"omnigraph.storage.{part}" for part in room}
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in COMMITTING - {"commit"}:
            found.append(node.attr)
    return found


@pytest.mark.parametrize("path", sources(inside=False), ids=lambda p: str(p.relative_to(ROOT)))
def test_t3_no_other_room_opens_a_dataset_or_commits(path: Path) -> None:
    assert offences(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", sources(inside=True), ids=lambda p: p.name)
def test_t2_inline_commits_live_behind_their_door(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and not (isinstance(node.func.value, ast.Attribute) and "_residual" in node.func.value.attr)
    }
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name, homes in RESIDUAL.items():
        assert name not in used or path.name in homes, f"{name} is called in {path.name}"


def test_t3_what_is_inside_the_room_is_there() -> None:
    homes = {f"{name.replace('.', '/')}.py" for name in INNER}
    assert [home for home in homes if not (ROOT / "storage" / home).exists()] == []
    assert {home for homes in RESIDUAL.values() for home in homes} <= {
        path.name for path in sources(inside=True)
    }


@pytest.mark.parametrize(
    "text",
    [
        "import lance",
        "from lance.dataset import Transaction",
        "x.write_dataset(rows)",
        "from omnigraph.storage.lance.inline_commits import InlineResidual",
        "from omnigraph.storage.lance.datasets import Datasets",
        "handle.restore()",
        "import importlib\nimportlib.import_module('lance')",
    ],
)
def test_t3_the_guard_sees_what_it_guards_against(text: str) -> None:
    assert offences(text)
