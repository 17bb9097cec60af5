"""Column file: the values of one property of a node table on disk, by number, memory-mapped.

    values            numbers, dates and moments, fixed width; truth values one bit each
    offsets, text     texts, in the order of their numbers
    valid             one bit a number: whether it has a value, where some have none

Invariant: a file is of one table version and of the numbering of one node file, which it names. Its
arrays are laid out as Arrow lays them out, so that a whole column is mapped without a copy. No
value is used before the checksum of its block was compared.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.storage.derived.mapped_file import BlockArray, DamagedFile, MappedFile


def column_kind(property_id: int) -> str:
    """The kind of file that holds a property."""
    return f"column{property_id}"


def is_column_kind(kind: str) -> bool:
    """Whether a kind of file is that of a column."""
    return kind.startswith("column")


def can_be_filed(stored: pa.DataType) -> bool:
    """Whether values of an Arrow type have a file: single values of fixed width, and texts."""
    return bool(pa.types.is_string(stored) or pa.types.is_boolean(stored)) or (
        _number_type(stored) is not None
    )


def _number_type(stored: pa.DataType) -> pa.DataType | None:
    """The type of the numbers that values of a fixed width are kept as."""
    if pa.types.is_date32(stored):
        return pa.int32()
    if pa.types.is_timestamp(stored):
        return pa.int64()
    return stored if pa.types.is_integer(stored) or pa.types.is_floating(stored) else None


class ColumnFile:
    """One column file, open."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        try:
            self.nodes = str(file.facts["nodes"])
            self.type = str(file.facts["type"])
            self.count = int(file.facts["values"])
            self._valid = _blocks(file, "valid") if file.has("valid") else None
            self._offsets = _blocks(file, "offsets") if file.has("offsets") else None
            self._values = _blocks(file, "values" if self._offsets is None else "text")
        except (KeyError, TypeError, ValueError) as cause:
            raise DamagedFile(file.path, f"it lacks {cause}") from cause
        self._is_bits = self.type == "bool"

    def value(self, number: int) -> Any:
        """One value: None, a number, a truth value or a text."""
        if self._valid is not None and not self._valid.item(number >> 3) >> (number & 7) & 1:
            return None
        if self._offsets is not None:
            first, end = self._offsets.item(number), self._offsets.item(number + 1)
            return self._values.slice(first, end).tobytes().decode()
        if self._is_bits:
            return bool(self._values.item(number >> 3) >> (number & 7) & 1)
        return self._values.item(number)

    def whole(self, stored: pa.DataType) -> pa.Array:
        """All values by number, in the memory of the file."""
        buffers = [None if self._valid is None else pa.py_buffer(self._valid.whole())]
        if self._offsets is not None:
            buffers.append(pa.py_buffer(self._offsets.whole()))
        buffers.append(pa.py_buffer(self._values.whole()))
        return pa.Array.from_buffers(stored, self.count, buffers)


def _blocks(file: MappedFile, name: str) -> BlockArray:
    array = file.array(name)
    if not isinstance(array, BlockArray):
        raise DamagedFile(file.path, f"{name} is no array")
    return array


def column_arrays(values: pa.Array, nodes: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The facts and arrays of a column file: values by number, of a node file by its digest."""
    facts = {"values": len(values), "type": str(values.type), "nodes": nodes}
    arrays: dict[str, np.ndarray] = {}
    if values.null_count:
        arrays["valid"] = _bits(values.is_valid())
    if pa.types.is_string(values.type):
        arrays |= _texts(values)
    elif pa.types.is_boolean(values.type):
        arrays["values"] = _bits(values.fill_null(False))
    else:
        numbers = values.view(_number_type(values.type))
        arrays["values"] = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return facts, arrays


def _bits(flags: pa.Array) -> np.ndarray:
    return np.packbits(flags.to_numpy(zero_copy_only=False), bitorder="little")


def _texts(values: pa.Array) -> dict[str, np.ndarray]:
    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, np.int32)[values.offset : values.offset + len(values) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    text = np.zeros(0, np.uint8)
    if data is not None and last > first:
        text = np.frombuffer(data, np.uint8)[first:last]
    return {"offsets": offsets - np.int32(first), "text": text}
