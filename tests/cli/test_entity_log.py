"""`omnigraph log`: the commits that changed one entity."""

from pathlib import Path

from tests.cli.program import document, lines, run

UPDATE = 'query u() { update Person set { role: "guest" } where name = "Ada" }'


def test_SV12_log_shows_each_commit_and_what_it_did(people: Path) -> None:
    run("mutate", "g.omni", "-e", UPDATE, "-m", "a visit", cwd=people)
    shown = lines("log", "Person", "Ada", "g.omni", cwd=people)
    assert "a visit" in shown[0]
    assert shown[1] == "  ~ node Person Ada"
    assert any(line.startswith("      role: ") and "-> guest" in line for line in shown)
    told = document("log", "Person", "Ada", "g.omni", "--limit", "1", cwd=people)
    (revision,) = told["revisions"]
    assert revision["change"]["op"] == "update"
    assert revision["change"]["after"]["properties"]["role"] == "guest"
    assert len(document("log", "Person", "Ada", "g.omni", cwd=people)["revisions"]) == 2


def test_SV12_log_of_what_never_was_is_refused(people: Path) -> None:
    done = run("log", "Person", "Zed", "g.omni", cwd=people)
    assert done.returncode == 1
    assert "Person 'Zed' not found" in done.stderr
    done = run("log", "Nothing", "Ada", "g.omni", cwd=people)
    assert done.returncode == 1
    assert "unknown type 'Nothing'" in done.stderr
