"""A system without POSIX locks, as Windows is: the package is imported, a graph is refused."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "fcntl":
            raise ModuleNotFoundError("No module named 'fcntl'", name="fcntl")
sys.modules.pop("fcntl", None)
sys.meta_path.insert(0, Missing())
"""


@pytest.mark.parametrize(
    "use",
    [
        "import omnigraph as og\n"
        "try:\n    og.open('x.omni')\nexcept og.NotInstalled as cause:\n    print(cause)",
        "sys.argv = ['omnigraph', 'query', 'x.omni', '-e', 'query q() { }']\n"
        "sys.stderr = sys.stdout\nfrom omnigraph.cli.app import main\nmain()",
    ],
    ids=["library", "command"],
)
def test_what_needs_posix_says_so(use: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{WITHOUT}\n{use}"], capture_output=True, text=True, check=False
    )
    assert "the lock of POSIX files was not found (import fcntl)" in done.stdout, done.stderr
    assert "Windows is not supported" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
