"""Suggestions of edge keys: edge types of which two equal edges say no more than one.

Invariant: a suggested key can be declared as it is written; whether the data has duplicates is for
the schema change to say.
"""

from dataclasses import dataclass

from omnigraph.catalog.model import Catalog, EdgeType

_ENDS = frozenset({"src", "dst"})


@dataclass(frozen=True, slots=True)
class SuggestedKey:
    """A key that an edge type could have, and why."""

    edge: str
    key: str
    reason: str

    def __str__(self) -> str:
        return (
            f"edge {self.edge} {self.reason}: {self.key} would give it an identity, so that "
            "loading or inserting it again updates it"
        )


def suggested_keys(catalog: Catalog) -> tuple[SuggestedKey, ...]:
    """The keys that fit edge types which have none, in order of declaration."""
    fitting = (_suggested(edge) for edge in catalog.edges_declared if not edge.key)
    return tuple(each for each in fitting if each is not None)


def _suggested(edge: EdgeType) -> SuggestedKey | None:
    for columns in edge.uniques:
        others = sorted(set(columns) - _ENDS)
        props = [edge.property(name) for name in others]
        if set(columns) >= _ENDS and all(p is not None and not p.type.nullable for p in props):
            key = f"@key({', '.join(('src', 'dst', *others))})"
            return SuggestedKey(edge.name, key, f"is @unique({', '.join(columns)})")
    if not edge.properties:
        return SuggestedKey(edge.name, "@key(src, dst)", "has no properties and no key")
    return None
