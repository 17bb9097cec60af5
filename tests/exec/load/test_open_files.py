"""Files that are open already: which of them a load can read, and what it says about the others."""

import codecs
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

import omnigraph as og
from omnigraph.graph import Graph
from tests.exec.bulk import by_name, new_graph

LINE = b'{"name": "Ada"}\n'


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return new_graph(tmp_path)


def _written(make: Callable[..., IO[Any]], mode: str) -> IO[Any]:
    """A temporary file that holds the line; its reader closes it."""
    file = make(mode=mode)
    file.write(LINE if "b" in mode else LINE.decode())
    file.seek(0)
    return file


BINARY: dict[str, Callable[[], Any]] = {
    "memory": lambda: io.BytesIO(LINE),
    "named": lambda: _written(tempfile.NamedTemporaryFile, "w+b"),
    "spooled": lambda: _written(tempfile.SpooledTemporaryFile, "w+b"),
}
TEXT: dict[str, Callable[[], Any]] = {
    "memory": lambda: io.StringIO(LINE.decode()),
    "named": lambda: _written(tempfile.NamedTemporaryFile, "w+"),
    "spooled": lambda: _written(tempfile.SpooledTemporaryFile, "w+"),
    "codec": lambda: codecs.getreader("utf-8")(io.BytesIO(LINE)),
}


@pytest.mark.parametrize("name", BINARY)
def test_an_open_file_of_bytes_is_read(graph: Graph, name: str) -> None:
    with BINARY[name]() as file:
        graph.load(file, "append", type="Person")
    assert list(by_name(graph, "node:Person")) == ["Ada"]


@pytest.mark.parametrize("name", TEXT)
def test_an_open_file_of_text_is_refused_with_how_to_open_it(graph: Graph, name: str) -> None:
    told = "reads bytes, and this file gives text; open the file with mode 'rb'"
    for options in ({"type": "Person"}, {"permissive": True}):
        with TEXT[name]() as file, pytest.raises(og.BadRequest, match=told):
            graph.load(file, "append", **options)


def test_a_closed_file_is_refused(graph: Graph) -> None:
    file = io.BytesIO(LINE)
    file.close()
    with pytest.raises(og.BadRequest, match="the file is closed; open it with mode 'rb'"):
        graph.load(file, "append", type="Person")


def test_a_file_that_is_open_for_writing_alone_is_refused(graph: Graph, tmp_path: Path) -> None:
    for mode in ("w", "wb"):
        with (
            (tmp_path / "x.jsonl").open(mode) as file,
            pytest.raises(og.BadRequest, match="open for writing alone; open it with mode 'rb'"),
        ):
            graph.load(file, "append", type="Person")
