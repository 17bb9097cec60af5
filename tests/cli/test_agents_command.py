"""`omnigraph mcp` says at its start what it cannot serve; its tools are tried in their own room."""

from pathlib import Path

from tests.cli.program import run


def test_what_cannot_be_served_to_an_agent_is_said_at_the_start(people: Path) -> None:
    missing = run("mcp", "none.omni", cwd=people)
    assert missing.returncode == 1
    assert "none.omni" in missing.stderr
    (people / "empty").mkdir()
    bare = run("mcp", "g.omni", "--queries", "empty", cwd=people)
    assert (bare.returncode, bare.stdout) == (1, "")
    assert "empty declares no query" in bare.stderr
    (people / "q.gq").write_text("query q() { match { $x: Nothing } return { $x } }")
    wrong = run("mcp", "g.omni", "--queries", "q.gq", cwd=people)
    assert wrong.returncode == 1
    assert "stored query 'q'" in wrong.stderr
