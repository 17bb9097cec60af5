"""Neighbourhood diagram: a node, its neighbours, and what else can be expanded.

Invariant: what was drawn before an expansion stays where it was after it.
"""

from collections.abc import Callable, Collection, Mapping

from omnigraph.draw.node_link import PictureEdge, PictureNode, node_link_picture
from omnigraph.draw.svg import Picture, colour_of
from omnigraph.exec.changes.neighbourhood import Neighbourhood, SeenNode

Href = Callable[[SeenNode], str]


def neighbourhood_picture(
    title: str,
    seen: Neighbourhood,
    *,
    href: Href | None = None,
    hidden: Collection[str] = (),
    pinned: Mapping[str, tuple[float, float]] | None = None,
    selected: str | None = None,
) -> Picture:
    """A neighbourhood without what is hidden."""
    pins = pinned or {}
    nodes = [
        PictureNode(
            node.key,
            node.label,
            colour_of(node.type_id),
            f"{node.type} {node.id}",
            mark="focus" if node.key in (selected or seen.focus, seen.focus) else "",
            href=None if href is None else href(node),
            round=node.step,
            pinned=pins.get(node.key),
        )
        for node in seen.nodes.values()
        if node.key not in hidden
    ]
    edges = [PictureEdge(each.source, each.target, each.type) for each in seen.edges.values()]
    return node_link_picture(title, nodes, edges)
