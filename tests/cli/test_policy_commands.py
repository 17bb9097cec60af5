"""`omnigraph policy`, `omnigraph token`, and `--policy` on commands that work on a graph."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph.server.bearer import Tokens, tokens_of_file
from tests.cli.program import run, start

POLICY = """
version: 1
groups:
  editors: [act-ada, act-bob]
  admins:  [act-root]
protected_branches: [main, 'release/*']
rules:
  - { id: read, allow: { actors: { group: editors }, actions: [read, export] } }
  - id: write-drafts
    allow: { actors: { group: editors }, actions: [change], branch_scope: unprotected }
  - id: fork
    allow:
      { actors: { group: editors }, actions: [branch_create], target_branch_scope: unprotected }
  - id: admins
    allow:
      { actors: { group: admins }, actions: [branch_merge, branch_delete, schema_apply, admin] }
"""
ADD = 'query add() { insert Company { name: "New" } }'
ASK = "query names() { match { $c: Company } return { $c.name } }"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.policy.yaml").write_text(POLICY)
    return tmp_path


def test_a_policy_is_validated(folder: Path) -> None:
    for words in (("base.policy.yaml",), ("--policy", "base.policy.yaml")):
        done = run("policy", "validate", *words, cwd=folder)
        assert (done.returncode, done.stdout) == (0, "policy valid: bundle 'base' [3 actors]\n")
    shown = json.loads(run("policy", "validate", "base.policy.yaml", "--json", cwd=folder).stdout)
    assert shown == {
        "ok": True,
        "bundle": "base",
        "kind": "graph",
        "actors": 3,
        "groups": 2,
        "rules": 4,
        "protected_branches": ["main", "release/*"],
    }
    (folder / "bad.yaml").write_text(POLICY.replace("change", "write"))
    done = run("policy", "validate", "bad.yaml", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert "'write' is no action" in done.stderr
    assert run("policy", "validate", cwd=folder).returncode == 2


def test_a_policy_is_tested(folder: Path) -> None:
    (folder / "cases.yaml").write_text("""
version: 1
cases:
  - { id: bob-cannot-write-main, actor: act-bob, action: change, branch: main, expect: deny }
  - { id: root-merges, actor: act-root, action: branch_merge, branch: draft,
      target_branch: main, expect: allow }
""")
    words = ("policy", "test", "base.policy.yaml", "--tests")
    done = run(*words, "cases.yaml", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "policy tests passed: 2 cases\n")
    (folder / "wrong.yaml").write_text("""
version: 1
cases: [{ id: bob-writes, actor: act-bob, action: change, branch: main, expect: allow }]
""")
    done = run(*words, "wrong.yaml", cwd=folder)
    assert done.returncode == 1
    assert "bob-writes: expected Allow but got deny" in done.stdout
    done = run(*words, "wrong.yaml", "--json", cwd=folder)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "ok": False,
        "cases": 1,
        "failures": ["bob-writes: expected Allow but got deny"],
    }
    assert run(*words, "missing.yaml", cwd=folder).returncode == 1


@pytest.mark.parametrize("spelling", ["branch-merge", "branch_merge"])
def test_a_decision_is_explained(folder: Path, spelling: str) -> None:
    words = ("policy", "explain", "base.policy.yaml", "--actor", "act-root", "--action", spelling)
    branches = ("--branch", "draft", "--target-branch", "main")
    done = run(*words, *branches, cwd=folder)
    assert done.stdout.splitlines() == [
        "decision: allow",
        "actor: act-root",
        "action: branch_merge",
        "branch: draft",
        "target_branch: main",
        "matched_rule: admins",
    ]
    done = run(*words[:4], "act-bob", *words[5:], *branches, "--json", cwd=folder)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {
        "decision": "deny",
        "actor": "act-bob",
        "action": "branch_merge",
        "branch": "draft",
        "target_branch": "main",
        "message": "policy denied action 'branch_merge' on branch 'draft' targeting branch 'main' "
        "for actor 'act-bob'",
    }
    done = run(*words[:6], "nonsense", cwd=folder)
    assert done.returncode == 1
    assert "is no action" in done.stderr


def test_a_policy_is_asked_by_the_commands_that_work_on_a_graph(people: Path) -> None:
    (people / "p.yaml").write_text(POLICY)

    def asked(*words: str) -> tuple[int, str, str]:
        done = run(*words, "--policy", "p.yaml", cwd=people)
        return done.returncode, done.stdout, done.stderr

    denied = "policy denied action"
    store = ("--store", "g.omni")
    status, _, errors = asked("mutate", "-e", ADD, *store, "--as", "act-ada")
    assert status == 1
    assert f"{denied} 'change' on branch 'main' for actor 'act-ada'" in errors
    assert "no actor is given" in asked("mutate", "-e", ADD, *store)[2]
    assert "unknown actor 'eve'" in asked("query", "-e", ASK, *store, "--as", "eve")[2]
    assert asked("query", "-e", ASK, *store, "--as", "act-ada")[0] == 0
    assert asked("branch", "create", "draft", "g.omni", "--as", "act-ada")[0] == 0
    assert asked("branch", "create", "release/1", "g.omni", "--as", "act-ada")[0] == 1
    draft = ("--branch", "draft")
    assert asked("mutate", "-e", ADD, *store, *draft, "--as", "act-bob")[0] == 0
    assert asked("branch", "list", "g.omni", "--as=act-bob")[0] == 0
    assert denied in asked("branch", "merge", "draft", "g.omni", "--as", "act-bob")[2]
    assert denied in asked("branch", "delete", "draft", "g.omni", "--as", "act-bob")[2]
    assert denied in asked("cleanup", "g.omni", "--keep", "1", "--as", "act-bob")[2]
    assert (
        denied in asked("schema", "apply", "--schema", "schema.pg", "g.omni", "--as", "act-bob")[2]
    )
    load = ("load", "g.omni", "--data", "people.jsonl", "--mode", "merge")
    assert denied in asked(*load, "--as", "act-bob")[2]
    assert asked("branch", "merge", "draft", "g.omni", "--as", "act-root")[0] == 0
    assert "reserved" in asked("mutate", "-e", ADD, *store, *draft, "--as", "omnigraph:recovery")[2]
    done = run("--policy", "p.yaml", "--as", "act-ada", "query", "-e", ASK, *store, cwd=people)
    assert done.returncode == 0
    assert "New" in done.stdout


def test_the_actor_of_the_settings_is_asked_about(people: Path, no_settings: Path) -> None:
    (people / "p.yaml").write_text(POLICY)
    no_settings.mkdir(exist_ok=True)
    (no_settings / "config.yaml").write_text("operator: { actor: act-bob }\n")
    words = ("query", "-e", ASK, "--store", "g.omni", "--policy", "p.yaml")
    assert run(*words, cwd=people).returncode == 0
    (no_settings / "config.yaml").write_text("operator: { actor: act-eve }\n")
    assert "unknown actor 'act-eve'" in run(*words, cwd=people).stderr


def test_a_policy_is_refused_where_it_would_be_ignored(people: Path) -> None:
    (people / "p.yaml").write_text(POLICY)
    done = run("check", "g.omni", "--policy", "p.yaml", cwd=people)
    assert done.returncode == 2
    words = ("branch", "list", "--server", "http://127.0.0.1:1", "--policy", "p.yaml")
    done = run(*words, cwd=people)
    assert "a server asks its own policy" in done.stderr


def test_a_token_is_shown_once_and_kept_as_a_digest(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    words = ("token", "create", "act-ada", "--tokens", str(file))
    first = run(*words).stdout.strip()
    assert len(first) > 40
    assert first not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shown = json.loads(run(*words, "--json").stdout)
    assert shown["actor_id"] == "act-ada"
    assert shown["token"] != first
    known = Tokens(tokens_of_file(str(file)))
    assert known.actor(f"Bearer {first}") == known.actor(f"Bearer {shown['token']}") == "act-ada"
    run("token", "create", "act-bob", "--tokens", str(file))
    assert run("token", "list", "--tokens", str(file)).stdout == "act-ada\t2\nact-bob\t1\n"

    done = run("token", "revoke", "act-ada", "--keep-newest", "--tokens", str(file))
    assert done.stdout == "revoked 1 token(s) of 'act-ada'\n"
    left = tokens_of_file(str(file))
    assert sorted(left.values()) == ["act-ada", "act-bob"]
    assert Tokens(left).actor(f"Bearer {shown['token']}") == "act-ada"
    assert run("token", "revoke", "act-ada", "--tokens", str(file)).returncode == 0
    before = file.read_text()
    assert "last token" in run("token", "revoke", "act-bob", "--tokens", str(file)).stderr
    assert "no token of it" in run("token", "revoke", "act-cy", "--tokens", str(file)).stderr
    assert file.read_text() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["tokens.json"]


def test_a_token_without_a_file_says_what_to_add() -> None:
    done = run("token", "create", "act-ada")
    assert '"act-ada": "sha256:' in done.stderr
    assert done.stdout.startswith("og_")
    for actor in ("omnigraph:recovery", " ", "act-ada "):
        assert run("token", "create", actor).returncode == 1


def test_two_commands_at_once_lose_no_token(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    file.write_text('{"act-0": "x"}')
    with ThreadPoolExecutor(2) as pool:
        done = pool.map(
            lambda n: start("token", "create", f"act-{n}", "--tokens", str(file)).returncode,
            range(1, 3),
        )
        assert list(done) == [0, 0]
    assert sorted(tokens_of_file(str(file)).values()) == [f"act-{n}" for n in range(3)]
