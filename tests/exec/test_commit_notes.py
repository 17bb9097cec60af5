"""Messages and metadata: every writer takes them, the commit keeps them, wrong ones are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.storage import failpoints
from tests.exec.branching import SCHEMA, edit, person
from tests.exec.upkeep_world import KNOWS, PERSON, made

ADD = 'query add() { insert Company { name: "Acme" } }'
LINE = b'{"type": "Person", "data": {"name": "Eve"}}'
NOTE: dict[str, Any] = {
    "actor": "act-me",
    "message": "why\n\nat length: ü",
    "metadata": {"ticket": "OPS-1", "größe": "√2"},
}

WRITERS: dict[str, Callable[[Graph, dict[str, Any]], object]] = {
    "mutate": lambda g, note: g.mutate(ADD, **note),
    "load": lambda g, note: g.load(LINE, "append", **note),
    "merge": lambda g, note: g.branches.merge("b", **note),
    "handle mutate": lambda g, note: g.branch("main").mutate(ADD, **note),
    "handle load": lambda g, note: g.branch("main").load(LINE, "append", **note),
    "merge_into": lambda g, note: g.branch("b").merge_into("main", **note),
    "schema": lambda g, note: g.schema.apply(SCHEMA + "\nnode Extra { x: String }", **note),
    "ensure_indices": lambda g, note: g.ensure_indices(**note),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer_keeps_what_was_said(small: Graph, writer: str) -> None:
    if "merge" in writer:
        small.branches.create("b")
        edit(small, "b", Person={"Eve": person("Eve")})
    if writer == "ensure_indices":
        edit(small, Person={f"p{n}": person(f"p{n}") for n in range(3)})
    WRITERS[writer](small, NOTE)
    with og.open(small.uri, read_only=True) as reader:
        head = reader.commits.get("main")
    assert (head.actor, head.message, head.metadata) == (
        NOTE["actor"],
        NOTE["message"],
        NOTE["metadata"],
    )


def test_a_transaction_says_it_once(small: Graph) -> None:
    with small.transaction("act-me", message="both", metadata={"k": "v"}) as tx:
        tx.mutate(ADD)
        tx.load(LINE, "append")
    head = small.commits.get("main")
    assert (head.actor, head.message, head.metadata) == ("act-me", "both", {"k": "v"})


def test_upkeep_says_why(tmp_path: Path) -> None:
    with made(tmp_path / "g", 3) as graph:
        graph.optimize(**NOTE)
        for table, heals in ((PERSON, True), (KNOWS, False)):
            pin = graph.snapshot().tables[table]
            foreign = lance.dataset(str(tmp_path / "g" / pin.location))
            foreign.update_config({"x": "y"}) if heals else foreign.delete("id = 'kp00001'")
            graph.repair(confirm=True, force=True, **NOTE)
            head = graph.commits.get("main")
            assert (head.message, head.metadata) == (NOTE["message"], NOTE["metadata"])
        optimized = graph.commits.get("main~2")
        assert (optimized.actor, optimized.message) == (NOTE["actor"], NOTE["message"])


def test_a_write_that_recovery_finishes_keeps_its_message(small: Graph) -> None:
    with failpoints.armed("publish.before"), pytest.raises(og.RecoveryRequired):
        small.mutate(ADD, **NOTE)
    with og.open(small.uri) as again:
        head = again.commits.get("main")
        assert head.actor == "omnigraph:recovery"
        assert (head.message, head.metadata) == (NOTE["message"], NOTE["metadata"])


@pytest.mark.parametrize(
    ("note", "error", "text"),
    [
        ({"message": 3}, og.BadRequest, "message is"),
        ({"message": "a\0b"}, og.BadRequest, "NUL"),
        ({"message": "\ud800"}, og.BadRequest, "UTF-8"),
        ({"message": "x" * 20_000}, og.LimitExceeded, "commit_message_bytes"),
        ({"metadata": {"a": 1}}, og.BadRequest, "metadata is"),
        ({"metadata": {1: "a"}}, og.BadRequest, "metadata is"),
        ({"metadata": ["a"]}, og.BadRequest, "metadata is"),
        ({"metadata": {" ": "a"}}, og.BadRequest, "is empty"),
        ({"metadata": {"a": "\0"}}, og.BadRequest, "NUL"),
        ({"metadata": {"a": "x" * 20_000}}, og.LimitExceeded, "commit_metadata_bytes"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_anything_is_written(
    small: Graph, note: dict[str, Any], error: type[Exception], text: str
) -> None:
    before = small.snapshot().commit_id
    for write in (
        lambda: small.mutate(ADD, **note),
        lambda: small.load(LINE, "append", branch="new", from_branch="main", **note),
        lambda: small.transaction(**note),
        lambda: small.repair(confirm=True, **note),
        lambda: small.optimize(**note),
        lambda: small.schema.apply(SCHEMA, **note),
    ):
        with pytest.raises(error, match=text):
            write()
    assert small.snapshot().commit_id == before
    assert small.branches.list() == ("main",)


def test_a_blank_message_is_none(small: Graph) -> None:
    small.mutate(ADD, message="  \n")
    assert small.commits.get("main").message is None
