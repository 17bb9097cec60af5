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


def test_the_environment_names_the_cluster_and_the_address(
    people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CLUSTER", str(people / "nowhere"))
    assert "nowhere" in start("serve", "--unauthenticated", cwd=people).stderr
    named = start("serve", "gone.omni", "--unauthenticated", cwd=people).stderr
    assert "gone.omni" in named
    assert "nowhere" not in named
    monkeypatch.setenv("OMNIGRAPH_BIND", "no-port")
    monkeypatch.setenv("OMNIGRAPH_LISTEN_ADDR", "127.0.0.1:0")
    assert "no-port" in start("serve", "g.omni", "--unauthenticated", cwd=people).stderr
