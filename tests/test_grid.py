"""Tables that fit, and histories that can be followed."""

import cProfile
import pstats
import unicodedata
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.cli.change_text import value_text
from omnigraph.cli.lanes import drawn
from omnigraph.cli.render import Format, QueryRows, TableStyle, lines_of
from omnigraph.draw.commit_order import in_order, reachable
from omnigraph.grid import WIDTH_MIN, cell_width, fitted, flat, grid

patient = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
WIDTHS = st.lists(st.integers(1, 80), min_size=1, max_size=12)


def test_a_table_of_many_columns_is_given_up_at_once() -> None:
    """Calls are counted, at eight times the columns."""
    calls = []
    for count in (100, 800):
        profile = cProfile.Profile()
        profile.runcall(fitted, [8 + n % 30 for n in range(count)], 120)
        calls.append(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]
    assert calls[1] < 9 * calls[0]


@patient
@given(widths=WIDTHS, columns=st.integers(10, 200))
def test_a_table_is_no_wider_than_the_terminal(widths: list[int], columns: int) -> None:
    room = fitted(widths, columns)
    gaps = 3 * (len(widths) - 1)
    if room is None:
        assert sum(min(width, WIDTH_MIN) for width in widths) + gaps > columns
        return
    assert sum(room) + gaps <= columns
    assert all(new <= old for new, old in zip(room, widths, strict=True))
    assert all(new >= min(old, WIDTH_MIN) for new, old in zip(room, widths, strict=True))
    if sum(widths) + gaps <= columns:
        assert room == widths, "what fits is left alone"


@patient
@given(
    rows=st.lists(st.lists(st.text(max_size=30), min_size=3, max_size=3), min_size=1, max_size=5),
    wrap=st.booleans(),
)
def test_every_line_of_a_grid_has_one_width(rows: list[list[str]], wrap: bool) -> None:
    cells = [[flat(cell) for cell in row] for row in rows]
    lines = list(grid(cells, [10, 9, 8], wrap=wrap))
    assert {cell_width(line) for line in lines} == {10 + 9 + 8 + 6}
    assert not any(unicodedata.category(c) == "Cc" for line in lines for c in line)


def test_a_chinese_column_lines_up() -> None:
    lines = list(grid([["city", "n"], ["東京", "1"], ["Oslo", "2"]], [4, 1], wrap=False))
    assert lines == ["city | n", "-----+--", "東京 | 1", "Oslo | 2"]


def test_nothing_in_a_value_moves_the_cursor() -> None:
    nasty = "a\x1b[2Jb\rc\nd\x00e"
    answer = QueryRows("q", "main", None, ["v"], [{"v": nasty}], [[nasty]], "01X")
    for format in (Format.KV, Format.TABLE):
        assert all(line.isprintable() for line in lines_of(answer, format)), format
    assert value_text(nasty) == r"a\x1b[2Jb\rc\nd\x00e"


def test_a_row_with_more_columns_than_fit_is_shown_below_each_other() -> None:
    columns = [f"column_{n}" for n in range(12)]
    rows = [{column: "a long value" for column in columns}]
    answer = QueryRows("q", "main", None, columns, rows, [list(rows[0].values())], "01X")
    narrow = list(lines_of(answer, Format.TABLE, TableStyle(terminal_columns=40)))
    assert narrow[:3] == ["1 rows from branch main via q", "row 1", "column_0: a long value"]
    wide = list(lines_of(answer, Format.TABLE, TableStyle(terminal_columns=200)))
    assert wide[1].startswith("column_0")
    assert max(map(len, wide)) <= 200


@pytest.mark.parametrize("format", [Format.TABLE, Format.CSV, Format.KV, Format.MARKDOWN])
def test_two_columns_with_one_name_show_their_own_values(format: Format) -> None:
    answer = QueryRows("q", "main", None, ["p", "p"], [{"p": 39}], [[9, 39]], "01X")
    text = "\n".join(lines_of(answer, format))
    assert text.index("9") < text.index("39")


@dataclass(frozen=True)
class Commit:
    """As much of a commit as a drawing looks at."""

    id: str
    parent: str | None = None
    merged_parent: str | None = None
    created_at: int = 0
    manifest_version: int = 0

    @property
    def parents(self) -> tuple[str, ...]:
        return tuple(p for p in (self.parent, self.merged_parent) if p)


def drawing(*commits: Commit) -> list[str]:
    order = in_order({c.id: c for c in commits})  # type: ignore[misc]
    return [f"{row} {c.id}" if c else row for row, c in drawn(order)]


def test_a_straight_history_is_one_lane() -> None:
    assert drawing(Commit("a"), Commit("b", "a", created_at=1)) == ["* b", "* a"]


def test_a_merge_is_two_lanes_that_meet_again() -> None:
    history = (
        Commit("a"),
        Commit("b", "a", created_at=1),
        Commit("x", "a", created_at=2),
        Commit("m", "b", "x", created_at=3),
    )
    assert drawing(*history) == ["* m", "|\\", "| * x", "* | b", "|/", "* a"]


def test_branches_that_go_on_are_lanes_of_their_own() -> None:
    history = (
        Commit("a"),
        Commit("b", "a", created_at=1),
        Commit("c", "a", created_at=2),
        Commit("d", "a", created_at=3),
    )
    assert drawing(*history) == ["* d", "| * c", "| | * b", "|/  |", "|__/", "* a"]


def test_a_parent_that_was_deleted_ends_its_lane() -> None:
    assert drawing(Commit("m", "a", "gone", created_at=1), Commit("a")) == ["* m", "* a"]


@patient
@given(st.data())
def test_every_history_is_drawn_whole_and_children_stand_above(data: st.DataObject) -> None:
    commits: list[Commit] = []
    for n in range(data.draw(st.integers(1, 14))):
        ids = [c.id for c in commits]
        parent = data.draw(st.sampled_from(ids)) if ids else None
        merged = data.draw(st.none() | st.sampled_from(ids)) if ids else None
        when = data.draw(st.integers(0, 5))
        commits.append(Commit(str(n), parent, merged if merged != parent else None, when, n))
    known = {c.id: c for c in commits}
    order = in_order(known)  # type: ignore[arg-type]
    assert sorted(c.id for c in order) == sorted(known)
    places = {c.id: n for n, c in enumerate(order)}
    assert all(places[p] > places[c.id] for c in commits for p in c.parents)
    rows = list(drawn(order))
    assert [c.id for _, c in rows if c] == [c.id for c in order]
    assert all(row.count("*") == 1 for row, c in rows if c)
    found = reachable(known, [commits[-1].id])  # type: ignore[arg-type]
    assert {p for c in found.values() for p in c.parents} <= set(found)
