"""Kernels of texts, lists, vectors and nulls: the functions of `plan.functions` over Arrow arrays.

Invariant: arguments are arrays of one length, and a row with a null argument gives null. Where
Arrow takes one pattern for a whole array, it is called once for each distinct pattern.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.arrow import arrow_type
from omnigraph.exec.values.analyse import highlighted, terms
from omnigraph.exec.values.arithmetic import Kernel, RowFault, known_rows, shortened, shown, widened
from omnigraph.exec.values.bounded import bytes_of_rows, in_pieces, require_room
from omnigraph.exec.values.compare import compare_arrays, flags
from omnigraph.exec.values.rows import as_numpy
from omnigraph.plan import ir
from omnigraph.query_limits import TEXT_BYTES_MAX, checkpoint
from omnigraph.types import ValueType


def by_distinct(
    subject: pa.Array,
    patterns: Sequence[pa.Array],
    stored: pa.DataType,
    apply: Callable[..., pa.Array],
) -> pa.Array:
    """`apply(subject, *pattern)` once for each distinct pattern, over the rows that have it."""
    known = known_rows([subject, *patterns])
    rows = np.arange(len(subject)) if known is None else np.flatnonzero(known)
    chosen = pa.array(rows)
    codes, distinct = _patterns([array.take(chosen) for array in patterns])
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(distinct) + 1))
    pieces = []
    for code, pattern in enumerate(distinct):
        checkpoint()
        members = rows[order[cuts[code] : cuts[code + 1]]]
        try:
            pieces.append(apply(subject.take(pa.array(members)), *pattern).cast(stored))
        except RowFault as fault:
            raise RowFault(int(members[fault.row]), fault.reason) from None
    if not pieces:
        return pa.nulls(len(subject), stored)
    back = np.full(len(subject), -1)
    back[rows[order]] = np.arange(len(rows))
    return pa.concat_arrays(pieces).take(pa.array(back, mask=back < 0))


def _patterns(arrays: Sequence[pa.Array]) -> tuple[np.ndarray, list[tuple[Any, ...]]]:
    """A code a row, and the distinct patterns by code."""
    whole = np.zeros(len(arrays[0]), np.int64)
    for array in arrays:
        encoded = array.dictionary_encode()
        whole = whole * max(len(encoded.dictionary), 1) + as_numpy(encoded.indices)
        _, whole = np.unique(whole, return_inverse=True)
    _, firsts = np.unique(whole, return_index=True)
    columns = [array.take(pa.array(firsts)).to_pylist() for array in arrays]
    return whole, list(zip(*columns, strict=True))


# ---- text


def _one(kernel: Callable[[pa.Array], pa.Array]) -> Kernel:
    def text(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
        return kernel(arrays[0]).cast(arrow_type(kind))

    return text


def _concat(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    require_room(np.sum([bytes_of_rows(each) for each in arrays], axis=0), "concat")
    return pc.binary_join_element_wise(*arrays, "")


def _patterned(apply: Callable[..., pa.Array]) -> Kernel:
    def text(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
        subject, *patterns = arrays
        return by_distinct(subject, patterns, arrow_type(kind), apply)

    return text


def _substring(text: pa.Array, start: int, count: int | None = None) -> pa.Array:
    if count is not None and count < 0:
        raise RowFault(0, "a count of characters is negative")
    reach = 2**31 - 1
    tail = pc.utf8_slice_codeunits(text, max(min(start, reach), -reach), None)
    return tail if count is None else pc.utf8_slice_codeunits(tail, 0, min(count, reach))


def _replace(text: pa.Array, part: str, other: str) -> pa.Array:
    if not part:
        return text
    growth = len(other.encode()) - len(part.encode())
    if growth <= 0:
        return pc.replace_substring(text, pattern=part, replacement=other)
    hits = pc.count_substring(text, pattern=part).fill_null(0)
    sizes = bytes_of_rows(text) + growth * as_numpy(hits).astype(np.int64)
    require_room(sizes, "replace", text.nbytes)
    return in_pieces(
        [text],
        lambda arrays: pc.replace_substring(arrays[0], pattern=part, replacement=other),
        sizes,
    )


def _split(text: pa.Array, separator: str) -> pa.Array:
    if separator:
        hits = pc.count_substring(text, pattern=separator).fill_null(0)
        require_room(bytes_of_rows(text) + 4 * as_numpy(hits).astype(np.int64), "split")
        return pc.split_pattern(text, pattern=separator)
    return pa.ListArray.from_arrays(pa.array(np.arange(len(text) + 1, dtype=np.int32)), text)


def _matches(text: pa.Array, pattern: str) -> pa.Array:
    try:
        return pc.match_substring_regex(text, pattern=pattern)
    except pa.ArrowInvalid as cause:
        raise RowFault(
            0, f"{shown(pattern)} is no regular expression ({shortened(str(cause))})"
        ) from None


# ---- lists


def list_bounds(lists: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Where each list starts among the elements, and how long it is; null lists are empty."""
    offsets = lists.offsets.to_numpy()
    counts = np.diff(offsets)
    if lists.null_count:
        counts = np.where(as_numpy(lists.is_valid()), counts, 0)
    return offsets[:-1].astype(np.int64), counts.astype(np.int64)


def _element(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    lists, numbers = arrays
    starts, counts = list_bounds(lists)
    known = known_rows(arrays)
    nth = as_numpy(numbers.fill_null(0)).astype(np.int64)
    nth = np.where(nth < 0, counts + nth, nth)
    valid = (nth >= 0) & (nth < counts)
    if known is not None:
        valid &= known
    return lists.values.take(pa.array(np.where(valid, starts + nth, 0), mask=~valid))


def _overlaps(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    known = known_rows(arrays)
    owners, items = [], []
    for lists in arrays:
        starts, counts = list_bounds(lists)
        rows = np.repeat(np.arange(len(lists)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        owners.append(rows)
        items.append(lists.values.take(pa.array(np.repeat(starts, counts) + within)))
    if items[0].type != items[1].type:
        wide = pa.float64() if pa.types.is_floating(items[0].type) else pa.int64()
        items = [item.cast(wide) for item in items]
    if pa.types.is_floating(items[0].type):
        items = [pc.add(item, 0.0) for item in items]  # -0.0 equals 0.0
    encoded = pa.concat_arrays(items).dictionary_encode()
    codes, width = as_numpy(encoded.indices), max(len(encoded.dictionary), 1)
    left, right = codes[: len(owners[0])], codes[len(owners[0]) :]
    shared = np.isin(owners[0] * width + left, owners[1] * width + right)
    hits = np.zeros(len(arrays[0]), bool)
    hits[owners[0][shared]] = True
    return pa.array(hits, mask=None if known is None else ~known)


def _join(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    lists, separators = arrays
    _, counts = list_bounds(lists)
    sizes = bytes_of_rows(lists) + counts * bytes_of_rows(separators)
    require_room(sizes, "join", lists.nbytes)
    texts = lists.cast(pa.list_(pa.string()))
    return in_pieces([texts, separators], lambda pieces: pc.binary_join(*pieces), sizes)


def _highlight(texts: pa.Array, query: str, before: str = "**", after: str = "**") -> pa.Array:
    sought = frozenset(terms(query))
    made, size, marks = list[str](), 0, len(before.encode()) + len(after.encode())
    for each in texts.to_pylist():
        text, hits = highlighted(each, sought, before, after, TEXT_BYTES_MAX)
        size += len(each.encode()) + hits * marks
        require_room(np.array([len(each.encode()) + hits * marks]), "highlight", size)
        made.append(text)
    return pa.array(made, pa.string())


# ---- nulls


def _coalesce(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
    stored = arrow_type(kind)
    return pc.coalesce(*(widened(array, stored) for array in arrays))


def _extreme(op: ir.CompareOp) -> Kernel:
    def extreme(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
        stored = arrow_type(kind)
        best = widened(arrays[0], stored)
        for array in arrays[1:]:
            other = widened(array, stored)
            known = pc.and_(best.is_valid(), other.is_valid())
            better = pa.array(flags(compare_arrays(op, other, best)))
            best = pc.if_else(known, pc.if_else(better, other, best), pa.scalar(None, stored))
        return best

    return extreme


# ---- vectors


def _matrix(vectors: pa.Array) -> np.ndarray:
    """The numbers of fixed-size lists, a row each; zeros where there is none."""
    size = vectors.type.list_size
    numbers = as_numpy(vectors.values.slice(vectors.offset * size, len(vectors) * size))
    matrix = numbers.reshape(len(vectors), size).astype(np.float64)
    if vectors.null_count:
        matrix[~as_numpy(vectors.is_valid())] = 0.0
    return matrix


def _vectors(compute: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Kernel:
    def kernel(arrays: Sequence[pa.Array], kind: ValueType) -> pa.Array:
        known = known_rows(arrays)
        left, right = map(_matrix, arrays)
        with np.errstate(all="ignore"):
            values = compute(left, right)
        missing = np.isnan(values) & ~np.isnan(left.sum(1) + right.sum(1))
        return pa.array(values, mask=missing if known is None else missing | ~known)

    return kernel


def _dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    product: np.ndarray = np.einsum("ij,ij->i", left, right)
    return product


def _cosine(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    similarity: np.ndarray = _dot(left, right) / np.sqrt(_dot(left, left) * _dot(right, right))
    return similarity


def _l2(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    distance: np.ndarray = np.sqrt(_dot(left - right, left - right))
    return distance


TEXTS: dict[str, Kernel] = {
    "concat": _concat,
    "lower": _one(pc.utf8_lower),
    "upper": _one(pc.utf8_upper),
    "trim": _one(pc.utf8_trim_whitespace),
    "length": _one(pc.utf8_length),
    "substring": _patterned(_substring),
    "replace": _patterned(_replace),
    "highlight": _patterned(_highlight),
    "split": _patterned(_split),
    "ends_with": _patterned(lambda text, part: pc.ends_with(text, pattern=part)),
    "matches": _patterned(_matches),
    "size": _one(pc.list_value_length),
    "element": _element,
    "overlaps": _overlaps,
    "join": _join,
    "coalesce": _coalesce,
    "least": _extreme(ir.CompareOp.LT),
    "greatest": _extreme(ir.CompareOp.GT),
    "cosine": _vectors(_cosine),
    "dot": _vectors(_dot),
    "l2": _vectors(_l2),
}
