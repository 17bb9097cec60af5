"""The wire of writes: mutations, conditional mutations, loads, branches, merges and schemas."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from omnigraph.server import wire
from tests.server.world import (
    ADD,
    AGE,
    NAMES,
    NDJSON,
    PEOPLE,
    SCHEMA,
    Served,
    checked,
    new_graph,
    refused,
    served,
)

IF = "Omnigraph-If-Graph-Commit"


def branched(server: Served, name: str) -> str:
    server.graph.branches.create(name)
    return name


def test_a_mutation_is_one_commit_and_answers_it(server: Served) -> None:
    branch = branched(server, "mutate")
    body = {"query": ADD, "params": {"n": "Cy", "a": 7}, "branch": branch}
    document = server.answer("/mutate", body, wire.ChangeOutput)
    assert document["affected_nodes"] == 1
    assert document["affected_edges"] == 0
    assert document["actor_id"] is None
    head = server.graph.commits.list(branch)[0]
    assert document["commit"]["graph_commit_id"] == head.id
    assert document["commit"]["graph_branch"] == branch
    assert server.names(branch) == ["Ada", "Bob", "Cy"]


def test_a_mutation_that_changes_nothing_has_no_commit(server: Served) -> None:
    body = {"query": AGE, "params": {"n": "Nobody", "a": 1}}
    assert server.answer("/mutate", body, wire.ChangeOutput)["commit"] is None


def test_what_a_match_finds_is_written(server: Served) -> None:
    branch = branched(server, "matched")
    older = "query q($n: I32) { update $p set { age: age + $n } match { $p: Person  $p knows $f } }"
    body = {"query": older, "params": {"n": 4}, "branch": branch}
    assert server.answer("/mutate", body, wire.ChangeOutput)["affected_nodes"] == 1
    ages = "query q() { match { $p: Person } return { $p.age as a } order { a } }"
    rows = server.graph.query(ages, branch=branch).rows
    assert [row["a"] for row in rows] == [25, 40]
    late = (
        'query q() { insert Note { text: "x" } insert Note { text: $n.text } match { $n: Note } }'
    )
    answer = server.post("/mutate", {"query": late, "branch": branch})
    assert answer.status_code == 400
    assert "D3" in answer.json()["error"]


def test_mutations_at_once_share_commits_where_the_server_says_so(tmp_path: Path) -> None:
    with served(new_graph(tmp_path), coalesce_ms=300) as server:
        before = len(server.graph.commits.list())

        def add(name: str) -> httpx.Response:
            return server.post("/mutate", {"query": ADD, "params": {"n": name, "a": 1}})

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(add, [f"p{number}" for number in range(8)]))
        documents = [checked(answer, wire.ChangeOutput) for answer in answers]
        assert [document["affected_nodes"] for document in documents] == [1] * 8
        commits = {document["commit"]["graph_commit_id"] for document in documents}
        assert len(commits) == len(server.graph.commits.list()) - before < 8
        assert {f"p{number}" for number in range(8)} < set(server.names())
        head = server.graph.commits.list()[0].id
        alone = server.post(
            "/mutate/if-graph-commit", {"query": ADD, "params": {"n": "q"}}, headers={IF: head}
        )
        assert checked(alone, wire.ChangeOutput)["affected_nodes"] == 1


def test_older_spellings_of_a_mutation_work(server: Served) -> None:
    branch = branched(server, "older")
    body = {"query_source": ADD, "query_name": "add", "params": {"n": "Di"}, "branch": branch}
    response = server.post("/change", body)
    assert checked(response, wire.ChangeOutput)["query_name"] == "add"
    assert response.headers["link"] == '<mutate>; rel="successor-version"'
    both = {"query": ADD, "query_source": ADD}
    refused(server.post("/mutate", both), 400, "bad_request")
    refused(server.post("/mutate", {}), 400, "bad_request")


def test_a_conditional_mutation_needs_its_head(server: Served) -> None:
    branch = branched(server, "conditional")
    head = server.graph.snapshot(branch).commit_id
    path, body = "/mutate/if-graph-commit", {"query": ADD, "params": {"n": "E"}, "branch": branch}
    done = server.answer(path, body, wire.ChangeOutput, headers={IF: head})
    lost = refused(server.post(path, body, headers={IF: head}), 412, None, "precondition_failure")
    now = done["commit"]["graph_commit_id"]
    assert lost["precondition_failure"] == {"expected": head, "actual": now}


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ([], "is required on this conditional mutation route"),
        ([(IF, "")], "must name a graph commit id"),
        ([(IF, "A"), (IF, "B")], "must be sent exactly once"),
        ([(IF, '"A"')], "must contain one raw graph commit id, not entity-tag syntax"),
        ([(IF, "W/A")], "must contain one raw graph commit id, not entity-tag syntax"),
    ],
)
def test_the_conditional_header_is_exact(
    headers: list[tuple[str, str]], error: str, server: Served
) -> None:
    for path in ("/mutate/if-graph-commit", "/queries/x/if-graph-commit"):
        response = server.post(path, {"query": ADD}, headers=headers)
        assert error in refused(response, 400, "bad_request")["error"]


def test_the_conditional_header_is_refused_elsewhere(server: Served) -> None:
    for path in ("/mutate", "/change"):
        refused(server.post(path, {"query": ADD}, headers={IF: "A"}), 400, "bad_request")
    named = server.post("/queries/x/if-graph-commit", {}, headers={IF: "A"})
    assert refused(named, 404, "not_found")["error"] == "stored query not found"


def test_a_rule_that_is_broken_is_400_and_writes_nothing(server: Served) -> None:
    before = server.graph.snapshot().commit_id
    body = {"query": ADD, "params": {"n": "Old", "a": 151}}
    assert "age" in refused(server.post("/mutate", body), 400, "bad_request")["error"]
    read = refused(server.post("/mutate", {"query": NAMES}), 400, "bad_request")
    assert "'names' is a read" in read["error"]
    assert server.graph.snapshot().commit_id == before


def test_an_update_that_lost_a_race_says_which_table_moved(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = branched(server, "race")
    store = server.graph._store
    commit = store.commit

    def raced(*args: object, **options: object) -> object:
        monkeypatch.setattr(store, "commit", commit)
        server.graph.mutate(AGE, {"n": "Bob", "a": 3}, branch=branch)
        return commit(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "commit", raced)
    members = ("manifest_conflict", "read_set_conflict", "published_dataset_version_conflict")
    body = {"query": AGE, "params": {"n": "Ada", "a": 1}, "branch": branch}
    document = refused(server.post("/mutate", body), 409, "conflict", *members)
    moved = document["manifest_conflict"]
    assert moved["table_key"] == "node:Person"
    assert moved["actual"] == moved["expected"] + 1
    assert document["read_set_conflict"]["expected"] == str(moved["expected"])


# ---- loads


def test_a_load_counts_what_it_took(server: Served) -> None:
    body = {"data": PEOPLE, "branch": "loaded", "from": "main", "mode": "merge"}
    document = server.answer("/load", body, wire.IngestOutput)
    assert document["uri"] == server.graph.uri
    assert document["base_branch"] == "main"
    assert document["branch_created"] is True
    assert document["nodes"] == [{"name": "Person", "entities_loaded": 2}]
    assert document["edges"] == [{"name": "Knows", "entities_loaded": 1}]
    assert document["total_entities"] == 3
    again = server.answer("/load", {"data": PEOPLE, "branch": "loaded"}, wire.IngestOutput)
    assert again["base_branch"] is None
    assert again["mode"] == "merge"


def test_a_load_into_a_branch_that_is_not_there_is_404(server: Served) -> None:
    refusal = refused(server.post("/load", {"data": PEOPLE, "branch": "no"}), 404, "not_found")
    assert refusal["error"] == ("branch 'no' not found; pass `from` to create it")
    strict = {"data": PEOPLE, "mode": "append"}
    document = refused(server.post("/load", strict), 409, "conflict", "key_conflict")
    assert document["key_conflict"]["type_name"] == "Person"
    refused(server.post("/load", {"data": PEOPLE, "mode": "x"}), 400, "bad_request")
    refused(server.post("/load", {"data": "{"}), 400, "bad_request")


def test_a_load_of_a_text_forgives_as_that_of_0_10_does(server: Served) -> None:
    text = '{"type": "Person",\n "data": {"name": "Old", "age": "x", "nope": 1}}'
    made = {"data": text, "branch": "forgiving", "from": "main"}
    assert server.answer("/load", made, wire.IngestOutput)["total_entities"] == 1
    asked = {"query": 'query q() { match { $p: Person { name: "Old" } } return { $p.age } }'}
    rows = server.answer("/query", asked | {"branch": "forgiving"}, wire.ReadOutput)["rows"]
    assert rows == [{"p.age": None}]
    patch = {"data": text, "branch": "forgiving", "mode": "patch"}
    assert "line 1" in refused(server.post("/load", patch), 400, "bad_request")["error"]


@pytest.mark.parametrize(
    "line",
    [
        '{"type": "Note", "data": {"text": "\\ud800"}}',
        '{"type": "\\udfff", "data": {}}',
        '{"type": "Person", "data": {"name": "x", "\\ud800": 1}}',
        '{"edge": "Knows", "from": "\\ud800", "to": "Ada"}',
    ],
)
def test_half_a_surrogate_pair_is_told_of_in_json(server: Served, line: str) -> None:
    wrong = server.client.post(f"{server.base}/load/ndjson", content=line, headers=NDJSON)
    assert "line 1: " in refused(wrong, 400, "bad_request")["error"]


def test_the_older_ingest_makes_the_branch_from_main(server: Served) -> None:
    response = server.post("/ingest", {"data": PEOPLE, "branch": "ingested"})
    document = checked(response, wire.IngestOutput)
    assert document["base_branch"] == "main"
    assert document["branch_created"] is True
    assert response.headers["deprecation"] == "true"


def test_ndjson_is_the_body_itself(server: Served) -> None:
    path = f"{server.base}/load/ndjson"
    where = {"branch": "lines", "from": "main", "mode": "overwrite"}
    response = server.client.post(path, content=PEOPLE.encode(), headers=NDJSON, params=where)
    document = checked(response, wire.GraphBatchLoadOutput)
    assert document["total_entities"] == 3
    typed = {"Content-Type": "application/x-ndjson; charset=utf-8"}
    assert server.client.post(path, content=PEOPLE, headers=typed).status_code == 200
    refused(server.client.post(path, content=PEOPLE, headers={}), 415, "bad_request")
    wrong = server.client.post(path, content=b'{"type":"X"}\n', headers=NDJSON)
    assert "line 1" in refused(wrong, 400, "bad_request")["error"]


def test_SV11_a_large_body_is_spooled_and_leaves_no_file(tmp_path: Path) -> None:
    lines = "".join(
        f'{{"type":"Note","data":{{"text":"{"n" * 1000}{number}"}}}}\n' for number in range(9000)
    )
    spool = tmp_path / "run"
    spool.mkdir()
    with served(new_graph(tmp_path), run_folder=str(spool)) as server:
        response = server.client.post(
            f"{server.base}/load/ndjson",
            content=lines.encode(),
            headers=NDJSON,
            params={"mode": "append"},
        )
        assert checked(response, wire.GraphBatchLoadOutput)["total_entities"] == 9000
        assert list(spool.glob("*.jsonl")) == []


# ---- branches and merges


def test_branches_are_made_listed_and_deleted(server: Served) -> None:
    document = server.answer("/branches", {"name": " review/x "}, wire.BranchCreateOutput)
    assert document == {
        "uri": server.graph.uri,
        "from": "main",
        "name": "review/x",
        "actor_id": None,
    }
    assert "review/x" in checked(server.get("/branches"), wire.BranchList)["branches"]
    taken = refused(server.post("/branches", {"name": "review/x"}), 409, "conflict")
    assert taken["error"].startswith("branch 'review/x' already exists")
    gone = server.client.delete(f"{server.base}/branches/review%2Fx")
    assert checked(gone, wire.BranchDeleteOutput)["name"] == "review/x"
    refused(server.client.delete(f"{server.base}/branches/review%2Fx"), 404, "not_found")
    server.answer("/branches", {"name": "a/b/c", "from": "main"}, wire.BranchCreateOutput)
    assert server.client.delete(f"{server.base}/branches/a/b/c").status_code == 200


@pytest.mark.parametrize("name", ["", "  ", "main", "a\u0000b"])
def test_a_branch_needs_a_name_that_it_may_have(name: str, server: Served) -> None:
    response = server.post("/branches", {"name": name})
    assert response.status_code == (409 if name == "main" else 400) or (
        name == "main" and response.status_code == 400
    )
    refused(response, response.status_code, response.json()["code"])


def test_main_is_not_deleted_and_a_missing_base_is_404(server: Served) -> None:
    refused(server.client.delete(f"{server.base}/branches/main"), 400, "bad_request")
    refused(server.post("/branches", {"name": "n", "from": "nope"}), 404, "not_found")


def test_a_merge_answers_its_outcome_and_its_commit(server: Served) -> None:
    branch = branched(server, "feature")
    into = branched(server, "into")
    server.graph.mutate(ADD, {"n": "Fay"}, branch=branch)
    body = {"source": branch, "target": into, "delete_branch": True}
    document = server.answer("/branches/merge", body, wire.BranchMergeOutput)
    assert document["outcome"] == "fast_forward"
    assert document["branch_deleted"] is True
    head = server.graph.snapshot(into).commit_id
    assert document["commit"]["graph_commit_id"] == head
    again = branched(server, "again")
    same = {"source": "main", "target": again}
    document = server.answer("/branches/merge", same, wire.BranchMergeOutput)
    assert document == {
        "source": "main",
        "target": again,
        "outcome": "already_up_to_date",
        "actor_id": None,
    }


def test_a_merge_that_needs_a_decision_lists_the_conflicts(server: Served) -> None:
    ours, theirs = branched(server, "ours"), branched(server, "theirs")
    server.graph.mutate(AGE, {"n": "Ada", "a": 1}, branch=ours)
    server.graph.mutate(AGE, {"n": "Ada", "a": 2}, branch=theirs)
    response = server.post("/branches/merge", {"source": theirs, "target": ours})
    document = refused(response, 409, "conflict", "merge_conflicts")
    (conflict,) = document["merge_conflicts"]
    assert conflict["entity_id"] == "Ada"
    assert conflict.keys() == {"entity_kind", "type_name", "entity_id", "kind", "message"}
    refused(server.post("/branches/merge", {"source": "no"}), 404, "not_found")
    refused(server.post("/branches/merge", {"source": "main"}), 400, "bad_request")


# ---- schemas


def test_a_schema_change_is_one_commit(tmp_path: Path) -> None:
    with served(new_graph(tmp_path)) as server:
        wider = SCHEMA.replace(
            "node Note { text: String }", "node Note { text: String  by: String? }"
        )
        body = {"schema_source": wider}
        document = server.answer("/schema/apply", body, wire.SchemaApplyOutput)
        assert document["applied"] is True
        assert document["step_count"] == 1
        assert server.get("/schema").json()["schema_source"] == wider
        again = server.answer("/schema/apply", body, wire.SchemaApplyOutput)
        assert again["applied"] is False
        narrower = {"schema_source": SCHEMA.replace("since: I32?", "since: String?")}
        refused(server.post("/schema/apply", narrower), 400, "bad_request")


def test_a_schema_is_never_read_from_the_servers_files(server: Served, tmp_path: Path) -> None:
    file = tmp_path / "next.pg"
    file.write_text(SCHEMA)
    response = server.post("/schema/apply", {"schema_source": str(file)})
    refused(response, 400, "bad_request", "diagnostic")
