"""Compaction policy: which small or worn fragments are rewritten together as one.

Invariant: while a table grows, a row is rewritten a few times, however often upkeep runs. A run
over fragments that are large enough names none.
"""

from collections.abc import Iterable, Mapping, Sequence

from lance.fragment import LanceFragment

TARGET_ROWS = 1_048_576
SMALL_ROWS = 65_536
"""Fragments that are rewritten without asking whether it pays."""

GROWTH = 4
"""A larger fragment is rewritten together with others that make up at least its fourth part: so a
row is rewritten a few times while its table grows, not at every run."""

DELETED_SHARE = 0.1
"""A fragment with more of its rows deleted is rewritten."""


def merge_groups(
    fragments: Iterable[LanceFragment], apart: Mapping[int, object] | None = None
) -> tuple[tuple[int, ...], ...]:
    """Fragments that should become one each, smallest first.

    `apart` keeps fragments in different groups: those that an index foreign to the schema covers,
    and those it does not.
    """
    kinds: dict[object, list[tuple[int, int, bool]]] = {}
    for fragment in fragments:
        rows, deleted = fragment.metadata.physical_rows, fragment.num_deletions
        worn = deleted > DELETED_SHARE * rows
        number = fragment.fragment_id
        kinds.setdefault((apart or {}).get(number), []).append((rows - deleted, number, worn))
    return tuple(group for kind in kinds.values() for group in _groups(sorted(kind)))


def _groups(fragments: Sequence[tuple[int, int, bool]]) -> Iterable[tuple[int, ...]]:
    """Groups of one kind of fragments: rows, number, and whether rewriting pays by itself."""
    group: list[int] = []
    total, worn = 0, False
    for rows, number, is_worn in fragments:
        pays = rows <= max(SMALL_ROWS, GROWTH * total)
        if group and not (pays and total + rows <= TARGET_ROWS):
            if len(group) > 1 or worn:
                yield tuple(sorted(group))
            group, total, worn = [], 0, False
        group.append(number)
        total, worn = total + rows, worn or is_worn
    if len(group) > 1 or worn:
        yield tuple(sorted(group))
