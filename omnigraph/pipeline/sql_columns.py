"""Column pruning of SQL statements: the columns of a table that a statement may read.

Spark prunes no column of a Python data source, so the table is narrowed before the statement sees
it.

Invariant: a column that a statement needs is never left out. It needs those whose names are words
of it; where it may need others without naming them (a star, a pivot, a natural join, a name that is
only known later), all are kept.
"""

import re
from collections.abc import Sequence

_UNNAMED = frozenset({"natural", "pivot", "unpivot", "table", "identifier", "using", "lateral"})
"""Words of statements that may read columns which they do not name."""

_COUNTED = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.I)
_BEGINS = re.compile(r"\s*(select|with)\b", re.I)
_PLACEHOLDER = re.compile(r"[{}:?]")


def columns_of(statement: str, columns: Sequence[str]) -> list[str] | None:
    """The columns that a statement may read, at least one; None when it may read all."""
    counted = _COUNTED.sub("count(1)", statement)
    words = {word.lower() for word in re.findall(r"\w+", counted)}
    is_plain = _BEGINS.match(counted) is not None and "*" not in counted
    if not is_plain or words & _UNNAMED or _PLACEHOLDER.search(counted):
        return None
    named = [name for name in columns if name.lower() in words]
    return named or list(columns[:1])
