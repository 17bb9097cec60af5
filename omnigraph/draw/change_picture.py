"""Change diagram: entities that were added, removed or changed, and the ends of such edges.

Invariant: a node that is drawn only because a changed edge ends in it is drawn as unchanged.
"""

from collections.abc import Callable, Iterable

from omnigraph.catalog.model import Catalog
from omnigraph.draw.node_link import PictureEdge, PictureNode, node_link_picture
from omnigraph.draw.svg import Picture, colour_of
from omnigraph.exec.changes.diff import Change

_MARKS = {"insert": "added", "delete": "removed", "update": "changed"}
Href = Callable[[str, str], str]
"""Where a click on a node leads, by its type and id."""


def change_picture(
    title: str, changes: Iterable[Change], catalog: Catalog, href: Href | None = None
) -> Picture:
    """The changes, as nodes and edges with marks."""
    nodes: dict[str, PictureNode] = {}
    edges: list[PictureEdge] = []
    colours = {name: colour_of(int(node.id)) for name, node in catalog.nodes.items()}

    def add(type_name: str, entity: str, mark: str) -> str:
        key = f"{type_name}:{entity}"
        if key not in nodes or nodes[key].mark == "beside":
            colour = colours.get(type_name, "t0")
            link = None if href is None else href(type_name, entity)
            nodes[key] = PictureNode(key, entity, colour, f"{type_name} {entity}", mark, link)
        return key

    for change in changes:
        mark = _MARKS[change.op]
        if change.kind == "node":
            add(change.type, change.id, mark)
            continue
        edge = catalog.edges.get(change.type)
        image = change.after or change.before
        if edge is None or image is None or image.endpoints is None:
            continue
        source, target = image.endpoints
        ends = add(edge.source, source, "beside"), add(edge.target, target, "beside")
        edges.append(PictureEdge(*ends, change.type, mark))
    return node_link_picture(title, list(nodes.values()), edges)
