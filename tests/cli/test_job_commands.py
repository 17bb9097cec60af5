"""`omnigraph jobs`: the jobs of a server from a terminal."""

import json
from pathlib import Path

from omnigraph.server.job_addresses import checked_base
from tests.cli.program import run
from tests.server.world import new_graph, served


def test_jobs_are_started_listed_shown_and_awaited(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"type":"Person","data":{"name":"Joy"}}\n')
    uri = new_graph(tmp_path)
    with served(uri, job_sources=(checked_base(str(tmp_path)),)) as server:
        where = ("--server", server.url)
        assert run("jobs", "list", *where).stdout == "(no jobs)\n"
        members = ("--set", f"source={tmp_path / 'in.jsonl'}", "--set", "mode=merge")
        begun = run("jobs", "start", "load", *members, "--once", "joy", "--json", *where)
        job = json.loads(begun.stdout)["id"]
        done = run("jobs", "wait", job, *where)
        assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"job {job}: load is done")
        assert "total_entities: 1" in done.stdout.splitlines()
        assert json.loads(run("jobs", "show", job, "--json", *where).stdout)["state"] == "done"
        assert server.names() == ["Ada", "Bob", "Joy"]
        again = run("jobs", "start", "load", *members, "--once", "joy", "--wait", "--json", *where)
        assert json.loads(again.stdout)["id"] == job
        listed = run("jobs", "list", *where, "--quiet").stdout.splitlines()
        assert [(line.split()[0], line.split()[3:]) for line in listed] == [
            (job, ["load", "done", "-"])
        ]
        lost = run("jobs", "start", "merge", "--set", "source=nowhere", "--wait", *where)
        assert (lost.returncode, "nowhere" in lost.stdout) == (1, True)
        assert run("jobs", "cancel", job, *where).returncode == 0
        kept = ("--set", "keep=10", "--set", "confirm=true", "--wait", "--json")
        assert json.loads(run("jobs", "start", "cleanup", *kept, *where).stdout)["state"] == "done"
        for words, status, text in (
            (("show", "01ABC", *where), 1, "job '01ABC' not found"),
            (("start", "load", "--set", "mode", *where), 2, "is not NAME=VALUE"),
            (("start", "paint", *where), 1, "paint"),
            (("list", uri), 1, "jobs are of a server"),
        ):
            refused = run("jobs", *words)
            assert (refused.returncode, refused.stdout) == (status, ""), refused.stderr
            assert text in " ".join(refused.stderr.split())
        optimize = run("optimize", *where)
        assert (optimize.returncode, "omnigraph jobs start" in optimize.stderr) == (2, True)
