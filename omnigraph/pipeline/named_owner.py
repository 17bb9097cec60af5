"""Type of loaded rows, looked up by the name that `type=` or `edge=` gives it.

Invariant: pure. A name of the other kind is told as one, with the argument that takes it.
"""

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.near_names import did_you_mean, near_edge
from omnigraph.errors import NotFound
from omnigraph.exec.load.ndjson import Owner


def named_node(catalog: Catalog, name: str) -> Owner:
    """The node type of a name, or `NotFound`."""
    owner = catalog.node(name)
    if owner is None:
        is_edge = catalog.edge(name) is not None or name in catalog.families
        hint = "it is an edge type: use edge=, at a terminal --edge" if is_edge else ""
        raise NotFound("node type", name, hint or did_you_mean(name, catalog.nodes))
    return owner


def named_edge(catalog: Catalog, name: str) -> Owner:
    """The edge type of a name, or `NotFound`."""
    owner = catalog.edge(name)
    if owner is None:
        is_node = catalog.node(name) is not None
        hint = "it is a node type: use type=, at a terminal --node" if is_node else ""
        raise NotFound("edge type", name, hint or near_edge(name, catalog))
    return owner
