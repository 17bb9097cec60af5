"""Types and properties that were dropped and added again: one name, another identity.

Invariant: what a name held before it was dropped belongs to no name of today, so it is neither
compared nor restored; whoever compares two schemas can say so.
"""

from omnigraph.catalog.model import Catalog, Type

_WAY_BACK = "`export --snapshot` of that point and `load --mode patch` bring them back"


def types_added_again(old: Catalog, new: Catalog) -> list[Type]:
    """Types of today that only share their name with one of before."""
    before = {(owner.kind, owner.name): owner.id for owner in old.types}
    known = {(owner.kind, owner.id) for owner in old.types}
    return [
        owner
        for owner in new.types
        if (owner.kind, owner.name) in before and (owner.kind, owner.id) not in known
    ]


def properties_added_again(old: Catalog, new: Catalog) -> list[str]:
    """Properties of today, as `Type.property`, that only share their name with one of before."""
    before = {(owner.kind, owner.id): owner for owner in old.types}
    again: list[str] = []
    for owner in new.types:
        was = before.get((owner.kind, owner.id))
        if was is None:
            continue
        known = {prop.id for prop in was.properties}
        names = {prop.name for prop in was.properties}
        again += [
            f"{owner.name}.{prop.name}"
            for prop in owner.properties
            if prop.name in names and prop.id not in known
        ]
    return again


def said_of(properties: list[str]) -> str:
    """What a comparison or a restore says about such properties."""
    is_one = len(properties) == 1
    return (
        f"{', '.join(properties)} {'was' if is_one else 'were'} dropped and added again in "
        f"between, so the values of then are another property's; {_WAY_BACK}"
    )
