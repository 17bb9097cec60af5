"""Ids of every spelling name the same entity over HTTP as locally."""

from datetime import date

import numpy as np
import pytest

import omnigraph as og
from tests.remote.both import Maker

SCHEMA = """
node P { k: String @key photo: Blob? }
node C { a: String, b: I32, c: Date @key(a, b, c) }
"""
SIGNS = ["", ".", "..", "...", "a/b", "/", "//", "%2E", "a?b#c", "é", " ", "history"]


@pytest.mark.parametrize("text", SIGNS)
def test_an_id_is_any_text(new: Maker, text: str) -> None:
    graph = new(SCHEMA)
    graph.load([{"k": text, "photo": b"old"}], "append", type="P")
    assert graph.entity("node", "P", text).id == text
    assert graph.blob("node", "P", text, "photo").read() == b"old"
    graph.put_blob("node", "P", text, "photo", b"new")
    assert graph.blob("node", "P", text, "photo").read() == b"new"
    assert [each.change.op for each in graph.history("node", "P", text)] == ["update", "insert"]


@pytest.mark.parametrize("text", ["", "."])
def test_an_id_that_nobody_has_is_not_found(new: Maker, text: str) -> None:
    graph = new(SCHEMA)
    with pytest.raises(og.NotFound, match="node P"):
        graph.entity("node", "P", text)
    assert list(graph.history("node", "P", text)) == []
    with pytest.raises(og.NotFound):
        graph.blob("node", "P", text, "photo").read()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("\ud800", "an id cannot be written as UTF-8"),
        (10**5000, "thousands of digits"),
        ([None, 1, date(2020, 1, 1)], "null is no id"),
        ([{"a": 1}], "a dict is no id"),
    ],
    ids=["surrogate", "huge", "None", "dict"],
)
def test_what_is_no_id_is_refused_before_it_is_sent(
    new: Maker, key: str | int | list[object], said: str
) -> None:
    graph = new(SCHEMA)
    for ask in (graph.entity, graph.history):
        with pytest.raises(og.BadRequest, match=said):
            ask("node", "P", key)
    with pytest.raises(og.BadRequest, match=said):
        graph.blob("node", "P", key, "photo")
    with pytest.raises(og.BadRequest, match=said):
        graph.put_blob("node", "P", key, "photo", b"x")


def test_several_values_of_a_key_name_a_node(new: Maker) -> None:
    graph = new(SCHEMA)
    graph.load([{"a": "x", "b": 1, "c": "2020-01-01"}], "append", type="C")
    for key in (["x", 1, date(2020, 1, 1)], ("x", np.int64(1), np.datetime64("2020-01-01"))):
        assert graph.entity("node", "C", key).image.properties["b"] == 1


def test_a_type_that_cannot_be_written_is_refused(new: Maker) -> None:
    with pytest.raises(og.OmnigraphError):
        new(SCHEMA).entity("node", "\ud800", "x")
