"""The catalog after a schema change, for tests of identity."""

from omnigraph.catalog.accept import admit
from omnigraph.catalog.model import Catalog


def evolve(old: Catalog, text: str) -> Catalog:
    """The catalog that follows an accepted one."""
    return admit(text, old).catalog
