"""Node file: the dictionary of a node table's ids on disk, with a hash index from id to number.

    offsets, text      the ids in the order of their numbers
    hashes, numbers    the hashes of the ids, ascending, and the number of each
    buckets            where the hashes with each leading bits begin
    row_ids, gone      the row id of each number, and the numbers that have no row

Invariant: a number belongs to its id: a file that follows another keeps the numbers of that one,
and lists it in its lineage. A hash says where to look, and the text itself is compared.
"""

import secrets
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.number_arrays import to_arrow
from omnigraph.storage.derived.mapped_file import (
    BLOCK,
    BlockArray,
    DamagedFile,
    MappedFile,
    NumberArray,
)
from omnigraph.storage.derived.text_hash import TextHash

NO_ROW = np.uint64(2**64 - 1)
"""The row id of a number whose id has no row."""

_BUCKET = 8
"""Hashes that share a bucket, on average."""


class NodeFile:
    """One node file, open."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.digest = file.digest
        try:
            self.count = int(file.facts["ids"])
            self.lineage = frozenset([file.digest, *map(str, file.facts["lineage"])])
            self.id_columns = frozenset(map(int, file.facts["id_columns"]))
            self._hash = TextHash(int(file.facts["seed"], 16))
            self._shift = int(file.facts["shift"])
            self._offsets = _blocks(file, "offsets")
            self._text = _blocks(file, "text")
            self._hashes, self._numbers = _blocks(file, "hashes"), _blocks(file, "numbers")
            self._buckets = _blocks(file, "buckets")
            self.row_ids: NumberArray = file.array("row_ids")
            self.gone = np.sort(file.array("gone").whole()).astype(np.int64)
        except (KeyError, TypeError, ValueError) as cause:
            raise DamagedFile(file.path, f"it lacks {cause}") from cause
        self._strings: pa.Array | None = None
        self.in_order = bool(file.facts.get("in_order"))

    @property
    def is_wide(self) -> bool:
        """Whether the ids together are longer than 32-bit offsets reach."""
        return self._offsets.unverified.dtype.itemsize == 8

    def find(self, data: bytes) -> int:
        """The number of one id, or -1."""
        if not self.count:
            return -1
        sought = self._hash.of(data)
        bucket = sought >> self._shift
        first, end = self._buckets.item(bucket), self._buckets.item(bucket + 1)
        hashes = self._hashes.slice(first, end).tolist()
        for index, each in enumerate(hashes, start=first):
            if each == sought:
                number: int = self._numbers.item(index)
                if self.bytes_of(number) == data:
                    return number
        return -1

    def bytes_of(self, number: int) -> bytes:
        """The id of one number."""
        first, end = self._offsets.item(number), self._offsets.item(number + 1)
        return self._text.slice(first, end).tobytes()

    def id_of(self, number: int) -> str:
        """The id of one number, as text."""
        return self.bytes_of(number).decode("utf-8", "surrogatepass")

    def locate(self, ids: pa.Array) -> np.ndarray:
        """The numbers of many ids, -1 for those that are not here."""
        numbers = np.full(len(ids), -1, np.int64)
        if not self.count or not len(ids):
            return numbers
        valid = np.flatnonzero(ids.is_valid().to_numpy(zero_copy_only=False))
        sought = self._hash.of_all(ids if len(valid) == len(ids) else ids.fill_null(""))[valid]
        order = np.argsort(sought, kind="stable")
        hashes = self._hashes.whole()
        index = np.empty(len(sought), np.int64)
        index[order] = np.searchsorted(hashes, sought[order])
        rows, left = valid, sought
        while len(rows):
            inside = index < self.count
            rows, index, left = rows[inside], index[inside], left[inside]
            same = hashes[index] == left
            rows, index, left = rows[same], index[same], left[same]
            candidates = self._numbers.take(index).astype(np.int64)
            equal = pc.equal(self.ids_of(candidates), ids.take(pa.array(rows)))
            hits = equal.to_numpy(zero_copy_only=False).astype(bool)
            numbers[rows[hits]] = candidates[hits]
            rows, index, left = rows[~hits], index[~hits] + 1, left[~hits]
        return numbers

    def ids_of(self, numbers: np.ndarray) -> pa.Array:
        """The ids of some numbers."""
        if self._strings is None:
            self._verify_ids(numbers)
        return self._array().take(to_arrow(numbers))

    @property
    def strings(self) -> pa.Array:
        """All ids in the order of their numbers."""
        if self._strings is None:
            self._offsets.whole()
            self._text.whole()
            self._strings = self._array()
        return self._strings

    def _verify_ids(self, numbers: np.ndarray) -> None:
        if self.file.is_verified or not len(numbers):
            return
        if len(numbers) * 8 > self.count:
            self._offsets.whole()
            self._text.whole()
            return
        both = np.concatenate((numbers, numbers + 1))
        ends = self._offsets.take(both).astype(np.int64)
        first, last = ends[: len(numbers)], ends[len(numbers) :]
        filled = last > first
        self._text.verify(np.concatenate((first[filled], last[filled] - 1)))
        # An id longer than a block has blocks between its ends.
        for start, end in zip(first.tolist(), last.tolist(), strict=True):
            if end - start > BLOCK:
                self._text.slice(start, end)

    def _array(self) -> pa.Array:
        offsets, text = self._offsets.unverified, self._text.unverified
        kind = pa.large_string() if offsets.dtype.itemsize == 8 else pa.string()
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        return pa.Array.from_buffers(kind, self.count, buffers)


def _blocks(file: MappedFile, name: str) -> BlockArray:
    array = file.array(name)
    if not isinstance(array, BlockArray):
        raise DamagedFile(file.path, f"{name} is no array")
    return array


def node_arrays(ids: pa.Array, row_ids: np.ndarray) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The facts and arrays of a node file. Numbers without a row have the row id `NO_ROW`."""
    hash = TextHash(secrets.randbits(64))
    hashes = hash.of_all(ids) if len(ids) else np.empty(0, np.uint64)
    order = np.argsort(hashes, kind="stable")
    bits = max(1, (len(ids) // _BUCKET).bit_length())
    shift = 64 - bits
    edges = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(shift)
    ordered = hashes[order]
    inner = np.searchsorted(ordered, edges)
    buckets = np.concatenate(([0], inner, [len(ids)])).astype(np.uint32)
    offsets, text = _texts(ids)
    gone = np.flatnonzero(row_ids == NO_ROW)
    facts = {"ids": len(ids), "seed": f"{hash.seed:x}", "shift": shift}
    arrays = {
        "buckets": buckets,
        "gone": gone.astype(np.uint32),
        "hashes": ordered,
        "numbers": order.astype(np.uint32),
        "offsets": offsets,
        "text": text,
        "row_ids": row_ids.astype(np.uint64),
    }
    return facts, arrays


def _texts(ids: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    if not len(ids):
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    wide = pa.types.is_large_string(ids.type)
    _, ends, data = ids.buffers()
    kind = np.int64 if wide else np.int32
    offsets = np.frombuffer(ends, kind)[ids.offset : ids.offset + len(ids) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    text = np.zeros(0, np.uint8)
    if data is not None and last > first:
        text = np.frombuffer(data, np.uint8)[first:last]
    return (offsets.astype(np.int64) - first).astype(kind), text
