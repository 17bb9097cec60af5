"""Deferred imports: every name resolves, and a process that reads loads no room that writes."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

import omnigraph
from omnigraph.deferred import Deferred, deferred

SOURCE = Path(omnigraph.__file__).parent
DEFERRING = sorted(
    path
    for path in SOURCE.rglob("*.py")
    if "= deferred(" in path.read_text() and path.stem != "deferred"
)

UNUSED = (
    "lark",
    "pandas",
    "ulid",
    "http.client",
    "numpy.random",
    "omnigraph.catalog.accept",
    "omnigraph.exec.changes.diff",
    "omnigraph.exec.load.local",
    "omnigraph.exec.merge.run",
    "omnigraph.exec.mutate.run",
    "omnigraph.exec.schema.migrate",
    "omnigraph.exec.upkeep.optimize",
    "omnigraph.pipeline.load",
    "omnigraph.plan.statements",
)

FIRST_HOP = """
import sys
from pathlib import Path
import omnigraph
graph = omnigraph.open(Path(sys.argv[1]))
query = "query q($n: String) { match { $p: P { n: $n }  $p knows $f } return { $f.n as n } }"
assert [row["n"] for row in graph.query(query, {"n": "a"}).rows] == ["b"]
print(*sorted(set(sys.modules) & set(sys.argv[2:])))
"""


UNUSED_BY_IMPORT = (
    *UNUSED,
    "difflib",
    "html",
    "omnigraph.exec.read.reading",
    "omnigraph.language.query.parser",
    "omnigraph.plan.compile",
    "omnigraph.plan.ir",
    "omnigraph.policy.decisions",
    "omnigraph.storage.write_parts",
)


def _module(path: Path) -> ModuleType:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return import_module(".".join(parts))


@pytest.mark.parametrize("path", DEFERRING, ids=lambda path: path.stem)
def test_every_deferred_name_is_there(path: Path) -> None:
    names = {name: each for name, each in vars(_module(path)).items() if type(each) is Deferred}
    assert names
    for name, each in names.items():
        resolved = each.resolved
        assert (
            getattr(resolved, "__name__", name).rpartition(".")[2] == name or resolved is not None
        )


def test_a_deferred_class_is_called_asked_and_compared_like_the_class() -> None:
    path = deferred("pathlib", "PurePosixPath")
    assert isinstance(path("a"), path)
    assert path.match(path("a"), "a")
    assert not isinstance("a", path)
    with pytest.raises(AttributeError):
        assert deferred("pathlib", "PurePosixPath").nothing
    with pytest.raises(ImportError):
        assert deferred("pathlib_of_nobody", "Path").resolved


def test_an_import_loads_no_room_that_a_call_enters() -> None:
    code = "import sys, omnigraph.graph; print(*sorted(set(sys.modules) & set(sys.argv[1:])))"
    command = [sys.executable, "-c", code, *UNUSED_BY_IMPORT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_deferred_class_makes_unions_and_is_imported_for_none_of_their_other_values() -> None:
    path = deferred("pathlib", "PurePosixPath")
    for union in (str | path, path | str):
        assert set(get_args(union)) == {str, path}
    with pytest.raises(AttributeError):
        object.__getattribute__(path, "_value")


def test_a_first_hop_loads_no_room_that_writes(tmp_path: Path) -> None:
    graph = omnigraph.init(
        tmp_path / "g", "node P { n: String @key  age: I32? }\nedge Knows: P -> P"
    )
    graph.mutate(
        'query q() { insert P { n: "a" }  insert P { n: "b" }  '
        'insert Knows { from: "a", to: "b" } }'
    )
    command = [sys.executable, "-c", FIRST_HOP, str(tmp_path / "g"), *UNUSED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_a_module_that_the_disk_does_not_give_is_a_storage_failure_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = deferred("came_late", "VALUE")

    def refuse(module: str) -> None:
        raise OSError(24, "Too many open files", module)

    with monkeypatch.context() as starving:
        starving.setattr("omnigraph.deferred.import_module", refuse)
        with pytest.raises(omnigraph.StorageFailed, match="Too many open files"):
            _ = name.resolved
    (tmp_path / "came_late.py").write_text("VALUE = 7\n")
    assert name.resolved == 7
