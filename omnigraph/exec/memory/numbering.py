"""Dictionary encoding of node ids: every id read of a type's tables, each with a dense number.

Invariant: numbers are given out in order and never change, so a longer dictionary of one family
agrees with every shorter one, and adjacency built on numbers stays right when nodes are added. Two
dictionaries of different families have nothing in common.
"""

from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.exec.values.rows import as_numpy, gather
from omnigraph.exec.values.string_column import StringColumn


def _order_of(strings: pa.Array) -> np.ndarray:
    """The sort order of ids. They are often sorted already, and checking that costs a fraction of a
    sort."""
    if len(strings) < 2 or pc.all(pc.less(strings[:-1], strings[1:])).as_py():
        return np.arange(len(strings))
    order: np.ndarray = pc.array_sort_indices(strings).to_numpy().astype(np.int64)
    return order


class Ids:
    """An immutable dictionary: id to number and back, and the sort order of ids."""

    def __init__(self, strings: pa.Array, family: object | None = None) -> None:
        self._strings = strings
        self.family = family if family is not None else object()
        self._order: np.ndarray | None = None
        self._rank: np.ndarray | None = None
        self._texts: StringColumn | None = None
        self._turn = Lock()

    def __len__(self) -> int:
        return len(self._strings)

    @property
    def strings(self) -> pa.Array:
        """All ids, by number."""
        return self._strings

    def ids_of(self, numbers: np.ndarray) -> pa.Array:
        """The ids of some numbers, null at -1."""
        return gather(self.strings, numbers)

    @property
    def bytes_held(self) -> int:
        return int(self.strings.nbytes) + 16 * len(self.strings)

    @property
    def order(self) -> np.ndarray:
        """The numbers in ascending order of their ids."""
        if self._order is None:
            with self._turn:
                if self._order is None:
                    self._order = _order_of(self.strings)
        return self._order

    @property
    def rank(self) -> np.ndarray:
        """The rank of each number in that order."""
        if self._rank is None:
            rank = np.empty(len(self), np.int64)
            rank[self.order] = np.arange(len(self))
            self._rank = rank
        return self._rank

    @property
    def is_sorted(self) -> bool:
        """Whether the order is known already."""
        return self._order is not None

    def find(self, id: str) -> int:
        """The number of one id by binary search, or -1."""
        data = id.encode("utf-8", "surrogatepass")
        order = self.order.data
        rank = self.texts.first_not_less(order, data)
        if rank < len(order):
            number: int = order[rank]
            if self.texts.bytes_at(number) == data:
                return number
        return -1

    @property
    def texts(self) -> StringColumn:
        """The ids as single strings."""
        if self._texts is None:
            self._texts = StringColumn(self.strings)
        return self._texts

    def locate(self, ids: pa.Array) -> np.ndarray:
        """The numbers of many ids, -1 for those that the dictionary lacks."""
        if len(ids) * COSTS.id_search_cost_ids <= len(self) and self.is_sorted:
            return np.array([self.find(each) for each in ids.to_pylist()], np.int64)
        numbers = pc.index_in(ids, value_set=self.strings)
        return as_numpy(numbers.fill_null(-1)).astype(np.int64)

    def extended(self, more: pa.Array) -> "Ids":
        """The same numbers, and further ones for ids that are new and distinct."""
        longer = Ids(pa.concat_arrays([self.strings, more]), self.family)
        if self._order is not None and len(more) <= COSTS.inserted_ids_max:
            longer._order = self._order_with(more)
        return longer

    def _order_with(self, more: pa.Array) -> np.ndarray:
        """The order with a few new ids inserted: sorting again would cost a sort of all."""
        among = pc.array_sort_indices(more).to_numpy().astype(np.int64)
        order = self.order.data
        new = (more[int(each)].as_py().encode() for each in among)
        ranks = [self.texts.first_not_less(order, each) for each in new]
        return np.insert(self.order, ranks, len(self) + among)
