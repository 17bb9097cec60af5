"""Schema diagram: node types as boxes with their properties, edge types as arrows between them.

Invariant: every type of the catalog is drawn once, and no box covers another.
"""

import math
from collections import defaultdict

from omnigraph.catalog.model import Catalog, EdgeType, NodeType
from omnigraph.draw.spring import Point, positions, separated
from omnigraph.draw.svg import Picture, colour_of, element, number, shortened, text

_LINE, _CHAR, _PAD, _MARGIN = 16.0, 6.8, 10.0, 50.0
_PROPERTIES_MAX, _CHARS_MAX = 14, 34
_WIDE, _HIGH = 150.0, 70.0  # a screen is wider than it is high


def schema_picture(title: str, catalog: Catalog) -> Picture:
    """A schema."""
    nodes = list(catalog.nodes.values())
    if not nodes:
        said = element("text", text("No types yet."), x=120, y=60, class_="label dim")
        return Picture(title, 240, 120, element("g", said, class_="scene"))
    edges = list(catalog.edges.values())
    sizes = {node.name: _size(node) for node in nodes}
    centres = _arranged(nodes, edges, sizes)
    width = max(x + sizes[name][0] / 2 for name, (x, _) in centres.items()) + _MARGIN
    height = max(y + sizes[name][1] / 2 for name, (_, y) in centres.items()) + _MARGIN
    body = "".join(_arrows(edges, centres, sizes))
    body += "".join(_box(node, centres[node.name], sizes[node.name]) for node in nodes)
    return Picture(title, width, height, element("g", body, class_="scene"))


def _lines(node: NodeType) -> list[str]:
    lines = [
        f"{prop.name}{' ⚷' if prop.name in node.key else ''}: {prop.type}"
        for prop in node.properties
    ]
    if len(lines) > _PROPERTIES_MAX:
        lines[_PROPERTIES_MAX - 1 :] = [f"… {len(lines) - _PROPERTIES_MAX + 1} more"]
    return [shortened(line, _CHARS_MAX) for line in lines]


def _size(node: NodeType) -> tuple[float, float]:
    lines = _lines(node)
    chars = max(len(each) for each in (node.name + "  ", *lines))
    return chars * _CHAR + 2 * _PAD, (len(lines) + 1) * _LINE + 2 * _PAD


def _arranged(
    nodes: list[NodeType], edges: list[EdgeType], sizes: dict[str, tuple[float, float]]
) -> dict[str, Point]:
    laid = positions([[node.name for node in nodes]], [(e.source, e.target) for e in edges])
    room = {name: sizes[name][0] + 2 * _loop_room(name, edges) for name in laid}
    boxes = {n: (x * _WIDE, y * _HIGH, room[n], sizes[n][1]) for n, (x, y) in laid.items()}
    centres = separated(boxes, 70.0)
    left = min(x - room[name] / 2 for name, (x, _) in centres.items()) - _MARGIN
    top = min(y - sizes[name][1] / 2 for name, (_, y) in centres.items()) - _MARGIN
    return {name: (x - left, y - top) for name, (x, y) in centres.items()}


def _loop_room(name: str, edges: list[EdgeType]) -> float:
    """The width that the arrows of a box to itself take beside it, with their names."""
    chars = [len(e.name) for e in edges if e.source == e.target == name]
    return 34 + min(24, max(chars)) * _CHAR if chars else 0.0


def _arrows(
    edges: list[EdgeType], centres: dict[str, Point], sizes: dict[str, tuple[float, float]]
) -> list[str]:
    """Arrows from box to box; several between two boxes lie beside each other."""
    between: defaultdict[tuple[str, str], list[EdgeType]] = defaultdict(list)
    for edge in edges:
        between[min(edge.source, edge.target), max(edge.source, edge.target)].append(edge)
    drawn = []
    for group in between.values():
        for n, edge in enumerate(group):
            if edge.source == edge.target:
                drawn.append(_loop(edge, centres[edge.source], sizes[edge.source], n))
            else:
                drawn.append(_arrow(edge, centres, sizes, n - (len(group) - 1) / 2))
    return drawn


def _arrow(
    edge: EdgeType,
    centres: dict[str, Point],
    sizes: dict[str, tuple[float, float]],
    nth: float,
) -> str:
    (x, y), (u, v) = centres[edge.source], centres[edge.target]
    length = math.hypot(u - x, v - y) or 1.0
    flip = 1 if edge.source < edge.target else -1
    shift = -(v - y) / length * nth * 26 * flip, (u - x) / length * nth * 26 * flip
    start = _border((x, y), (u, v), sizes[edge.source])
    end = _border((u, v), (x, y), sizes[edge.target])
    (x, y), (u, v) = ((p[0] + shift[0], p[1] + shift[1]) for p in (start, end))
    line = element("line", x1=x, y1=y, x2=u, y2=v, class_="edge")
    return line + _tip((x, y), (u, v)) + _named(edge, (x + u) / 2, (y + v) / 2 - 4)


def _loop(edge: EdgeType, centre: Point, size: tuple[float, float], n: int) -> str:
    """An arrow from a box to itself, at its left side: those to other boxes leave towards them."""
    x, y = centre[0] - size[0] / 2, centre[1] - size[1] / 2 + 20 + n * 30
    path = f"M{number(x)},{number(y)} c-34,-6 -34,26 0,20"
    line = element("path", d=path, class_="edge")
    said = element(
        "text",
        text(shortened(edge.name, 24)) + _about(edge),
        x=x - 30,
        y=y + 14,
        class_="label last",
        font_size="11",
    )
    return line + _tip((x - 6, y + 21), (x, y + 20)) + said


def _named(edge: EdgeType, x: float, y: float) -> str:
    named = text(shortened(edge.name, 24))
    return element("text", named + _about(edge), x=x, y=y, class_="label", font_size="11")


def _about(edge: EdgeType) -> str:
    return element("title", text(f"{edge.name}: {edge.source} → {edge.target}"))


def _tip(start: Point, end: Point) -> str:
    turn = math.atan2(end[1] - start[1], end[0] - start[0])
    corners = [end] + [
        (end[0] - 9 * math.cos(turn + side), end[1] - 9 * math.sin(turn + side))
        for side in (0.4, -0.4)
    ]
    return element(
        "polygon", points=" ".join(f"{number(x)},{number(y)}" for x, y in corners), class_="tip"
    )


def _border(centre: Point, toward: Point, size: tuple[float, float]) -> Point:
    """Where a line from the centre of a box leaves it."""
    dx, dy = toward[0] - centre[0], toward[1] - centre[1]
    share = min(
        size[0] / 2 / abs(dx) if dx else math.inf, size[1] / 2 / abs(dy) if dy else math.inf
    )
    return (centre[0] + dx * share, centre[1] + dy * share) if share < 1 else centre


def _box(node: NodeType, centre: Point, size: tuple[float, float]) -> str:
    left, top = centre[0] - size[0] / 2, centre[1] - size[1] / 2
    frame = element("rect", x=left, y=top, width=size[0], height=size[1], rx=8, class_="box")
    dot = element("circle", cx=left + _PAD + 4, cy=top + 17, r=5, class_=colour_of(int(node.id)))
    parts = [frame, dot]
    parts.append(element("text", text(node.name), x=left + _PAD + 15, y=top + 21, class_="bold"))
    for n, line in enumerate(_lines(node)):
        y = top + 21 + (n + 1) * _LINE
        parts.append(
            element("text", text(line), x=left + _PAD, y=y, class_="mono dim", font_size="11")
        )
    return element("g", "".join(parts), class_="type")
