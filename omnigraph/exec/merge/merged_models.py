"""Merge of the records of embedding models of two branches (three-way).

Invariant: after a merge a property has the vectors of one model. Where the two sides have vectors
of two models for one property, the merge is refused, unless one side replaced the other's
vectors and the other left them as they were.
"""

from omnigraph.catalog.model import Catalog, NodeType
from omnigraph.errors import BadRequest
from omnigraph.storage.records import EmbeddedBy, Snapshot, embedded_property


def merged_models(
    catalog: Catalog, base: Snapshot, ours: Snapshot, theirs: Snapshot
) -> dict[str, EmbeddedBy]:
    """Return the models that the target takes from the source. Snapshots name tables as the catalog
    does. Raises `BadRequest` if a property would have vectors of two models."""
    taken: dict[str, EmbeddedBy] = {}
    for owner in catalog.nodes.values():
        for prop in owner.properties:
            key = embedded_property(owner.id, prop.id)
            own, other = ours.embedded.get(key), theirs.embedded.get(key)
            if other is None or other == own:
                continue
            before = base.embedded.get(key)
            if own is None:
                taken[key] = other
            elif own.model == other.model:
                continue
            elif own == before and not _is_changed(owner, base, ours):
                taken[key] = other
            elif not (other == before and not _is_changed(owner, base, theirs)):
                raise BadRequest(
                    f"{owner.name}.{prop.name} is embedded with model '{own.model}' on "
                    f"'{ours.branch}' and with '{other.model}' on '{theirs.branch}'",
                    "embed one of the branches again with the model of the other",
                )
    return taken


def _is_changed(owner: NodeType, base: Snapshot, side: Snapshot) -> bool:
    """Return whether a side has changed the rows of a type since the base."""
    return base.tables.get(owner.table) != side.tables.get(owner.table)
