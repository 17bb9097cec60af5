"""Row-rule faults of a bulk load: required, enum, range and check, of rows whole or read in part.

Invariant: a cell that could not be read breaks no rule, for its fault is told already. The other
cells of its row are held to every rule, so one load tells all that is wrong with its first rows.
"""

from collections.abc import Mapping, Set
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.rules.faults import Faults
from omnigraph.exec.rules.row_rules import broken, check_rows
from omnigraph.exec.rules.rules import Required, rules_of
from omnigraph.exec.values.columns import in_one

REJECTS_SHOWN = 1_000
LOOKED_AT = 16
"""Rows that break one rule whose values are read: among these are a few that differ."""

Unread = Mapping[str, Set[int]]
"""Rows whose cell could not be read, by column."""


def rule_faults(
    owner: Owner,
    rows: pa.Table,
    lines: pa.Array,
    part: int,
    file: str | None,
    *,
    keep_rejects: bool,
    unread: Unread | None = None,
    are_partial: bool = False,
) -> Faults:
    """The faults of rows against the row rules of their type. Rows of a patch are partial: a
    property that they do not give may be there."""
    faults = Faults(keep_rejects)
    for rule in rules_of(owner).rows:
        if are_partial and isinstance(rule, Required):
            continue
        wrong = pc.indices_nonzero(broken(rule, in_one(rows.column(rule.column))))
        skipped = (unread or {}).get(rule.column)
        if skipped:
            known = pa.array(sorted(skipped), wrong.type)
            wrong = wrong.filter(pc.invert(pc.is_in(wrong, value_set=known)))
        if not len(wrong):
            continue
        shown = wrong[: REJECTS_SHOWN if keep_rejects else LOOKED_AT]
        violations = [
            check_rows([rule], rows.slice(row, 1)).violations[0] for row in shown.to_pylist()
        ]
        numbers = lines.take(shown).to_pylist()
        named = [replace(v, file=file, line=n) for v, n in zip(violations, numbers, strict=True)]
        faults.add_many(part, named, len(wrong))
    return faults
