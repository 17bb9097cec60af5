"""Integrity check of stored values: moments out of range, NaN and infinities.

Invariant: a value is reported exactly when no door accepts it today, so the export of a table
without such findings can be loaded. Only columns that can hold such a value are read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Property, Type
from omnigraph.exec.rules.rules import VIOLATIONS_LISTED
from omnigraph.exec.upkeep.findings import Finding
from omnigraph.language.moments import DAYS, MILLISECONDS
from omnigraph.storage.lance.reader import TableReader
from omnigraph.types import FLOATS, Scalar

Sound = Callable[[pa.Array], pa.BooleanArray]
"""Which of the values a door would accept."""


@dataclass(slots=True)
class _Bad:
    """The rows with an unsound value of one property."""

    code: str
    fault: str
    ids: list[str] = field(default_factory=list)
    total: int = 0


def value_findings(reader: TableReader, owner: Type) -> Iterator[Finding]:
    """One finding a property with values that no write would accept."""
    checked = {prop.name: rule for prop in owner.properties if (rule := _rule(prop)) is not None}
    if not checked:
        return
    bad = {name: _Bad(code, fault) for name, (code, fault, _) in checked.items()}
    for batch in reader.batches(["id", *checked]):
        for name, (_, _, sound) in checked.items():
            _collect(bad[name], batch.column("id"), batch.column(name), sound)
    for name, faults in bad.items():
        if faults.total:
            yield _finding(owner, name, faults)


def _rule(prop: Property) -> tuple[str, str, Sound] | None:
    scalar = prop.type.scalar
    if scalar is Scalar.DATE:
        return "value-moment", "outside the years 1 to 9999", _within(pa.int32(), DAYS)
    if scalar is Scalar.DATETIME:
        return "value-moment", "outside the years 1 to 9999", _within(pa.int64(), MILLISECONDS)
    if scalar in FLOATS or prop.type.is_vector:
        return "value-number", "that are NaN or infinite", pc.is_finite
    return None


def _within(number: pa.DataType, bounds: tuple[int, int]) -> Sound:
    def sound(values: pa.Array) -> pa.BooleanArray:
        numbers = values.view(number)
        return pc.and_(pc.greater_equal(numbers, bounds[0]), pc.less_equal(numbers, bounds[1]))

    return sound


def _collect(bad: _Bad, ids: pa.Array, values: pa.Array, sound: Sound) -> None:
    """Add the rows whose value, or an item of it, is not sound."""
    items, rows = values, None
    if pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        items, rows = pc.list_flatten(values), pc.list_parent_indices(values)
    broken = pc.indices_nonzero(pc.fill_null(pc.invert(sound(items)), False))
    if not len(broken):
        return
    wrong = broken if rows is None else pc.unique(rows.take(broken))
    bad.total += len(wrong)
    bad.ids += ids.take(wrong[: max(0, VIOLATIONS_LISTED - len(bad.ids))]).to_pylist()


def _finding(owner: Type, name: str, bad: _Bad) -> Finding:
    shown = ", ".join(f"'{each}'" for each in bad.ids)
    rest = "" if bad.total == len(bad.ids) else f" and {bad.total - len(bad.ids)} more"
    example = f'update {owner.name} set {{ {name}: … }} where id = "…"'
    todo = f"give each a value that can be stored, by its id: {example}"
    if name in owner.key:
        todo = f'a key cannot be changed: delete {owner.name} where id = "…", and insert it again'
    return Finding(
        bad.code,
        owner.table,
        f"{bad.total} row(s) have values of {owner.name}.{name} {bad.fault}: {shown}{rest}",
        todo,
        {
            "property": name,
            "ids": bad.ids,
            "total": bad.total,
            "listed_max": VIOLATIONS_LISTED,
        },
    )
