"""Additive schema changes: the steps that only add or widen, and so leave other branches valid.

Invariant: after a change without a narrowing step every row of the old schema is a row of the new
one, once added properties have their default or null. So a branch that keeps the old schema can be
merged whatever it writes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from omnigraph.catalog.draft import AnyType
from omnigraph.catalog.model import Cardinality, Catalog, NodeType, Range
from omnigraph.catalog.schema_diff import MigrationPlan, steps_between
from omnigraph.catalog.steps import (
    AddConstraint,
    AddProperty,
    DropConstraint,
    DropProperty,
    DropType,
    RenameProperty,
    RenameType,
    Step,
    UnsupportedChange,
    UpdateCardinality,
    WidenProperty,
)
from omnigraph.errors import SchemaHeld
from omnigraph.types import Kind, PropertyId


def narrowing_steps(plan: MigrationPlan, old: Catalog) -> tuple[Step, ...]:
    """The steps of a plan that remove, rename or restrict something."""
    return tuple(step for step in plan.steps if _narrows(step, old, plan.catalog))


def noting_branches(plan: MigrationPlan, old: Catalog, others: Sequence[str]) -> MigrationPlan:
    """The plan, with a hint where an apply is refused as long as other branches are there."""
    narrowing = narrowing_steps(plan, old) if others and plan.supported else ()
    if not narrowing:
        return plan
    refusal = SchemaHeld(tuple(others), str(narrowing[0]))
    return replace(plan, hints=(*plan.hints, f"apply refuses this: {refusal}"))


def _narrows(step: Step, old: Catalog, new: Catalog) -> bool:
    match step:
        case RenameType() | RenameProperty() | DropType() | DropProperty() | UnsupportedChange():
            return True
        case AddProperty(type=value_type, backfill=backfill, default=default):
            # Rows that other branches write have no way to take part in an expression.
            return backfill is not None or (default is None and not value_type.nullable)
        case UpdateCardinality(old=before, new=after):
            return not _is_wider(before, after)
        case DropConstraint(constraint=constraint):
            # Other branches would go on to derive ids from the key.
            return constraint.name == "key"
        case AddConstraint():
            return not _is_free(step, old, new)
        case _:
            return False


def reshaping_steps(old: Catalog, new: Catalog, type_name: str | None = None) -> tuple[Step, ...]:
    """The steps between two schemas that rename, remove or retype something, or give entities
    other ids: those after which old rows no longer fit. With a name only those of that type."""
    steps = (step for step in steps_between(old, new) if _reshapes(step))
    return tuple(
        step for step in steps if type_name is None or _type_named(step) in (None, type_name)
    )


def _reshapes(step: Step) -> bool:
    match step:
        case RenameType(kind=kind) | DropType(kind=kind):
            return kind is not Kind.INTERFACE
        case RenameProperty(kind=kind) | DropProperty(kind=kind) | WidenProperty(kind=kind):
            return kind is not Kind.INTERFACE
        case AddConstraint(constraint=constraint) | DropConstraint(constraint=constraint):
            return constraint.name == "key"
        case UnsupportedChange():
            return True
        case _:
            return False


def _type_named(step: Step) -> str | None:
    """The type that a step is about, by its old name; None for one that may be about any."""
    match step:
        case RenameType(old=name) | DropType(name=name):
            return name
        case UnsupportedChange():
            return None
        case _:
            return getattr(step, "type_name", None)


def _is_wider(before: Cardinality, after: Cardinality) -> bool:
    if after.low > before.low:
        return False
    return after.high is None or (before.high is not None and before.high <= after.high)


def _is_free(step: AddConstraint, old: Catalog, new: Catalog) -> bool:
    """Whether no row can break an added constraint: it names new properties alone, or is a range
    with wider bounds."""
    each = new.declared(step.kind)[step.type_name]
    origin = _by_id(old, step.kind).get(each.id)
    if origin is None:
        return True
    before = {prop.id for prop in origin.properties}
    ids = {prop.name: prop.id for prop in each.properties}
    columns = [ids[name] for name in step.constraint.columns if name in ids]
    if len(columns) == len(step.constraint.columns) and not before & set(columns):
        return True
    if step.constraint.name != "range" or len(columns) != 1:
        return False
    bounds = next(_ranges(each, columns[0]), None)
    return bounds is not None and any(_holds(bounds, r) for r in _ranges(origin, columns[0]))


def _by_id(catalog: Catalog, kind: Kind) -> dict[int, AnyType]:
    return {each.id: each for each in catalog.declared(kind).values()}


def _ranges(each: AnyType, column: PropertyId) -> Iterator[Range]:
    names = {prop.name for prop in each.properties if prop.id == column}
    if isinstance(each, NodeType):
        yield from (bounds for bounds in each.ranges if bounds.property in names)


def _holds(wide: Range, narrow: Range) -> bool:
    low = wide.low is None or (narrow.low is not None and wide.low <= narrow.low)
    return low and (wide.high is None or (narrow.high is not None and narrow.high <= wide.high))
