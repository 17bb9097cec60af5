"""Node-link diagram: circles and arrows, labelled, with marks for what was added or removed.

Invariant: a node stands where its key and its links put it, at every visit. No more is drawn than
is passed in: budgets belong to whoever reads the graph.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from omnigraph.draw.spring import Point, positions, separated
from omnigraph.draw.svg import Picture, element, number, shortened, text

_RADIUS, _SPACE, _MARGIN = 11.0, 92.0, 70.0
_LABEL_CHARS = 20
_EDGES_SAID = 24  # of more edges, names would lie over each other
_LABEL_BOX = (96.0, 44.0)
_LAYOUTS_MAX = 64
_LETTER, _SMALL_LETTER = 7.2, 6.2  # the width of a letter
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True, slots=True)
class PictureNode:
    """A circle. `mark` is focus, added, removed, changed or beside; `href` where a click leads."""

    key: str
    label: str
    colour: str
    about: str = ""
    mark: str = ""
    href: str | None = None
    round: int = 0
    pinned: Point | None = None


@dataclass(frozen=True, slots=True)
class PictureEdge:
    """An arrow from one node to another, by their keys."""

    source: str
    target: str
    label: str = ""
    mark: str = ""


def node_link_picture(
    title: str, nodes: Sequence[PictureNode], edges: Sequence[PictureEdge]
) -> Picture:
    """The nodes with the edges between them; an edge of which an end is not there is left out."""
    if not nodes:
        return _empty(title)
    keys = {node.key for node in nodes}
    edges = [edge for edge in edges if edge.source in keys and edge.target in keys]
    points = _arranged(nodes, edges)
    left = min(x for x, _ in points.values()) - _MARGIN
    top = min(y for _, y in points.values()) - _MARGIN / 1.6
    width = max(x for x, _ in points.values()) + _MARGIN - left
    height = max(y for _, y in points.values()) + _MARGIN - top
    body = element("defs", _tip()) + "".join(_drawn_edges(nodes, edges, points))
    body += "".join(_drawn_node(node, points[node.key]) for node in nodes)
    scene = element("g", body, class_="scene")
    return Picture(title, max(width, 240), max(height, 120), scene, (left, top))


def _empty(title: str) -> Picture:
    said = element("text", text("Nothing to draw."), x=120, y=60, class_="label dim")
    return Picture(title, 240, 120, element("g", said, class_="scene"))


def _arranged(nodes: Sequence[PictureNode], edges: Sequence[PictureEdge]) -> dict[str, Point]:
    """Centres, no label over another. A pinned node is where it was put, and the others are where
    they would be without it."""
    return _layout(
        tuple((node.key, node.round, node.pinned) for node in nodes),
        tuple((edge.source, edge.target) for edge in edges),
    )


@lru_cache(maxsize=_LAYOUTS_MAX)
def _layout(
    nodes: tuple[tuple[str, int, Point | None], ...], links: tuple[tuple[str, str], ...]
) -> dict[str, Point]:
    """A layout follows from its nodes and links alone, so the next visit takes the last one's."""
    last = max(each for _, each, _ in nodes)
    rounds = [[key for key, of, _ in nodes if of == each] for each in range(last + 1)]
    laid = positions(rounds, links)
    points = {key: (x * _SPACE, y * _SPACE) for key, (x, y) in laid.items()}
    pins = {key: pinned for key, _, pinned in nodes if pinned is not None}
    boxes = {key: (*point, *_LABEL_BOX) for key, point in (points | pins).items()}
    return separated(boxes, 4.0, frozenset(pins))


def _tip() -> str:
    arrow = element("path", d="M0,0 L8,4 L0,8 z", class_="tip")
    return element(
        "marker", arrow, id="tip", refX=8, refY=4, markerWidth=8, markerHeight=8, orient="auto"
    )


def _drawn_edges(
    nodes: Sequence[PictureNode], edges: Sequence[PictureEdge], points: dict[str, Point]
) -> list[str]:
    seen: dict[tuple[str, str], int] = {}
    taken = [box for node in nodes for box in _node_boxes(node, points[node.key])]
    drawn = []
    for edge in edges:
        pair = min(edge.source, edge.target), max(edge.source, edge.target)
        nth = seen[pair] = seen.get(pair, -1) + 1
        line, middle = _drawn_line(edge, points[edge.source], points[edge.target], nth)
        name = ""
        if edge.label and len(edges) <= _EDGES_SAID:
            name = _drawn_name(edge, points[edge.source], points[edge.target], middle, taken)
        drawn.append(line + name)
    return drawn


def _node_boxes(node: PictureNode, point: Point) -> tuple[Box, Box]:
    """What the circle and the label of a node cover."""
    x, y = point
    label = _text_box(shortened(node.label, _LABEL_CHARS), (x, y + _RADIUS + 14), _LETTER)
    return (x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS), label


def _text_box(said: str, base: Point, letter: float) -> Box:
    x, y = base
    half = (len(said) + 0.6) * letter / 2
    return x - half, y - 1.6 * letter, x + half, y + letter / 2


def _drawn_name(
    edge: PictureEdge, start: Point, end: Point, middle: Point, taken: list[Box]
) -> str:
    """The name of an edge where it covers nothing: in its middle, else nearer to an end, else
    nowhere, as the line says it when it is pointed at."""
    said = shortened(edge.label, _LABEL_CHARS)
    bent = middle[0] - (start[0] + end[0]) / 2, middle[1] - (start[1] + end[1]) / 2
    for part in (0.5,) if edge.source == edge.target else (0.5, 0.65, 0.35):
        x = start[0] + part * (end[0] - start[0]) + bent[0]
        y = start[1] + part * (end[1] - start[1]) + bent[1] - 3
        box = _text_box(said, (x, y), _SMALL_LETTER)
        if not any(_overlap(box, other) for other in taken):
            taken.append(box)
            named = f"label dim {edge.mark}".strip()
            return element("text", text(said), x=x, y=y, class_=named, font_size="10")
    return ""


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _drawn_line(edge: PictureEdge, start: Point, end: Point, nth: int) -> tuple[str, Point]:
    """The arrow of an edge, and its middle."""
    (x, y), (u, v) = start, end
    if edge.source == edge.target:
        path = f"M{number(x - 6)},{number(y - 9)} c-26,-36 38,-36 13,-1"
        middle = (x, y - 36)
    else:
        length = math.hypot(u - x, v - y) or 1.0
        along, across = ((u - x) / length, (v - y) / length), nth * 16 * (-1) ** nth
        middle = (x + u) / 2 - along[1] * across, (y + v) / 2 + along[0] * across
        path = (
            f"M{_xy(x + along[0] * _RADIUS, y + along[1] * _RADIUS)} "
            f"Q{_xy(*middle)} {_xy(u - along[0] * (_RADIUS + 2), v - along[1] * (_RADIUS + 2))}"
        )
    named = f"edge {edge.mark}".strip()
    title = element("title", text(edge.label)) if edge.label else ""
    return element("path", title, d=path, class_=named, marker_end="url(#tip)"), middle


def _xy(x: float, y: float) -> str:
    return f"{number(x)},{number(y)}"


def _drawn_node(node: PictureNode, point: Point) -> str:
    x, y = point
    title = element("title", text(node.about or node.label))
    mark = f" {node.mark}" if node.mark else ""
    circle = element("circle", cx=x, cy=y, r=_RADIUS, class_=f"dot {node.colour}{mark}")
    label = element(
        "text",
        text(shortened(node.label, _LABEL_CHARS)),
        x=x,
        y=y + _RADIUS + 14,
        class_="label beside" if node.mark == "beside" else "label",
    )
    content = title + circle + label
    if node.href is None:
        return element("g", content, class_="node", data_key=node.key)
    return element("a", content, href=node.href, class_="node", data_key=node.key)
