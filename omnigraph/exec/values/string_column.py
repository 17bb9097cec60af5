"""Binary search in a string column of Arrow, over its raw buffers.

Invariant: texts compare by their UTF-8 bytes, as Arrow sorts them. An Arrow scalar costs more than
everything else a step of a binary search does, so the search reads the buffers.
"""

import numpy as np
import pyarrow as pa


class StringColumn:
    """A column of strings by position. Where a text is null, its bytes are empty."""

    __slots__ = ("_data", "_offsets", "array")

    def __init__(self, array: pa.Array) -> None:
        self.array = array
        _, offsets, data = array.buffers()
        width = np.int64 if pa.types.is_large_string(array.type) else np.int32
        if offsets is None or not len(array):
            starts = np.zeros(1, width)
        else:
            starts = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
        self._offsets = starts.data
        self._data = memoryview(b"" if data is None else data)

    def bytes_at(self, position: int) -> bytes:
        """The text at a position."""
        offsets = self._offsets
        return self._data[offsets[position] : offsets[position + 1]].tobytes()

    def first_not_less(self, order: memoryview, text: bytes) -> int:
        """Lower bound: the first index in an ascending order of positions with no lesser text."""
        offsets, data = self._offsets, self._data
        low, high = 0, len(order)
        while low < high:
            middle = (low + high) >> 1
            position = order[middle]
            if data[offsets[position] : offsets[position + 1]].tobytes() < text:
                low = middle + 1
            else:
                high = middle
        return low

    def equal_to(self, order: memoryview, text: bytes) -> tuple[int, int]:
        """Equal range: the first index in the order with this text, and the one behind the last."""
        first = last = self.first_not_less(order, text)
        if first == len(order) or self.bytes_at(order[first]) != text:
            return first, first
        step = 1  # most texts occur once or a few times, so the end is looked for from here
        while last + step < len(order) and self.bytes_at(order[last + step]) == text:
            last += step
            step *= 2
        high = min(last + step, len(order))
        while last + 1 < high:
            middle = (last + high) >> 1
            if self.bytes_at(order[middle]) == text:
                last = middle
            else:
                high = middle
        return first, last + 1
