"""Where a command takes its graph, its actor and its looks from when nobody says."""

import json
import os
from pathlib import Path

import pytest

from omnigraph import environment
from omnigraph.cli.config import config
from tests.cli.program import document, first_words, lines, run

WHO = "query who() { match { $p: Person } return { $p.name as name } order { name } limit 1 }"
LONG = (
    "query long() { match { $p: Person } return { $p.name as name, $p.email as email } "
    "order { name } limit 1 }"
)


def write(home: Path, text: str) -> Path:
    home.mkdir(exist_ok=True)
    path = home / "config.yaml"
    path.write_text(text)
    return path


def test_the_default_store_is_used_when_no_graph_is_named(people: Path, no_settings: Path) -> None:
    write(no_settings, f"defaults: {{store: {people / 'g.omni'}, output: csv}}\n")
    assert lines("query", "-e", WHO) == ["name", "Ada"]
    assert lines("query", "-e", WHO, "--format", "kv")[1:] == ["row 1", "name: Ada"]
    assert first_words("branch", "list") == ["main"]


def test_a_profile_names_a_graph(
    people: Path, no_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        no_settings,
        f"profiles:\n  dev: {{store: {people / 'g.omni'}}}\n  far: {{server: prod}}\n"
        "  both: {server: prod, store: x}\nservers: {prod: {url: 'https://127.0.0.1:9'}}\n",
    )
    assert first_words("--profile", "dev", "branch", "list") == ["main"]
    assert first_words("branch", "list", "--profile=dev") == ["main"]
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "dev")
    assert first_words("branch", "list") == ["main"]
    listed = document("profile", "list")
    assert [(p["name"], p["valid"], p["active"]) for p in listed] == [
        ("dev", True, True),
        ("far", True, False),
        ("both", False, False),
    ]
    assert document("profile", "show")["name"] == "dev"
    assert document("profile", "show", "far")["endpoint"] == "https://127.0.0.1:9"
    assert lines("profile", "list")[2] == "  both: name exactly one of server, cluster and store"
    for name, words in (("far", "no answer from the server"), ("both", "exactly one of")):
        done = run("branch", "list", "--profile", name)
        assert done.returncode == 1
        assert words in done.stderr
    missing = run("branch", "list", "--profile", "nope")
    assert "profile 'nope' not found" in missing.stderr


def test_the_configured_actor_writes_unless_another_is_named(
    people: Path, no_settings: Path
) -> None:
    write(no_settings, "operator: {actor: act-conf}\n")
    add = ("mutate", "-e", 'query m() { insert Company { name: "Nu" } }', str(people / "g.omni"))
    assert document(*add)["actor_id"] == "act-conf"
    assert document(*add, "--as", "act-flag")["actor_id"] == "act-flag"


def test_the_looks_of_a_table_are_configured(people: Path, no_settings: Path) -> None:
    graph = str(people / "g.omni")
    email = '"ada@a-very-long-name.example"'
    add = f'query m() {{ update Person set {{ email: {email} }} where name = "Ada" }}'
    lines("mutate", "-e", add, graph)
    write(no_settings, "defaults: {table_max_column_width: 9}\n")
    assert lines("query", "-e", LONG, graph)[-1] == "Ada  | ada@a-ve…"
    write(no_settings, "defaults: {table_max_column_width: 14, table_cell_layout: wrap}\n")
    assert lines("query", "-e", LONG, graph)[-2:] == [
        "Ada  | ada@a-very-lon",
        "     | g-name.example",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "is not YAML"),
        ("- 1\n", "the file must hold keys and values"),
        ("defaults: {output: xml}\n", "not one of table, kv, csv, jsonl, json"),
        ("defaults: {server: a, store: b}\n", "both a server and a store"),
        ("defaults: {table_max_column_width: wide}\n", "a whole number above 0"),
        ("defaults: {retries: -1}\n", "defaults.retries must be a whole number from 0"),
        ("operator: {actor: 7}\n", "must be a text"),
        ("servers: {prod: {}}\n", "servers.prod has no url"),
    ],
)
def test_settings_that_cannot_be_used_name_the_file(
    text: str, message: str, no_settings: Path
) -> None:
    path = write(no_settings, text)
    done = run("branch", "list")
    assert done.returncode == 1
    assert message in done.stderr
    assert str(path) in done.stderr


def test_the_configured_retries_hold_where_none_are_given(people: Path, no_settings: Path) -> None:
    write(no_settings, "defaults: {retries: 2}\n")
    assert document("config")["retries"] == 2
    source = 'query set() { update Person set { age: 5 } where name = "Ada" }'
    call = ("mutate", "-e", source, str(people / "g.omni"))
    head = document(*call)["commit"]["graph_commit_id"]
    # A condition takes none, so the setting does not stand in its way.
    assert document(*call, "--if-commit", head)["affected_nodes"] == 1


def test_an_unknown_key_is_told_and_passed_over(people: Path, no_settings: Path) -> None:
    write(no_settings, f"colour: red\ndefaults: {{store: {people / 'g.omni'}}}\n")
    done = run("branch", "list")
    assert (done.returncode, done.stdout.split()[0]) == (0, "main")
    assert "unknown key 'colour'" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("branch", "list"), "name a graph"),
        (("branch", "list", "a.omni", "--store", "b.omni"), "mutually exclusive"),
        (("branch", "list", "a.omni", "--profile", "p"), "mutually exclusive"),
        (("branch", "list", "a.omni", "--server", "s"), "mutually exclusive"),
        (("branch", "list", "--server", "s", "--profile", "p"), "mutually exclusive"),
        (("branch", "list", "a.omni", "--graph", "g"), "--graph names a graph of a server"),
        (("branch", "list", "http://host", "--server", "s"), "mutually exclusive"),
        (("graphs", "list"), "name a server: pass --server NAME|URL"),
        (("whoami", "--graph", "g"), "does not take --graph"),
        (("branch", "list", "a.omni", "--cluster", "c"), "does not take --cluster"),
        (("init", "--schema", "x.pg", "a.omni", "--server", "s"), "does not take --server"),
        (("init", "--schema", "x.pg", "a.omni", "--store", "s"), "--store"),
        (("branch", "list", "--server", "s", "--server", "t"), "given twice"),
        (("branch", "list", "--profile"), "needs a value"),
        (("commit", "list", "a.omni", "--filter", "name=x"), "actor=NAME"),
        (
            ("commit", "list", "a.omni", "--graph", "--json"),
            "none of --json, --verbose and --filter",
        ),
    ],
)
def test_a_graph_is_named_once_and_flags_are_never_ignored(
    words: tuple[str, ...], message: str
) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


def test_a_server_that_no_setting_names_is_not_guessed() -> None:
    done = run("branch", "list", "--server", "prod", "--graph", "kb")
    assert done.returncode == 1
    assert "server 'prod' not found" in done.stderr


def test_a_cluster_that_was_not_applied_says_so(no_settings: Path, tmp_path: Path) -> None:
    write(no_settings, f"clusters: {{c: {{root: {tmp_path}}}}}\nprofiles: {{p: {{cluster: c}}}}\n")
    for words in (("optimize", "--cluster", "c"), ("branch", "list", "--profile", "p")):
        done = run(*words)
        assert done.returncode == 1
        assert "cluster_state_missing" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("aliases: {a: {query: q}}", "aliases.a needs a server and a query"),
        ("aliases: {a: {server: s, query: q, args: x}}", "must be a list of names"),
        ("aliases: {a: {server: s, query: q, format: xml}}", "format in aliases.a is 'xml'"),
        ("servers: {s: {url: host}}\ndefaults: {server: s}", "the url of server 's' is 'host'"),
    ],
)
def test_servers_and_aliases_that_cannot_be_used_are_refused(
    text: str, message: str, no_settings: Path
) -> None:
    write(no_settings, text)
    done = run("branch", "list")
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    "words", [("load", "--data", "x", "--mode", "overwrite"), ("branch", "delete", "b")]
)
def test_data_far_away_is_not_thrown_away_unasked(words: tuple[str, ...]) -> None:
    done = run(*words, "--store", "s3://bucket/graph")
    assert done.returncode == 1
    assert "throws data away; pass --yes if that is meant" in done.stderr


def test_global_flags_stand_before_or_after_the_command(people: Path) -> None:
    graph = str(people / "g.omni")
    source = "query q() { match { $c: Company } return { count($c) as n } }"
    before = run("--store", graph, "--debug", "query", "-e", source, "--json")
    after = run("query", "-e", source, "--json", "--store", graph, "--debug")
    assert json.loads(before.stdout) == json.loads(after.stdout)
    assert before.stderr == ""


def test_debug_shows_where_a_failure_came_from(people: Path) -> None:
    words = ("query", "-e", "query q() {", str(people / "g.omni"))
    plain, debug = run(*words), run(*words, "--debug")
    assert (plain.returncode, debug.returncode) == (1, 1)
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr
    assert debug.stderr.endswith(plain.stderr)


def test_a_fault_of_ours_is_one_sentence_too(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("boom\nsecond line")

    monkeypatch.setattr("omnigraph.graph.door.Graph.snapshot", broken)
    done = run("snapshot", str(people / "g.omni"))
    assert done.returncode == 1
    assert done.stderr == (
        "error: the program failed unexpectedly (RuntimeError: boom); "
        "run it again with --debug and report it\n"
    )


# Environment variables


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize("value", ["abc", "0", "-1"])
def test_a_load_names_the_variable_it_cannot_use_and_does_nothing(
    people: Path, monkeypatch: pytest.MonkeyPatch, mode: str, value: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOAD_CONCURRENCY", value)
    load = ("load", "g.omni", "--data", "people.jsonl", "--mode", mode)
    done = run(*load, "--branch", "new", "--from", "main", cwd=people)
    assert done.returncode == 1
    assert f"error: OMNIGRAPH_LOAD_CONCURRENCY is '{value}'; set it to" in done.stderr
    assert first_words("branch", "list", "g.omni", cwd=people) == ["main"]


def test_a_frontier_that_is_no_number_is_not_passed_over(
    people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER", "many")
    done = run("query", "g.omni", "-e", WHO, cwd=people)
    assert "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER is 'many'" in done.stderr


def test_a_size_that_is_no_number_is_named(people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCAL_BYTES_MAX", "64M")
    done = run("load", "g.omni", "--data", "people.jsonl", "--mode", "merge", cwd=people)
    assert "error: OMNIGRAPH_LOCAL_BYTES_MAX is '64M'" in done.stderr


def test_config_env_lists_every_variable_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "3")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("OMNIGRAPH_LOAD_CONCURENCY", "3")
    listed = document("config", "--env")
    by_name = {variable["name"]: variable for variable in listed["variables"]}
    assert set(by_name) == {variable.name for variable in environment.TABLE}
    assert by_name["OMNIGRAPH_MAINTENANCE_CONCURRENCY"] == {
        "name": "OMNIGRAPH_MAINTENANCE_CONCURRENCY",
        "value": "3",
        "default": "8",
        "allowed": "from 1 to 1024",
        "use": "tasks of optimize and cleanup at once in one process",
        "error": None,
    }
    assert by_name["OMNIGRAPH_LOAD_CONCURRENCY"]["default"] == "8"
    assert by_name["OMNIGRAPH_LOAD_CONCURRENCY"]["value"] is None
    assert by_name["OPENAI_API_KEY"]["value"] == "(set)"
    assert listed["unknown"] == ["OMNIGRAPH_LOAD_CONCURENCY"]
    text = lines("config", "--env")
    assert "sk-very-secret" not in "\n".join(text)
    assert any(line.startswith("OMNIGRAPH_MAINTENANCE_CONCURRENCY=3: ") for line in text)


def test_config_env_shows_a_value_that_cannot_be_used_and_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "fast")
    done = run("config", "--env")
    assert done.returncode == 1
    assert "  error: OMNIGRAPH_TRAVERSAL_MODE is 'fast'; use auto, indexed, csr" in done.stdout


def test_config_shows_the_settings(no_settings: Path) -> None:
    path = write(no_settings, "operator: {actor: act-ada}\ndefaults: {store: x.omni}\n")
    shown = document("config")
    assert (shown["path"], shown["actor"], shown["store"]) == (str(path), "act-ada", "x.omni")
    assert f"path: {path}" in lines("config")


def test_settings_that_change_within_a_tick_of_the_clock_are_read_again(no_settings: Path) -> None:
    actors = []
    for name in ("act-one", "act-three"):
        path = write(no_settings, f"operator: {{actor: {name}}}\n")
        os.utime(path, ns=(1, 1))
        actors.append(config().actor)
    assert actors == ["act-one", "act-three"]
