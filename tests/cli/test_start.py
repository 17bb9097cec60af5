"""What a command loads: only what it needs, watched in a process of its own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import PEOPLE, SCHEMA, lines

# Runs the program, then tells on the last line of standard error which engines were loaded.
TOLD = """
import atexit, json, sys
ENGINES = ("pandas", "datafusion", "pyspark", "prompt_toolkit", "rich")
atexit.register(lambda: sys.stderr.write(json.dumps([e for e in ENGINES if e in sys.modules])))
sys.argv[0] = "omnigraph"
from omnigraph.cli.app import main
main()
"""

POINT = "query one($n: String) { match { $p: Person { name: $n } } return { $p.name } }"
OLDER = 'query older() { update Person set { age: 40 } where name = "Ada" }'
MEET = 'query meet() { insert Knows { from: "Ada", to: "Cy" } }'


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = tmp_path_factory.mktemp("start") / "g.omni"
    lines("init", "--schema", SCHEMA, str(graph))
    lines("load", str(graph), "--data", str(PEOPLE / "people.jsonl"), "--mode", "merge")
    return graph


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (("query", "-e", POINT, "--params", '{"n":"Ada"}'), []),
        (("mutate", "-e", OLDER), []),
        (("mutate", "-e", MEET), None),
        (("load", "--data", str(PEOPLE / "people.jsonl"), "--mode", "overwrite"), None),
        (("branch", "list"), []),
        (("commit", "list"), []),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_command_loads_no_engine_it_does_not_need(
    words: tuple[str, ...], loaded: list[str] | None, prepared: Path, tmp_path: Path
) -> None:
    graph = shutil.copytree(prepared, tmp_path / "g.omni")
    done = subprocess.run(
        [sys.executable, "-c", TOLD, *words, "--store", str(graph)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stderr.splitlines()[-1])
    assert "pandas" not in found
    assert "pyspark" not in found
    if loaded is not None:
        assert found == loaded
