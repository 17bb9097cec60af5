"""V4: a graph of another storage version is rebuilt by export and load, and is the same graph."""

import base64
import random
from pathlib import Path

import lance
import numpy as np
import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage.manifest.state import LOCATION
from tests.cli.program import run, start
from tests.exec.bulk import SCHEMA, contents, edge, lines, new_graph, node, person
from tests.exec.evolving import dump

CHANCE = random.Random(4)
BYTES = {"big": CHANCE.randbytes(300_000), "tiny": b"\0", "empty": b"", "text": "ü".encode()}
FACES = {"big": [0.1, -1e-30], "tiny": [3.4e38, 1.0], "empty": [-0.0, 0.0]}


def blob(data: bytes) -> str:
    return "base64:" + base64.b64encode(data).decode()


def filled(folder: Path) -> Graph:
    graph = new_graph(folder)
    people = [
        person(name, pic=blob(data), face=FACES.get(name), email=f"{name}@x", tags=[name, ""])
        for name, data in BYTES.items()
    ]
    graph.load(
        lines(
            *people,
            person("none", age=1, score=0.1, height=1e300, big=2**64 - 1, born="1815-12-10"),
            node("Ticket", tenant='ac"me', number=-42),
            node("Log", text="generated id"),
            node("Log", text="given id", id="l1"),
            edge("Knows", "big", "none", since="2020-01-01"),
            edge("Wrote", "tiny", "l1", id="w1", weight=0.1),
        ),
        "append",
    )
    graph.mutate('query m() { update Person set { age: 5 } where name = "empty" }')
    graph.mutate('query m() { delete Person where name = "text" }')
    return graph


def restamp(graph: Graph, version: int) -> None:
    handle = lance.dataset(f"{graph.uri}/{LOCATION}")
    handle.update_schema_metadata({"omnigraph:internal_schema_version": str(version)})


def require_same(old: Graph, new: Graph) -> None:
    assert contents(new) == contents(old)
    assert dump(new) == dump(old)
    for name, data in BYTES.items():
        if name != "text":
            (row,) = (r for r in contents(new)["node:Person"] if r["id"] == name)
            assert row["pic"] == data
            face = FACES.get(name)
            if face is not None:
                assert np.array_equal(np.float32(row["face"]), np.float32(face))


@pytest.mark.parametrize("format", ["file", "folder"])
def test_v4_a_graph_is_rebuilt_by_export_and_load(tmp_path: Path, format: str) -> None:
    old = filled(tmp_path)
    target = f"{tmp_path}/dump/" if format == "folder" else f"{tmp_path}/dump.jsonl"
    done = old.export(target)
    before = contents(old), dump(old)
    old.close()
    restamp(old, 3)
    for read_only in (True, False):
        with pytest.raises(og.UnsupportedVersion, match="init a new graph and load the export"):
            og.open(old.uri, read_only=read_only)

    # The schema is a plain file, also in a graph that is refused.
    new = og.init(tmp_path / "new", schema=f"{old.uri}/_schema.pg")
    loaded = new.load(target, "append")
    assert loaded.total_entities == done.total_entities
    assert (contents(new), dump(new)) == before
    restamp(old, 4)
    require_same(og.open(old.uri), new)
    assert og.open(new.uri).schema.text == SCHEMA


def test_v4_a_second_export_is_the_first_byte_by_byte(tmp_path: Path) -> None:
    old = filled(tmp_path)
    old.export(tmp_path / "first.jsonl")
    new = og.init(tmp_path / "new", schema=old.schema.text)
    new.load(tmp_path / "first.jsonl", "append")
    new.export(tmp_path / "second.jsonl")
    assert (tmp_path / "first.jsonl").read_bytes() == (tmp_path / "second.jsonl").read_bytes()


def test_v4_an_earlier_commit_is_rebuilt_with_the_schema_it_had(tmp_path: Path) -> None:
    old = filled(tmp_path)
    at = old.snapshot().commit_id
    old.schema.apply(
        SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")  n: I32 @backfill(1)')
        .replace("@range(age", "@range(years")
        .replace("  pic: Blob?\n", "  picture: Blob?\n")
    )
    old.export(tmp_path / "now.jsonl")
    old.export(tmp_path / "then.jsonl", snapshot=at)
    now = og.init(tmp_path / "now", schema=old.schema.text)
    now.load(tmp_path / "now.jsonl", "append")
    then = og.init(tmp_path / "then", schema=old.schema.at(at).text)
    then.load(tmp_path / "then.jsonl", "append")
    assert dump(now) == dump(old)
    assert dump(then) == dump(old, at)


def test_v4_the_cycle_from_a_terminal(tmp_path: Path) -> None:
    old = filled(tmp_path)
    for arguments, output in (
        (("schema", "show", old.uri), "schema.pg"),
        (("export", old.uri), "dump.jsonl"),
    ):
        done = start(*arguments)
        assert done.returncode == 0
        (tmp_path / output).write_text(done.stdout, encoding="utf-8")
    assert run("init", "--schema", "schema.pg", "new.omni", cwd=tmp_path).returncode == 0
    load = ("load", "new.omni", "--data", "dump.jsonl", "--mode", "append", "--quiet")
    assert run(*load, cwd=tmp_path).returncode == 0
    require_same(old, og.open(tmp_path / "new.omni"))
