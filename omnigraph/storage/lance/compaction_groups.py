"""Compaction policy: which small or worn fragments are rewritten together as one.

Invariant: while a table grows, a row is rewritten a few times, however often upkeep runs. A run
over fragments that are large enough names none.
"""

from collections.abc import Iterable, Mapping, Sequence

from lance.fragment import LanceFragment

from omnigraph.costs import COSTS


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
        worn = deleted > COSTS.compact_deleted_share_max * rows
        number = fragment.fragment_id
        kinds.setdefault((apart or {}).get(number), []).append((rows - deleted, number, worn))
    return tuple(group for kind in kinds.values() for group in _groups(sorted(kind)))


def _groups(fragments: Sequence[tuple[int, int, bool]]) -> Iterable[tuple[int, ...]]:
    """Groups of one kind of fragments: rows, number, and whether rewriting pays by itself."""
    group: list[int] = []
    total, worn = 0, False
    for rows, number, is_worn in fragments:
        pays = rows <= max(COSTS.compact_small_rows_max, COSTS.compact_growth * total)
        if group and not (pays and total + rows <= COSTS.compact_rows_max):
            if len(group) > 1 or worn:
                yield tuple(sorted(group))
            group, total, worn = [], 0, False
        group.append(number)
        total, worn = total + rows, worn or is_worn
    if len(group) > 1 or worn:
        yield tuple(sorted(group))
