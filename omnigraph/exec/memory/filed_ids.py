"""Fast path of: the dictionary of ids in memory (`numbering`) — mapped from a node file.

Reference: `exec/memory/numbering.py`, the ids of a table read whole.
Held equal by: `test_TP_reading_with_files_gives_the_rows_of_the_naive_evaluator` and
`test_TP1_a_file_gives_every_id_its_number_and_back`.
Falls back: when a table has no file, when its file is too far behind, and when a block of it is
damaged; then the ids are read from the table.

Invariant: ids of the file have the numbers of the file, and ids that are newer have numbers behind
them, given out once for all versions of a family.
"""

import numpy as np
import pyarrow as pa

from omnigraph.costs import COSTS
from omnigraph.exec.memory.numbering import Ids
from omnigraph.exec.values.rows import gather
from omnigraph.storage.derived.node_file import NodeFile


class FiledIds(Ids):
    """The ids of a node file, and newer ones in memory."""

    def __init__(
        self,
        file: NodeFile,
        newer: pa.Array | None = None,
        numbers: dict[str, int] | None = None,
        family: object | None = None,
    ) -> None:
        kind = pa.large_string() if file.is_wide else pa.string()
        super().__init__(pa.array([], kind) if newer is None else newer, family)
        self.file = file
        self._numbers = {} if numbers is None else numbers  # shared by the family
        self._whole: pa.Array | None = None

    def __len__(self) -> int:
        return self.file.count + len(self._strings)

    @property
    def strings(self) -> pa.Array:
        if self._whole is None:
            strings = self.file.strings
            newer = len(self._strings)
            self._whole = pa.concat_arrays([strings, self._strings]) if newer else strings
        return self._whole

    @property
    def bytes_held(self) -> int:
        return int(self._strings.nbytes) + 64 * len(self._strings) + 4096

    def ids_of(self, numbers: np.ndarray) -> pa.Array:
        if self._whole is not None or not len(numbers):
            return gather(self.strings, numbers) if len(numbers) else self._strings.slice(0, 0)
        if numbers.min() >= 0 and numbers.max() < self.file.count:
            return self.file.ids_of(numbers)
        old = (numbers >= 0) & (numbers < self.file.count)
        ids = pa.concat_arrays([self.file.ids_of(numbers[old]), self._strings])
        indexes = np.full(len(numbers), -1)
        indexes[old] = np.arange(np.count_nonzero(old))
        new = numbers >= self.file.count
        indexes[new] = numbers[new] - self.file.count + np.count_nonzero(old)
        return gather(ids, indexes)

    def find(self, id: str) -> int:
        number = self._numbers.get(id)
        if number is not None:
            return number if number < len(self) else -1
        return self.file.find(id.encode("utf-8", "surrogatepass"))

    def locate(self, ids: pa.Array) -> np.ndarray:
        if len(ids) <= COSTS.filed_ids_one_by_one_max:
            listed = ids.to_pylist()
            return np.array([-1 if e is None else self.find(e) for e in listed], np.int64)
        located = self.file.locate(ids)
        if len(self._strings):
            missing = np.flatnonzero(located < 0)
            size = len(self)
            for index, each in zip(
                missing.tolist(), ids.take(pa.array(missing)).to_pylist(), strict=True
            ):
                number = self._numbers.get(each, -1)
                located[index] = number if number < size else -1
        return located

    def extended(self, more: pa.Array) -> "FiledIds":
        first, numbers, family = len(self), self._numbers, self.family
        if len(numbers) > len(self._strings):
            # A longer dictionary of the family gave these numbers to other ids.
            own = enumerate(self._strings.to_pylist(), start=self.file.count)
            numbers, family = {each: number for number, each in own}, object()
        numbers.update((each, number) for number, each in enumerate(more.to_pylist(), start=first))
        newer = pa.concat_arrays([self._strings, more.cast(self._strings.type)])
        return FiledIds(self.file, newer, numbers, family)
