"""Commit graph in lanes: one row a commit, one lane a line of commits, forks and merges between.

Invariant: a lane leads to the commit that continues it. What a row draws at its lower edge is what
the next row draws at its upper edge, so rows can be put under each other and cut anywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.draw.svg import Picture, element, number, shortened, text

if TYPE_CHECKING:
    from omnigraph.storage.records import Commit

LANE_PX, ROW_PX = 16, 44
_COLOURS = 10
_TEXT_PX, _TEXT_CHARS = 640, 80
_LANES_MAX = 12


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One commit's row: its lane, lines that reach it from above and lines that leave it below.

    A line is the lane at the row's edge and the lane at its middle.
    """

    commit_id: str
    lane: int
    above: tuple[tuple[int, int], ...]
    below: tuple[tuple[int, int], ...]

    @property
    def lanes(self) -> int:
        """How many lanes the row is wide."""
        return 1 + max(max(pair) for pair in (*self.above, *self.below, (self.lane, 0)))


def lane_rows(commits: "Sequence[Commit]") -> list[LaneRow]:
    """The rows of commits that stand in order, children above parents."""
    rows = []
    lanes: list[str | None] = []
    for commit in commits:
        waiting = [n for n, awaited in enumerate(lanes) if awaited == commit.id]
        lane = waiting[0] if waiting else _free(lanes)
        above = tuple(
            (n, lane if awaited == commit.id else n)
            for n, awaited in enumerate(lanes)
            if awaited is not None
        )
        for each in waiting:
            lanes[each] = None
        passing = [(n, n) for n, awaited in enumerate(lanes) if awaited is not None]
        leaving = _leaving(lanes, lane, commit.parents)
        while lanes and lanes[-1] is None:
            lanes.pop()
        rows.append(LaneRow(commit.id, lane, above, tuple(dict.fromkeys([*passing, *leaving]))))
    return rows


def _leaving(lanes: list[str | None], lane: int, parents: Sequence[str]) -> list[tuple[int, int]]:
    """Lines to the parents: the first goes on in the commit's lane, if it is awaited nowhere."""
    lines = []
    for number_, parent in enumerate(parents):
        if parent in lanes:
            goal = lanes.index(parent)
        else:
            goal = lane if number_ == 0 and lanes_free(lanes, lane) else _free(lanes, lane + 1)
            while len(lanes) <= goal:
                lanes.append(None)
            lanes[goal] = parent
        lines.append((goal, lane))
    return lines


def lanes_free(lanes: Sequence[str | None], lane: int) -> bool:
    """Whether no line runs in a lane."""
    return lane >= len(lanes) or lanes[lane] is None


def _free(lanes: Sequence[str | None], first: int = 0) -> int:
    return next((n for n in range(first, len(lanes)) if lanes[n] is None), max(first, len(lanes)))


def row_body(row: LaneRow, top: float = 0.0, height: float = ROW_PX) -> str:
    """The lines and the dot of one row."""
    middle, bottom = top + height / 2, top + height
    lines = [_line(a, top, b, middle) for a, b in row.above]
    lines += [_line(b, middle, a, bottom) for a, b in row.below]
    dot = element("circle", cx=_x(row.lane), cy=middle, r=5, class_=f"dot t{row.lane % _COLOURS}")
    return "".join(lines) + dot


def row_svg(row: LaneRow, lanes: int) -> str:
    """One row as a picture of its own, for a list; `lanes` is the width of the whole list."""
    width = _x(min(lanes, _LANES_MAX) - 1) + LANE_PX / 2
    return element(
        "svg",
        row_body(row),
        class_="picture lanes",
        viewBox=f"0 0 {number(width)} {ROW_PX}",
        width=width,
        height=ROW_PX,
        aria_hidden="true",
    )


def commits_picture(
    title: str, commits: "Sequence[Commit]", names: Mapping[str, Sequence[str]]
) -> Picture:
    """Commits with their lanes, names, actors and changes, as one picture."""
    rows = lane_rows(commits)
    left = _x(max((row.lanes for row in rows), default=1)) + 4
    body = []
    for n, (row, commit) in enumerate(zip(rows, commits, strict=True)):
        top = n * ROW_PX
        body.append(row_body(row, top))
        label = "".join(f"[{name}] " for name in names.get(commit.id, ()))
        said = (commit.message or "").partition("\n")[0] or commit.changed or "–"
        first = shortened(f"{label}{said}", _TEXT_CHARS)
        second = "  ·  ".join(filter(None, (commit.id[:10], commit.when, commit.actor)))
        body.append(element("text", text(first), x=left, y=top + 19, class_="bold"))
        body.append(element("text", text(second), x=left, y=top + 35, class_="dim", font_size="11"))
    height = max(len(rows), 1) * ROW_PX
    return Picture(title, left + _TEXT_PX, height, element("g", "".join(body), class_="scene"))


def _line(lane: int, y: float, other: int, v: float) -> str:
    """A line between two lanes, bent where they differ, in the colour of the outer one."""
    x, u = _x(lane), _x(other)
    middle = (y + v) / 2
    bend = f"C{_xy(x, middle)} {_xy(u, middle)} {_xy(u, v)}" if x != u else f"L{_xy(u, v)}"
    return element("path", d=f"M{_xy(x, y)} {bend}", class_=f"lane s{max(lane, other) % _COLOURS}")


def _x(lane: int) -> float:
    return LANE_PX / 2 + 4 + lane * LANE_PX


def _xy(x: float, y: float) -> str:
    return f"{number(x)},{number(y)}"
