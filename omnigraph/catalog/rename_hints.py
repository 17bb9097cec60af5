"""Rename hints: a drop beside an add that may be a rename whose `@rename_from` was forgotten.

Invariant: pure. A hint names one dropped and one added declaration of the same owner that could
hold the same values, and only where there is no second candidate for either.
"""

from collections.abc import Iterator, Mapping

from omnigraph.catalog.draft import AnyType, entity
from omnigraph.catalog.model import Catalog, EdgeType, Property, declared_edge
from omnigraph.catalog.widening import widened_type
from omnigraph.types import Kind


def rename_hints(old: Catalog, new: Catalog, fillings: Mapping[str, str]) -> Iterator[str]:
    """A line for each type and property that may have been renamed. `fillings` are the entities
    whose values the change gives, which need none of an older name."""
    for kind in Kind:
        before = {each.id: each for each in old.declared(kind).values()}
        added = list[AnyType]()
        for each in new.declared(kind).values():
            origin = before.pop(each.id, None)
            if origin is None:
                added.append(each)
            else:
                yield from _properties(kind, origin, each, fillings)
        # The members of a family follow from the interface at its end.
        gone = [each for each in before.values() if not _is_member(each)]
        added = [each for each in added if not _is_member(each)]
        if kind is not Kind.INTERFACE and len(gone) == len(added) == 1:
            yield _hint(added[0].name, gone[0].name, "rows")


def _is_member(each: AnyType) -> bool:
    return isinstance(each, EdgeType) and each.family is not None


def _properties(
    kind: Kind, old: AnyType, new: AnyType, fillings: Mapping[str, str]
) -> Iterator[str]:
    kept = {prop.id for prop in old.properties} & {prop.id for prop in new.properties}
    gone = [p for p in old.properties if p.id not in kept and p.injected_from is None]
    added = [
        prop
        for prop in new.properties
        if prop.id not in kept
        and prop.injected_from is None
        and entity(kind, new.name, prop.name) not in fillings
    ]
    owner = declared_edge(new).name if isinstance(new, EdgeType) else new.name
    for prop in added:
        origins = [each for each in gone if _could_be(each, prop)]
        if len(origins) == 1 and sum(_could_be(origins[0], each) for each in added) == 1:
            yield _hint(f"{owner}.{prop.name}", origins[0].name, "values")


def _could_be(old: Property, new: Property) -> bool:
    """Whether values of one property are values of another."""
    return new.type == old.type or widened_type(old.type, new.type) == new.type


def _hint(name: str, older: str, contents: str) -> str:
    return (
        f"if {name} is {older} under another name, write "
        f'@rename_from("{older}") after it, which keeps its {contents}'
    )
