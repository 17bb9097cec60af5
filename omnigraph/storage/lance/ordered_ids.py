"""Binary search for an id in the fragments of a table whose ids ascend, as minted ones do.

Invariant: a row id that is given is that of the id in this version. None says nothing: in a
fragment whose ids do not ascend a row may be missed, and the caller looks for it another way.
"""

from collections.abc import Callable

from lance.fragment import LanceFragment

from omnigraph.costs import COSTS
from omnigraph.lru import Lru
from omnigraph.storage.lance.columns import KEY, ROW_ID
from omnigraph.storage.lance.datasets import Handle, files_of

Bounds = tuple[str, str]
Probe = Callable[[int], tuple[str, int]]


class OrderedIds:
    """First and last ids of fragments, kept while a graph is open. Threads may share it."""

    def __init__(self) -> None:
        self._bounds: Lru[tuple[str, ...], Bounds] = Lru(COSTS.ordered_bounds_max)

    def find(self, handle: Handle, entity: str) -> int | None:
        """The row id of an id, if a search of the fragments that may hold it comes upon it."""
        fragments = handle.get_fragments()
        if len(fragments) > COSTS.ordered_fragments_max:
            return None
        for fragment in fragments:
            rows = fragment.count_rows()
            probe = _probe(handle, fragment)
            if not rows:
                continue
            first, last = self._bounds_of(fragment, probe, rows)
            if first <= entity <= last:
                row_id = _searched(probe, rows, entity)
                if row_id is not None:
                    return row_id
        return None

    def _bounds_of(self, fragment: LanceFragment, probe: Probe, rows: int) -> Bounds:
        # Of a fragment that lost rows the bounds are still bounds.
        key = files_of(fragment)
        known = self._bounds.get(key)
        if known is None:
            known = probe(0)[0], probe(rows - 1)[0]
            self._bounds.put(key, known)
        return known

    def clear(self) -> None:
        """Forget everything."""
        self._bounds.clear()


def _probe(handle: Handle, fragment: LanceFragment) -> Probe:
    def probe(position: int) -> tuple[str, int]:
        rows = handle.scanner(
            columns=[KEY], fragments=[fragment], offset=position, limit=1, with_row_id=True
        ).to_table()
        return rows[KEY][0].as_py(), rows[ROW_ID][0].as_py()

    return probe


def _searched(probe: Probe, rows: int, entity: str) -> int | None:
    low, high = 0, rows
    while low < high:
        middle = (low + high) // 2
        seen, row_id = probe(middle)
        if seen == entity:
            return row_id
        low, high = (middle + 1, high) if seen < entity else (low, middle)
    return None
