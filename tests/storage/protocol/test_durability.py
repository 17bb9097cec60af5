"""Durability: what a commit flushes, in how many barriers, and who chooses the mode."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import BadRequest, RecoveryRequired, StorageFailed
from omnigraph.graph import Graph
from omnigraph.storage import flushing
from omnigraph.storage.lance.base_paths import is_whole
from omnigraph.storage.locks import process_mark
from omnigraph.storage.objects import root_of
from tests.power_cut_work import INSERT, PAIR, PEOPLE, SCHEMA, WIDER

BARRIERS_MAX = 4


def barriers(graph: Graph, work: Callable[[], Any]) -> int:
    before = graph.stats()
    work()
    return graph.stats().since(before).calls.get("disk.barrier", 0)


def test_a_commit_has_at_most_four_barriers_whatever_it_does(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA, durability="fsync")
    seen = {n: barriers(graph, lambda n=n: graph.mutate(INSERT, {"n": f"p{n}"})) for n in range(30)}
    assert min(seen.values()) == 3
    calls = graph.stats().calls
    assert calls["lance.compact"] > 1, "tables and the manifest are folded meanwhile"
    people = [{"type": "Person", "data": {"name": f"l{n}", "age": n}} for n in range(20)]
    graph.branches.create("side")
    side = graph.branch("side")
    writes: dict[str, Callable[[], Any]] = {
        "three tables": lambda: graph.mutate(PAIR, {"a": "a", "b": "b"}),
        "update": lambda: graph.mutate("query q() { update Person set { age: 7 } where age >= 0 }"),
        "delete": lambda: graph.mutate('query q() { delete Person where name = "p2" }'),
        "load": lambda: graph.load(people, "merge", engine="local"),
        "overwrite": lambda: graph.load(
            [{"type": "Person", "data": {"name": n, "age": 1}} for n in ("a", "b")],
            "overwrite",
            engine="local",
        ),
        "first on a branch": lambda: side.mutate(PAIR, {"a": "x", "b": "y"}),
        "merge": lambda: graph.branches.merge("side"),
        "schema": lambda: graph.schema.apply(WIDER),
        "indexes": lambda: graph.ensure_indices(),
    }
    seen |= {name: barriers(graph, work) for name, work in writes.items()}  # type: ignore[misc]
    assert max(seen.values()) <= BARRIERS_MAX, seen


def test_flushes_of_one_barrier_are_issued_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.init(tmp_path / "g.omni", SCHEMA, durability="fsync")
    graph.mutate(INSERT, {"n": "first"})
    running, most = [], [0]

    def flush(path: str) -> None:
        running.append(path)
        most[0] = max(most[0], len(running))
        real(path)
        running.remove(path)

    real = flushing.flush_path
    monkeypatch.setattr(flushing, "flush_path", flush)
    for number in range(5):
        graph.mutate(INSERT, {"n": f"p{number}"})
    assert most[0] > 1


def test_the_page_cache_mode_flushes_nothing(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        assert barriers(graph, lambda: graph.mutate(PAIR, {"a": "a", "b": "b"})) == 0


def mode(uri: Path, **options: Any) -> str:
    with og.open(uri, **options) as graph:
        flushes = barriers(graph, lambda: graph.mutate(INSERT, {"n": os.urandom(4).hex()}))
    return "fsync" if flushes else "os"


def test_a_caller_wins_over_the_environment_and_that_over_the_graphs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, plain = tmp_path / "kept.omni", tmp_path / "plain.omni"
    og.init(kept, SCHEMA, durability="os").close()
    og.init(plain, SCHEMA).close()
    monkeypatch.delenv("OMNIGRAPH_DURABILITY", raising=False)
    assert mode(kept) == "os"
    assert mode(plain) == "fsync", "which is the default"
    assert mode(kept, durability="fsync") == "fsync"
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "fsync")
    assert mode(kept) == "fsync"
    assert mode(kept, durability="os") == "os"
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "always")
    with pytest.raises(BadRequest, match="OMNIGRAPH_DURABILITY is 'always'"):
        og.open(kept)
    with pytest.raises(BadRequest, match="durability is 'never'"):
        og.open(kept, durability="never")
    monkeypatch.delenv("OMNIGRAPH_DURABILITY")
    with pytest.raises(BadRequest, match="durability is 'never'"):
        og.init(tmp_path / "new.omni", SCHEMA, durability="never")
    assert not (tmp_path / "new.omni" / "__manifest").exists()


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_C4_a_flush_that_fails_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    uri = tmp_path / "g.omni"
    graph = og.init(uri, SCHEMA, durability="fsync")
    graph.mutate(INSERT, {"n": "first"})
    count = [0]

    def barrier(self: flushing.Flusher, *paths: Any, **staged: Any) -> None:
        count[0] += 1
        if count[0] == nth:
            raise StorageFailed("flushed a file", "Input/output error")
        real(self, *paths, **staged)

    real = flushing.Flusher.barrier
    with monkeypatch.context() as patch:
        patch.setattr(flushing.Flusher, "barrier", barrier)
        with pytest.raises((StorageFailed, RecoveryRequired)):
            graph.mutate(INSERT, {"n": "second"})
    with og.open(uri, durability="fsync") as after:
        names = {row["p.name"] for row in after.query(PEOPLE)}
        assert names - {"second"} == {"first"}
        assert after.check().ok
        after.mutate(INSERT, {"n": "third"})


def test_a_torn_version_is_noticed_whatever_is_left_of_it(tmp_path: Path) -> None:
    og.init(tmp_path / "g.omni", SCHEMA)
    [path] = (tmp_path / "g.omni" / "__manifest" / "_versions").glob("*.manifest")
    data = path.read_bytes()
    assert is_whole(data)
    torn = [data[:n] for n in range(len(data))] + [bytes(len(data)), data + b"\0"]
    torn += [data[:n] + bytes(512) + data[n + 512 :] for n in range(0, len(data) - 512, 512)]
    assert not any(map(is_whole, torn))


def test_a_reader_after_a_restart_sees_the_newest_whole_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has opened the graph for writing yet, so the torn version is still there."""
    uri = tmp_path / "g.omni"
    with og.init(uri, SCHEMA, durability="fsync") as graph:
        graph.mutate(INSERT, {"n": "first"})
    versions = uri / "__manifest" / "_versions"
    newest = min(versions.glob("*.manifest"))
    torn = versions / f"{int(newest.stem) - 1:020d}.manifest"
    torn.write_bytes(bytes(newest.stat().st_size))
    monkeypatch.setattr(process_mark, "_boot", lambda: "another boot")
    with og.open(uri, read_only=True) as reader:
        assert [row["p.name"] for row in reader.query(PEOPLE)] == ["first"]
        assert torn.exists(), "a reader writes nothing"
    with og.open(uri) as graph:
        assert not torn.exists()
        graph.mutate(INSERT, {"n": "second"})
        assert len(graph.query(PEOPLE).rows) == 2


def test_an_object_store_takes_the_setting_and_flushes_by_itself() -> None:
    root = root_of("s3://bucket/graph")
    flusher = flushing.Flusher(root.path, None, "fsync")  # type: ignore[arg-type]
    flusher.owe(["a"])
    flusher.barrier(["b"])
    assert flusher.mode == "fsync"
    assert not flusher.is_on
