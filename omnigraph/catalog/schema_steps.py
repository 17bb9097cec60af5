"""Schema differences as values of a diff, a merge preview and a commit: one line and facts each.

Invariant: two accepted schemas with one fingerprint have no steps. Steps state what differs, never
whether an apply could make the change: a comparison also goes backwards.
"""

from omnigraph.catalog.model import Catalog
from omnigraph.catalog.schema_diff import differences
from omnigraph.catalog.schema_merge import merge_schemas
from omnigraph.catalog.steps import DropProperty, DropType, Step, UnsupportedChange
from omnigraph.types import SchemaStep


def schema_steps(old: Catalog, new: Catalog, *, by_name: bool = False) -> tuple[SchemaStep, ...]:
    """Return the steps from one accepted schema to another one of the same graph.

    `by_name` compares two branches: each has an identity of its own for a type or a property that
    both added, so one name is one declaration unless an identity says otherwise.
    """
    if by_name:
        new = merge_schemas(old, old, new).catalog
    return tuple(map(_shown, differences(old, new)))


def _shown(step: Step) -> SchemaStep:
    match step:
        case UnsupportedChange(entity=entity, change=change):
            facts = {"kind": "change_declaration", "entity": entity, "change": change}
            return SchemaStep(f"{change} on {entity}", facts)
        case DropType() | DropProperty():
            # Whether earlier data is kept is a matter of the apply, not of the two schemas.
            facts = {name: value for name, value in step.to_json().items() if name != "mode"}
            return SchemaStep(str(step).removesuffix(f" ({step.mode} mode)"), facts)
        case _:
            return SchemaStep(str(step), dict(step.to_json()))
