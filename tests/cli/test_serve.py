"""`omnigraph serve` at a terminal: what stops it before it listens is one sentence.

What it does once it listens is tested in tests/server.
"""

from pathlib import Path

import pytest

from tests.cli.program import start


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("serve", "g.omni"), "there are no tokens"),
        (("serve", "nowhere.omni", "--unauthenticated"), "graph '"),
        (("serve", "g.omni", "--unauthenticated", "--policy", "x.cedar"), "policies come with"),
    ],
)
def test_a_server_that_cannot_start_says_why(
    prepared: Path, words: tuple[str, ...], sentence: str
) -> None:
    done = start(*words, cwd=prepared)
    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr
    assert done.stderr.startswith("error: ")
