"""Memory-mapped file of typed arrays (mmap) with a checksum for every block of 4 KiB.

    prelude   magic, format, length of the facts, length of the arrays
    facts     JSON: what the file is of, and where each array lies
    sums      CRC-32 of each block of the arrays; blocks of a file past 512 MiB are larger
    arrays    from the next block on; each begins at a multiple of 64 bytes

Invariant: no byte of an array is used before the checksum of its block was compared once in this
process, and the digest in the file's name covers everything before the arrays, checksums included.
So a file that is damaged, cut, older or another's raises `DamagedFile` and never gives a wrong
number. Files are never changed in place: a mapping stays good when the file is removed.
"""

import hashlib
import mmap
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson

from omnigraph import number_arrays
from omnigraph.costs import COSTS
from omnigraph.light_dataclass import dataclass

MAGIC = b"OGDERIVD"
FORMAT = 2
_COARSE = 1  # the format before it, whose blocks all have the size of the largest
BLOCK = 1 << 12
"""Bytes of a block, but in huge files. A lookup compares the few blocks that it is the first to
touch: of 64 KiB each they took most of its time, the more the larger the file."""

_SHIFT = 12
_SHIFT_MAX = 16
_BLOCKS_MAX = 1 << 17  # their checksums are read whole when the file is opened
_ALIGNED = 64
_PRELUDE = struct.Struct("<8sIIQ")
_HEADER_MAX = 64 << 20

RANGES = frozenset({"row_ids", "out_edges", "in_edges"})
"""Arrays that may be kept as a first number and a count, when their numbers follow each other."""


class DamagedFile(Exception):
    """Corrupt, truncated or foreign derived file: it is ignored, and made again."""

    def __init__(self, path: Path, fact: str) -> None:
        super().__init__(f"{path}: {fact}")
        self.path = path
        self.fact = fact

    @property
    def is_unreadable(self) -> bool:
        """Whether the system did not give its bytes: it is gone, or a process has too many files
        open. Its bytes may be good."""
        return isinstance(self.__cause__, OSError)


class NumberArray(Protocol):
    """An array of integers in a file. What a method returns has been verified."""

    def __len__(self) -> int: ...

    def take(self, indexes: np.ndarray) -> np.ndarray:
        """The numbers at these indexes."""
        ...

    def slice(self, first: int, end: int) -> np.ndarray:
        """The numbers from one index to another."""
        ...

    def whole(self) -> np.ndarray:
        """All numbers."""
        ...


class NumberRange:
    """Numbers that follow each other: kept as the first of them and their count."""

    __slots__ = ("_count", "_dtype", "_first")

    def __init__(self, first: int, count: int, dtype: str) -> None:
        self._first = first
        self._count = count
        self._dtype = np.dtype(dtype)

    def __len__(self) -> int:
        return self._count

    def take(self, indexes: np.ndarray) -> np.ndarray:
        numbers = indexes.astype(self._dtype)
        numbers += self._dtype.type(self._first)
        return numbers

    def slice(self, first: int, end: int) -> np.ndarray:
        return np.arange(self._first + first, self._first + end, dtype=self._dtype)

    def whole(self) -> np.ndarray:
        return self.slice(0, self._count)


class BlockArray:
    """Numbers in the blocks of a mapped file."""

    __slots__ = ("_compared", "_end", "_file", "_first", "_shift", "_view", "_width")

    def __init__(self, file: "MappedFile", view: np.ndarray, offset: int) -> None:
        self._file = file
        self._view = view
        self._first, self._end = offset, offset + view.nbytes
        self._width = view.dtype.itemsize
        self._shift = file.shift
        self._compared = file.compared

    def __len__(self) -> int:
        return len(self._view)

    def take(self, indexes: np.ndarray) -> np.ndarray:
        self.verify(indexes)
        taken: np.ndarray = self._view[indexes]
        return taken

    def verify(self, indexes: np.ndarray) -> None:
        """Compare the checksums of the blocks that these indexes lie in."""
        file = self._file
        if not len(indexes) or file.is_verified_between(self._first, self._end):
            return
        if (
            len(indexes) > COSTS.verify_whole_reads_min
            and len(indexes) * self._width * 4 > self._view.nbytes
        ):
            file.verify(self._first, self._end)
            return
        blocks = indexes.astype(np.int64)
        blocks *= self._width
        blocks += self._first
        blocks >>= self._shift
        for block in _once(blocks, self._end >> self._shift).tolist():
            file.verify_block(block)

    def slice(self, first: int, end: int) -> np.ndarray:
        width, offset = self._width, self._first
        self._file.verify(offset + first * width, offset + end * width)
        return self._view[first:end]

    def whole(self) -> np.ndarray:
        return self.slice(0, len(self._view))

    def item(self, index: int) -> Any:
        """One number, as Python has it."""
        block = (index * self._width + self._first) >> self._shift
        if not self._compared[block]:
            self._file.verify_block(block)
        return self._view.item(index)

    @property
    def unverified(self) -> np.ndarray:
        """All numbers as they are in the file, for a caller that verifies what it uses."""
        return self._view


@dataclass(slots=True)
class _Blocks:
    """The checksums of a file's blocks, and which of them were compared."""

    sums: memoryview
    compared: bytearray
    left: int


class MappedFile:
    """One derived file, open. Safe to share between threads."""

    def __init__(self, path: Path, digest: str) -> None:
        self.path = path
        self.digest = digest
        try:
            with path.open("rb", buffering=0) as stream:
                self.size = os.fstat(stream.fileno()).st_size
                header = _header(path, stream, digest, self.size)
                map_ = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as cause:
            raise DamagedFile(path, str(cause)) from cause
        self.facts, self._sections, self.shift = header.facts, header.sections, header.shift
        self._data = memoryview(map_)[header.first : header.first + header.length]
        count = len(header.sums)
        self._blocks = _Blocks(header.sums.data, bytearray(count), count)

    @property
    def compared(self) -> bytearray:
        """For each block a byte that is not 0 once it was compared."""
        return self._blocks.compared

    @property
    def is_verified(self) -> bool:
        """Whether every block was compared."""
        return not self._blocks.left

    def array(self, name: str) -> NumberArray:
        """An array by its name."""
        dtype, first, count, is_range = self._sections[name]
        if is_range:
            return NumberRange(first, count, dtype)
        width = np.dtype(dtype).itemsize
        view = np.frombuffer(self._data[first : first + count * width], dtype)
        return BlockArray(self, view, first)

    def has(self, name: str) -> bool:
        """Whether there is an array of this name."""
        return name in self._sections

    def verify(self, first: int, end: int) -> None:
        """Compare the checksums of the blocks between two offsets."""
        blocks = self._blocks
        if not blocks.left or end <= first:
            return
        end_block = ((end - 1) >> self.shift) + 1
        block = blocks.compared.find(0, first >> self.shift, end_block)
        while block >= 0:
            self.verify_block(block)
            block = blocks.compared.find(0, block + 1, end_block)

    def is_verified_between(self, first: int, end: int) -> bool:
        """Whether every block between two offsets was compared."""
        blocks = self._blocks
        if not blocks.left or end <= first:
            return True
        return blocks.compared.find(0, first >> self.shift, ((end - 1) >> self.shift) + 1) < 0

    def verify_all(self) -> None:
        """Compare the checksum of every block."""
        self.verify(0, len(self._data))

    def verify_block(self, block: int) -> None:
        """Compare the checksum of one block, once."""
        blocks = self._blocks
        if blocks.compared[block]:
            return
        data = self._data[block << self.shift : (block + 1) << self.shift]
        if zlib.crc32(data) != blocks.sums[block]:
            raise DamagedFile(self.path, f"the checksum of block {block} is wrong")
        blocks.compared[block] = 1
        blocks.left = blocks.compared.count(0) if blocks.left < 64 else blocks.left - 1


def _once(blocks: np.ndarray, last: int) -> np.ndarray:
    """The numbers of blocks, each once. Of many a flag for each block is faster than order."""
    if len(blocks) <= last:
        return number_arrays.distinct(blocks)
    touched = np.zeros(last + 1, bool)
    touched[blocks] = True
    return np.flatnonzero(touched)


_Section = tuple[str, int, int, bool]
"""Its type, its offset (or first number), its length, and whether it is a range."""


@dataclass(slots=True)
class _Header:
    """What precedes the arrays, and where they lie."""

    facts: dict[str, Any]
    sections: dict[str, _Section]
    sums: np.ndarray
    first: int
    length: int
    shift: int


def _shift_of(length: int) -> int:
    """The size of a block, as a power of two, of a file whose arrays take so many bytes."""
    return min(max(_SHIFT, (max(length - 1, 0) // _BLOCKS_MAX).bit_length()), _SHIFT_MAX)


def _header(path: Path, stream: Any, digest: str, size: int) -> _Header:
    start = stream.read(1 << _SHIFT_MAX)
    if len(start) < _PRELUDE.size:
        raise DamagedFile(path, "it is too short")
    magic, format, facts_length, length = _PRELUDE.unpack_from(start)
    if magic != MAGIC or format not in (_COARSE, FORMAT):
        raise DamagedFile(path, f"it is no file of format {FORMAT}")
    shift = _SHIFT_MAX if format == _COARSE else _shift_of(length)
    count = -(-length >> shift)
    end = _PRELUDE.size + facts_length + 4 * count
    first = -(-end >> shift) << shift
    if end > _HEADER_MAX or first + length != size:
        raise DamagedFile(path, f"it has {size} bytes and should have {first + length}")
    while len(start) < end:
        more = stream.read(end - len(start))
        if not more:
            raise DamagedFile(path, "it is too short")
        start += more
    if _digest(start[:end]) != digest:
        raise DamagedFile(path, "its header is not the one its name tells")
    document = orjson.loads(start[_PRELUDE.size : _PRELUDE.size + facts_length])
    sections = {name: _section(each) for name, each in document["arrays"].items()}
    sums = np.frombuffer(start[end - 4 * count : end], "<u4")
    return _Header(document["facts"], sections, sums, first, length, shift)


def _section(each: list[Any]) -> _Section:
    dtype, first, count, is_range = each
    return str(dtype), int(first), int(count), bool(is_range)


def _digest(header: bytes) -> str:
    return hashlib.blake2b(header, digest_size=16).hexdigest()


def write_file(
    path: Path, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[str, int]:
    """Write a file and sync it to disk; its digest and its size. It gets its name by a rename."""
    sections: dict[str, _Section] = {}
    parts: list[memoryview | bytes] = []
    offset = 0
    for name, array in arrays.items():
        if name in RANGES and _is_range(array):
            sections[name] = (array.dtype.str, int(array[0]), len(array), True)
            continue
        sections[name] = (array.dtype.str, offset, len(array), False)
        data = np.ascontiguousarray(array).data.cast("B") if len(array) else b""
        padding = -len(data) % _ALIGNED
        parts += [data, bytes(padding)]
        offset += len(data) + padding
    shift = _shift_of(offset)
    padding = -offset % (1 << shift)
    parts.append(bytes(padding))
    length = offset + padding
    sums = _sums(parts, length, 1 << shift)
    document = orjson.dumps({"facts": dict(facts), "arrays": sections})
    header = _PRELUDE.pack(MAGIC, FORMAT, len(document), length) + document + sums.tobytes()
    with path.open("xb", buffering=0) as stream:
        _write_all(stream, header)
        _write_all(stream, bytes(-len(header) % (1 << shift)))
        for part in parts:
            _write_all(stream, part)
        os.fsync(stream.fileno())
        size = os.fstat(stream.fileno()).st_size
    return _digest(header), size


def _is_range(array: np.ndarray) -> bool:
    if len(array) < 2 or array.dtype.kind not in "iu":
        return False
    if int(array[-1]) - int(array[0]) != len(array) - 1:
        return False
    return bool((array[1:] > array[:-1]).all())


def _sums(parts: list[memoryview | bytes], length: int, size: int) -> np.ndarray:
    sums = np.zeros(length // size, "<u4")
    block, filled, value = 0, 0, 0
    for part in parts:
        view, done = memoryview(part), 0
        while done < len(view):
            step = min(size - filled, len(view) - done)
            value = zlib.crc32(view[done : done + step], value)
            done, filled = done + step, filled + step
            if filled == size:
                sums[block] = value
                block, filled, value = block + 1, 0, 0
    return sums


def _write_all(stream: Any, data: memoryview | bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[stream.write(view[: 1 << 30]) :]
