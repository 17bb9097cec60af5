"""Writes `once` beside another process that makes the same write: one commit, one outcome."""

from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.storage.store import Store

SCHEMA = "node Person { name: String @key  age: I32?  photo: Blob? }"
ADA = b'{"type":"Person","data":{"name":"Ada","age":36,"photo":"base64:aGk="}}'
SET = "query older() { update Person set { age: 37 } where age = 36 }"
GONE = 'query gone() { delete Person where name = "Ada" }'


def on_head(graph: og.Graph) -> object:
    head = graph.commits.list()[-2].id
    return graph.mutate(SET, if_commit=head, once="k")


def on_tag(graph: og.Graph) -> object:
    etag = graph.blob("node", "Person", "Ada", "photo", snapshot=graph.commits.list()[-2].id).etag
    return graph.put_blob("node", "Person", "Ada", "photo", b"x", if_match=[etag or ""], once="k")


WRITES: dict[str, Callable[[og.Graph], object]] = {
    "a mutation of one head": on_head,
    "a mutation with nothing left to change": lambda graph: graph.mutate(SET, once="k"),
    "a deletion": lambda graph: graph.mutate(GONE, once="k"),
    "a blob in the place of one": on_tag,
    "a load": lambda graph: graph.load(ADA.replace(b"Ada", b"Bob"), "append", once="k"),
    "a merge": lambda graph: graph.branches.merge("work", once="k"),
    "a merge that deletes": lambda graph: graph.branches.merge(
        "work", once="k", delete_source=True
    ),
    "a merge into one head": lambda graph: graph.branches.merge(
        "work", once="k", if_target=graph.commits.list()[-2].id
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_write_once_that_another_process_makes_meanwhile_is_its_repetition(
    write: Callable[[og.Graph], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = tmp_path / "g.omni"
    with og.init(uri, schema=SCHEMA) as graph, og.open(uri) as other:
        graph.load(ADA, "merge")
        graph.branches.create("work")
        graph.mutate(SET.replace("37", "40"), branch="work")
        first: list[object] = []
        real = Store.marked

        def marked(store: Store, branch: str, mark: str) -> object:
            found = real(store, branch, mark)
            if not first:
                first.append(None)
                first[0] = write(other)
            return found

        monkeypatch.setattr(Store, "marked", marked)
        done = write(graph)
        assert (done.repeated, first[0].repeated) == (True, False)  # type: ignore[attr-defined]
        assert done.commit.id == first[0].commit.id  # type: ignore[attr-defined]
        assert getattr(done, "branch_deleted", None) == getattr(first[0], "branch_deleted", None)
        assert len(graph.commits.list()) == 3
