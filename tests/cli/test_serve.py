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
        (("serve", "g.omni", "--unauthenticated", "--policy", "none.yaml"), "cannot be read"),
        (
            ("serve", "g.omni", "--unauthenticated", "--policy", "p.yaml"),
            "there is a policy, and no",
        ),
        (("serve", "g.omni", "--policy", "p.yaml"), "there is a policy, and no token"),
        (("serve", "g.omni", "--tokens", "t.json", "--policy", "bad.yaml"), "version is 7"),
        (
            ("serve", "g.omni", "--tokens", "t.json", "--policy", "p.yaml", "--policy", "p.yaml"),
            "two",
        ),
        (
            ("serve", "g.omni", "--tokens", "t.json", "--policy", "p.yaml", "--trust-tokens"),
            "choose one",
        ),
    ],
)
def test_a_server_that_cannot_start_says_why(
    people: Path, words: tuple[str, ...], sentence: str
) -> None:
    (people / "p.yaml").write_text("version: 1")
    (people / "bad.yaml").write_text("version: 7")
    (people / "t.json").write_text('{"act-ada": "secret"}')
    done = start(*words, cwd=people)
    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr
    assert done.stderr.startswith("error: ")
