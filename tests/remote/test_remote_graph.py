"""A served graph has every method of a local one; what needs the files says so (RC1, RC2)."""

import inspect
import io
import threading
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.graph import views as local_views
from omnigraph.graph.schema import SchemaView
from omnigraph.remote import RemoteGraph, remote_schema, remote_views
from omnigraph.server.serve_settings import Access
from tests.remote.both import SharedServer
from tests.server.world import ADD, AGE, NAMES, new_graph, served

PAIRS = [
    (RemoteGraph, Graph),
    (remote_views.RemoteBranches, local_views.BranchesView),
    (remote_views.RemoteTags, local_views.TagsView),
    (remote_views.RemoteCommits, local_views.CommitsView),
    (remote_views.RemoteChangeFeed, local_views.ChangesView),
    (remote_views.RemoteRecoveries, local_views.RecoveriesView),
    (remote_schema.RemoteSchema, SchemaView),
]
INHERITED = {"transaction", "spark"}
"""Made of other methods, or set when a graph is made."""


@pytest.mark.parametrize(("remote", "local"), PAIRS, ids=lambda kind: kind.__name__)
def test_RC1_every_public_method_is_there_with_the_same_arguments(
    remote: type, local: type
) -> None:
    for name, member in inspect.getmembers(local):
        if name.startswith("_") or name in INHERITED:
            continue
        ours = inspect.getattr_static(remote, name)
        assert ours is not inspect.getattr_static(local, name), f"{name} works on files"
        if inspect.isfunction(member):
            assert arguments(getattr(remote, name)) == arguments(member), name


def arguments(method: object) -> list[tuple[object, ...]]:
    """Names, kinds and defaults; annotations may be of modules that are imported later."""
    parameters = inspect.signature(method).parameters.values()  # type: ignore[arg-type]
    return [(each.name, each.kind, each.default) for each in parameters]


@pytest.fixture(scope="module")
def graph(shared: SharedServer, tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return shared.connect(new_graph(tmp_path_factory.mktemp("people")))


def test_metadata_of_a_load_is_never_another_than_was_given(graph: og.Graph) -> None:
    with pytest.raises(og.NotServed, match="choose another name"):
        graph.load(b'{"type":"Person","data":{"name":"x"}}', "merge", metadata={"a=b": "c"})


def test_RC1_what_needs_the_files_says_where_to_run_it(graph: og.Graph, tmp_path: Path) -> None:
    for call in (
        graph.optimize,
        graph.ensure_indices,
        lambda: graph.cleanup(keep=3),
        graph.repair,
        graph.check,
        graph.stats,
        graph.recoveries.list,
        lambda: graph.backup(tmp_path / "copy"),
        lambda: graph.spark.tables(),
        lambda: graph.query(NAMES, engine="spark"),
        lambda: graph.load(b"", "merge", rejects=tmp_path),
        lambda: graph.changes.register("me"),
        graph.changes.consumers,
        lambda: graph.changes.ack("me", "x"),
        lambda: graph.changes.unregister("me"),
        lambda: graph.changes.poll(consumer="me"),
        lambda: graph.changes.poll(commits=3),
        lambda: graph.changes.baseline(consumer="me"),
        lambda: graph.query(NAMES).explain(),
    ):
        with pytest.raises(og.NotServed, match="does not work over HTTP") as refused:
            call()
        assert graph.uri in str(refused.value)
    assert graph.cache_bytes == 0


def test_a_served_write_carries_the_actor_of_its_token(tmp_path: Path) -> None:
    uri = new_graph(tmp_path)
    with served(uri, access=Access.TRUSTED) as server:
        ada = og.connect(server.url, token="ada-token")
        done = ada.mutate(ADD, {"n": "Eve", "a": 1})
        assert done.actor_id == "act-ada"
        assert done.commit is not None
        assert [c.id for c in ada.commits.list(actor="act-ada")] == [done.commit.id]
        for call in (
            lambda: ada.mutate(ADD, {"n": "Fay", "a": 1}, actor="act-bob"),
            lambda: ada.load(b"", "merge", actor="act-bob"),
            lambda: ada.branches.merge("x", actor="act-bob"),
            lambda: ada.revert("main", actor="act-bob"),
            lambda: ada.schema.apply("node A { name: String @key }", actor="act-bob"),
        ):
            with pytest.raises(og.BadRequest, match="carries the actor of its token"):
                call()
        assert ada.revert("main").commit is not None
        for token in (None, "nobody's", "schön"):
            with pytest.raises((og.Unauthenticated, og.BadRequest)):
                og.connect(server.url, token=token)
        ada.close()


def test_an_actor_that_may_only_read_is_forbidden_to_write(tmp_path: Path) -> None:
    with (
        served(new_graph(tmp_path), access=Access.READ_ONLY) as server,
        og.connect(server.url, graph="people", token="bob-token") as graph,
    ):
        assert len(graph.query(NAMES)) == 2
        with pytest.raises(og.Forbidden) as refused:
            graph.mutate(ADD, {"n": "Eve", "a": 1})
        assert (refused.value.action, refused.value.actor) == ("change", "act-bob")
        with pytest.raises(og.BadRequest, match="does not list its graphs"):
            og.connect(server.url, token="bob-token")


def test_a_handle_that_only_reads_sends_no_write(shared: SharedServer, tmp_path: Path) -> None:
    graph = shared.connect(new_graph(tmp_path), read_only=True)
    assert graph.read_only
    for call in (
        lambda: graph.mutate(ADD, {"n": "Eve", "a": 1}),
        lambda: graph.load(b"", "merge"),
        lambda: graph.branches.create("x"),
        lambda: graph.branches.delete("x"),
        lambda: graph.branches.merge("x"),
        lambda: graph.tags.create("x"),
        lambda: graph.tags.delete("x"),
        lambda: graph.revert("main"),
        lambda: graph.restore("main~1"),
        lambda: graph.schema.apply("node A { name: String @key }"),
    ):
        with pytest.raises(og.BadRequest, match="read-only"):
            call()
    assert graph.revert("main", dry_run=True).dry_run


def test_threads_share_a_graph_and_an_update_that_loses_is_sent_again(
    shared: SharedServer, tmp_path: Path
) -> None:
    graph = shared.connect(new_graph(tmp_path))
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            graph.mutate(AGE, {"n": "Ada", "a": number}, retries=20)
            graph.mutate(ADD, {"n": f"n{number}", "a": number})
        except BaseException as cause:  # noqa: BLE001
            faults.append(cause)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(graph.query(NAMES)) == 6


def test_a_long_answer_comes_in_pages_and_chunks(shared: SharedServer, tmp_path: Path) -> None:
    graph = shared.connect(new_graph(tmp_path))
    rows = [
        {"type": "Note", "data": {"text": f"{number:04} " + "x" * 90}} for number in range(2500)
    ]
    graph.load(rows, "append")
    changes = graph.commits.changes("main")
    assert changes.counts() == {("node", "Note", "insert"): 2500}
    assert len(changes.page(700).changes) == 700
    stream = io.BytesIO()
    assert graph.export(stream, types=["Note"]).nodes == {"Note": 2500}
    assert stream.getvalue().count(b"\n") == 2500
    chunks = list(graph.export_lines(types=["Note"]))
    assert all(chunk.endswith(b"\n") for chunk in chunks)
    assert sum(1 for _ in graph.changes.baseline()) == 2503
    graph.load(rows[:2], "append")
    assert len(graph.query("query q() { match { $n: Note } return { $n.text } }")) == 2502
