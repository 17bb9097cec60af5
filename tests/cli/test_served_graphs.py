"""RC3: commands on a served graph print what they print on its files; servers and their tokens."""

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.server.serve_settings import Access
from tests.cli.program import run
from tests.remote.both import SharedServer, shared_server
from tests.server.world import ADD, AGE, NAMES, PEOPLE, SCHEMA, TOKENS, new_graph, served

VARYING = (
    (re.compile(r"\b0[0-9A-HJKMNP-TV-Z]{9,25}\b"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "<moment>"),
    (re.compile(r"\b1[0-9]{15}\b"), "<microseconds>"),
    (re.compile(r"(nodes|edges)/[0-9a-f]{16}"), "<folder>"),
    (re.compile(r'("?(?:cursor|resume_cursor|next_page_token)"?: )\S+'), r"\1<cursor>"),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    with shared_server(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings of the test's own."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("OMNIGRAPH_HOME", str(folder))
    for name in ("OMNIGRAPH_BEARER_TOKEN", "OMNIGRAPH_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return folder


def constant(text: str, *addresses: str) -> str:
    for address in addresses:
        text = text.replace(address, "<graph>")
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return text


def without_log(text: str) -> str:
    """What a command says, without the log of the server, which runs in this process."""
    return re.sub(r"^.* request method=.*\n", "", text, flags=re.M)


SESSION = [
    ("query", "-e", NAMES),
    ("query", "-e", NAMES, "--format", "csv"),
    ("query", "-e", NAMES, "--json"),
    ("query", "-e", NAMES, "--format", "jsonl"),
    ("query", "-e", NAMES, "--snapshot", "main~1"),
    ("query", "-e", "query q() { match { $p: Persn } return { $p } }"),
    ("mutate", "-e", ADD, "--params", '{"n": "Eve", "a": 3}', "-m", "she", "--meta", "a=b"),
    ("mutate", "-e", ADD, "--params", '{"n": "Fay", "a": 4}', "--json"),
    ("mutate", "-e", ADD, "--params", '{"n": "X", "a": 999}'),
    ("mutate", "-e", AGE, "--params", '{"n": "Ada", "a": 1}', "--if-commit", "01ABCDEF"),
    ("mutate", "-e", AGE, "--params", '{"n": "Ada", "a": 37}', "--retry", "2"),
    ("branch", "create", "review/x", "--from", "main~1"),
    ("branch", "create", "review/x"),
    ("branch", "list", "--json"),
    ("mutate", "-e", AGE, "--params", '{"n": "Ada", "a": 50}', "--branch", "review/x"),
    ("mutate", "-e", ADD, "--params", '{"n": "Gus", "a": 5}', "--branch", "review/x"),
    ("branch", "merge", "review/x", "--dry-run"),
    ("branch", "merge", "review/x", "--json"),
    ("branch", "merge", "review/x", "--resolve", "theirs", "--delete-branch"),
    ("branch", "delete", "nowhere", "--yes"),
    ("tag", "create", "v1"),
    ("tag", "list"),
    ("load", "--engine", "local", "--data", "more.jsonl", "--mode", "merge"),
    ("load", "--engine", "local", "--data", "more.jsonl", "--mode", "patch", "--json"),
    ("load", "--engine", "local", "--data", "bad.jsonl", "--mode", "merge"),
    (
        "load",
        "--engine",
        "local",
        "--data",
        "more.jsonl",
        "--mode",
        "merge",
        "--branch",
        "new",
        "--from",
        "main",
    ),
    ("load", "--engine", "local", "--data", "bad.csv", "--mode", "merge", "--node", "Person"),
    ("load", "--engine", "local", "--data", "more.csv", "--mode", "merge", "--node", "Person"),
    ("export", "--type", "Person"),
    ("export", "--type", "Person", "--format", "csv"),
    ("export", "--format", "csv"),
    ("query", "-e", NAMES, "--quiet"),
    ("diff", "main~2", "main"),
    ("commit", "list"),
    ("commit", "list", "--json"),
    ("commit", "list", "--verbose", "--limit", "2"),
    ("commit", "show", "main"),
    ("commit", "show", "main~1", "--json"),
    ("commit", "changes", "main", "--json"),
    ("commit", "changes", "main~1"),
    ("changes", "poll", "--start", "beginning", "--limit", "2"),
    ("changes", "poll", "--start", "now", "--json"),
    ("changes", "baseline", "--out", "base.jsonl"),
    ("snapshot",),
    ("snapshot", "--json"),
    ("schema", "show"),
    ("schema", "diff", "main", "new"),
    ("schema", "apply", "--schema", "next.pg"),
    ("schema", "apply", "--schema", "next.pg", "--json"),
    ("revert", "main~1", "--dry-run"),
    ("revert", "main~1"),
    ("restore", "v1", "--json"),
    ("restore", "v1"),
    ("tag", "delete", "v1", "--yes"),
    ("log", "Person", "Ada"),
    ("log", "Person", "Ada", "--json", "--limit", "2"),
    ("log", "Persn", "Ada"),
    ("blob", "get", "node", "Person", "Ada", "photo", "--offset", "6"),
    ("blob", "stat", "node", "Person", "Ada", "photo"),
    ("blob", "stat", "node", "Person", "Bob", "photo"),
    ("explain", "--query", "names.gq"),
]


def test_RC3_every_command_prints_the_same_over_http(
    shared: SharedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server runs in this process, which may have a Spark session that a command has not.
    monkeypatch.setattr("omnigraph.pipeline.load._session_is_active", lambda: False)
    (tmp_path / "more.jsonl").write_text('{"type":"Person","data":{"name":"Ada","age":41}}\n')
    (tmp_path / "bad.jsonl").write_text('{"type":"Person","data":{"name":"Ada","age":999}}\n')
    (tmp_path / "bad.csv").write_text("name,age\nHal,1\nIda,old\n")
    (tmp_path / "more.csv").write_text("name,age\nHal,1\n")
    (tmp_path / "names.gq").write_text(NAMES)
    (tmp_path / "next.pg").write_text(SCHEMA.replace("text: String", "text: String, kind: String?"))
    local = new_graph(tmp_path)
    (tmp_path / "copy").mkdir()
    name = shared.add(new_graph(tmp_path / "copy"))
    url = f"{shared.server.url}/graphs/{name}"
    for words in SESSION:
        here = run(*words, "--store", local, cwd=tmp_path)
        away = run(*words, "--server", shared.server.url, "--graph", name, cwd=tmp_path)
        if words[0] == "explain":
            away = run(*words, "--store", url, cwd=tmp_path)
        expected = constant(here.stdout, local)
        shown = constant(away.stdout, url)
        if words[0] == "blob":
            expected, shown = (re.sub("etag: .*", "", text) for text in (expected, shown))
        assert shown == expected, words
        assert away.returncode == here.returncode, (words, away.stderr)
        told = constant(without_log(away.stderr), url).replace("(served)", "(direct, local)")
        told = told.replace("the server engine", "the local engine")
        # A line of the server's log may come after its answer.
        assert told == constant(without_log(here.stderr), local), words


def test_a_served_graph_is_named_in_every_way(
    shared: SharedServer, tmp_path: Path, home: Path
) -> None:
    name = shared.add(new_graph(tmp_path))
    url = shared.server.url
    (home / "config.yaml").write_text(
        f"servers:\n  prod: {{url: {url}/}}\nprofiles:\n"
        f"  kb: {{server: prod, default_graph: {name}}}\n  bare: {{server: prod}}\n"
        f"defaults: {{server: prod, default_graph: {name}}}\noperator: {{actor: act-me}}\n"
    )
    for words in (
        (f"{url}/graphs/{name}",),
        (url, "--graph", name),
        ("--uri", f"{url}/graphs/{name}"),
        ("--server", "prod", "--graph", name),
        ("--server", "prod"),
        ("--server", f"{url}/graphs/{name}"),
        ("--profile", "kb"),
        ("--profile", "bare", "--graph", name),
        (),
    ):
        done = run("branch", "list", *words)
        assert (done.returncode, done.stdout[:5]) == (0, "main "), (words, done.stderr)
    done = run("mutate", "-e", ADD, "--params", '{"n": "Eve"}', "--json")
    assert json.loads(done.stdout)["actor_id"] is None
    for words, said in (
        (("branch", "list", "--server", "qa"), "server 'qa' not found"),
        (("branch", "list", "--server", "127.0.0.1:18432"), "write http://127.0.0.1:18432"),
        (("branch", "list", "--server", url, "--graph", "none"), "graph 'none' not found"),
        (("branch", "list", "--server", "http://127.0.0.1:9"), "no answer from the server"),
        (("branch", "delete", "x"), "throws data away"),
        (("branch", "create", "x", "--as", "act-you"), "carries the actor of its token"),
        (("mutate", "-e", ADD, "--params", '{"n":"x"}', "--as", "you"), "actor of its token"),
        (("load", "--data", "-", "--mode", "overwrite"), "throws data away"),
        (("optimize", f"{url}/graphs/{name}"), f"jobs start optimize {url}/graphs/{name} --wait"),
        (("cleanup", f"{url}/graphs/{name}", "--keep", "3"), "--set confirm=true --wait"),
        (("check", f"{url}/graphs/{name}"), "check does not work over HTTP"),
        (("backup", f"{url}/graphs/{name}", "x"), "backup does not work over HTTP"),
        (("init", f"{url}/graphs/new", "--schema", "x.pg"), "init does not work over HTTP"),
        (("recoveries",), "recoveries.list does not work over HTTP"),
        (("query", "find_person"), "stored query 'find_person' not found"),
        (("mutate", "add_person"), "stored query 'add_person' not found"),
    ):
        done = run(*words)
        assert done.returncode == 1, words
        assert said in done.stderr, words
        assert "Traceback" not in done.stderr
    assert run("query", "people").returncode == 1


def test_a_token_is_stored_used_and_forgotten(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(new_graph(tmp_path), access=Access.TRUSTED) as server:
        (home / "config.yaml").write_text(f"servers:\n  my-prod: {{url: {server.url}}}\n")
        denied = run("branch", "list", "--server", "my-prod")
        assert "does not know who asks (missing bearer token)" in denied.stderr
        done = run("login", "my-prod", stdin=f"{TOKENS['act-ada']}\n")
        path = home / "credentials"
        assert done.stdout == f"stored credential for 'my-prod' in {path}\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_text() == f"[my-prod]\ntoken = {TOKENS['act-ada']}\n\n"
        assert run("branch", "list", "--server", "my-prod").stdout.split()[0] == "main"
        # The same server by its URL.
        assert run("branch", "list", server.url).stdout.split()[0] == "main"
        shown = run("whoami", "--server", "my-prod")
        assert shown.stdout == f"{server.url}: act-ada (trusted)\n"
        made = run("branch", "create", "b", "--server", "my-prod", "--json")
        assert json.loads(made.stdout)["actor_id"] == "act-ada"
        listed = run("graphs", "list", "--server", "my-prod", "--json")
        assert json.loads(listed.stdout)["graphs"][0]["graph_id"] == "people"
        assert run("graphs", "list", "--server", "my-prod").stdout.startswith("people\t")
        # The environment comes first.
        monkeypatch.setenv("OMNIGRAPH_TOKEN_MY_PROD", TOKENS["act-bob"])
        who = run("whoami", "--server", "my-prod", "--json")
        assert json.loads(who.stdout) == {
            "server": server.url,
            "actor_id": "act-bob",
            "access": "trusted",
        }
        assert run("config", "--env").returncode == 0
        monkeypatch.delenv("OMNIGRAPH_TOKEN_MY_PROD")
        path.chmod(0o640)
        refused = run("branch", "list", "--server", "my-prod")
        assert f"others may read {path}; make it yours alone" in refused.stderr
        path.chmod(0o600)
        gone = run("logout", "my-prod", "--json")
        assert json.loads(gone.stdout) == {"server": "my-prod", "credentials_path": str(path)}
        assert run("logout", "my-prod").stdout == f"no credential for 'my-prod' in {path}\n"
        run("login", "my-prod", "--token", "again")
        forgot = f"removed the credential for 'my-prod' from {path}\n"
        assert run("logout", "my-prod").stdout == forgot
        assert run("branch", "list", "--server", "my-prod").returncode == 1
        monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", TOKENS["act-bob"])
        assert "act-bob" in run("whoami", "--server", server.url).stdout
        with og.connect(server.url) as graph:
            assert graph.branches.list() == ("b", "main")


def test_two_names_of_one_server_have_a_token_each(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(new_graph(tmp_path), access=Access.TRUSTED) as server:
        (home / "config.yaml").write_text(
            f"servers:\n  ada: {{url: {server.url}}}\n  bob: {{url: {server.url}/}}\n"
            "profiles:\n  work: {server: bob}\n"
        )
        for name in ("ada", "bob"):
            run("login", name, "--token", TOKENS[f"act-{name}"])
        for words, actor in (
            (("--server", "ada"), "act-ada"),
            (("--server", "bob"), "act-bob"),
            (("--profile", "work"), "act-bob"),
            (("--server", server.url), "act-ada"),
        ):
            assert f": {actor} (trusted)" in run("whoami", *words).stdout, words
            made = run("branch", "create", f"of-{actor}-{len(words[1])}", *words, "--json")
            assert json.loads(made.stdout)["actor_id"] == actor, words
        monkeypatch.setenv("OMNIGRAPH_TOKEN_BOB", "wrong")
        assert "invalid bearer token" in run("branch", "list", "--server", "bob").stderr
        assert run("branch", "list", "--server", "ada").returncode == 0
        run("logout", "ada")  # that of another name is not used in its place
        assert "missing bearer token" in run("branch", "list", "--server", "ada").stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("login", "a]b", "--token", "t"), "cannot name a server"),
        (
            ("login", "http://127.0.0.1:9/", "--token", "t"),
            "omnigraph login prod, or set OMNIGRAPH",
        ),
        (("login", "http://x", "--token", "t"), "write servers: { NAME: { url: http://x } }"),
        (("login", "prod", "--token", ""), "the token is empty"),
        (("login", "prod", "--token", "two words"), "more than one word"),
        (("alias", "nothing"), "alias 'nothing' not found"),
        (("alias", "who", "a", "b"), "takes 1 arguments"),
        (("alias", "who", "Ada"), "no answer from the server"),
    ],
)
def test_what_cannot_be_used_is_refused(words: tuple[str, ...], said: str, home: Path) -> None:
    (home / "config.yaml").write_text(
        "servers: {prod: {url: 'http://127.0.0.1:9'}}\naliases:\n"
        "  who: {server: prod, graph: kb, query: find, args: [name], params: {limit: 5}}\n"
    )
    done = run(*words)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (home / "credentials").exists()


def test_login_says_whether_the_server_is_known(home: Path) -> None:
    document = json.loads(run("login", "qa", "--token", "t", "--json").stdout)
    assert document == {
        "server": "qa",
        "credentials_path": str(home / "credentials"),
        "declared": False,
    }
    assert "names no server 'qa' yet" in run("login", "qa", "--token", "t").stderr
    for text in ("prod token", "[prod\ntoken = x", "\0"):
        (home / "credentials").write_text(text)
        assert run("login", "prod", "--token", "t").returncode == 1


def test_the_shell_works_on_a_served_graph(shared: SharedServer, tmp_path: Path) -> None:
    name = shared.add(new_graph(tmp_path))
    url = f"{shared.server.url}/graphs/{name}"
    lines = f"{NAMES}\n.branches\n.commits 1\n"
    done = run("shell", url, stdin=lines)
    assert done.returncode == 0, done.stderr
    assert "Ada" in done.stdout
    assert "* main" in done.stdout
    assert len(PEOPLE.splitlines()) == 3


@pytest.mark.parametrize("address", ["http://", "http://[", "https://[::1/graphs/x"])
def test_a_server_whose_address_is_none_is_told_so(address: str) -> None:
    for words in (
        ("graphs", "list", "--server", address),
        ("branch", "list", "--server", address),
        ("branch", "list", address),
    ):
        done = run(*words)
        assert done.returncode == 1
        assert f"'{address}' is no address of a server" in done.stderr
