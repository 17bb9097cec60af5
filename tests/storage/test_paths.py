"""Graphs below folders with any name: a local address is a path, never a URL."""

from pathlib import Path

import pytest

from omnigraph.errors import BadRequest
from omnigraph.storage.inspect import inspect_graph
from tests.storage.world import CITY, PERSON, Where, append, content, put

NAMES = ["é", "雪", "100%", "a%20b", "~x", "a#b", "a[1]", "a*b", "a\\b", "a b", "{x}", '<|>`^"']


@pytest.mark.parametrize("name", NAMES)
def test_branches_below_a_folder_of_any_name_stay_in_it(tmp_path: Path, name: str) -> None:
    where = Where(str(tmp_path / name / "graph.omni"))
    store = where.create()
    append(store, PERSON, "a")
    store.branches.create("b")
    put(store, {PERSON: {"a": 2, "c": 3}, CITY: {"x": 1}}, branch="b")
    store.branches.create("b/c", source="b")
    append(store, PERSON, "d", branch="b/c")
    again = where.open()
    assert content(again)[PERSON] == {"a": 1}
    assert content(again, "b")[PERSON] == {"a": 2, "c": 3}
    assert content(again, "b/c")[PERSON] == {"a": 2, "c": 3, "d": 1}
    assert again.branches.list() == ("b", "b/c", "main")
    again.branches.delete("b/c")
    again.branches.delete("b")
    assert again.branches.list() == ("main",)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert list(inspect_graph(again)) == []


def test_a_question_mark_in_the_path_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="without one"):
        Where(str(tmp_path / "what?" / "graph.omni")).create()
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_came_below_a_question_mark_is_read_and_refuses_branches(
    tmp_path: Path,
) -> None:
    append(Where(str(tmp_path / "fine" / "graph.omni")).create(), PERSON, "a")
    (tmp_path / "fine").rename(tmp_path / "what?")
    store = Where(str(tmp_path / "what?" / "graph.omni")).open()
    append(store, PERSON, "b")
    with pytest.raises(BadRequest, match="move the graph"):
        store.branches.create("b")
    assert store.branches.list() == ("main",)
    assert content(store)[PERSON] == {"a": 1, "b": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["what?"]


def test_check_finds_the_folder_that_an_earlier_program_left_beside_the_graph(
    tmp_path: Path,
) -> None:
    store = Where(str(tmp_path / "é" / "graph.omni")).create()
    stray = tmp_path / "%C3%A9" / "graph.omni"
    (stray / "__manifest" / "_refs" / "branches").mkdir(parents=True)
    ((code, subject, _, todo, _),) = inspect_graph(store)
    assert (code, subject) == ("stray-folder", str(stray))
    assert "remove" in todo
    (stray / "mine.txt").write_text("a file of somebody's own")
    assert list(inspect_graph(store)) == []
