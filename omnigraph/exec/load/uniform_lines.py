"""Fast path of: values/arrow_json.py. NDJSON lines of one layout, cut by offsets in numpy.

A program that writes records gives every line the same members in the same order, so lines differ
in their values alone. The first line says what stands between the values; where every line has
the same there, offsets of quotes and commas are the values, and no line is parsed.

Reference: `parse_lines` of values/arrow_json.py, Arrow's JSON reader over the same bytes.
Held equal by: `test_lines_of_one_layout_are_read_as_arrow_reads_them`.
Falls back: None, for lines that differ in layout, escapes, nulls, lists of what is no number or of
several lengths, and numbers that JSON does not know.

Invariant: what is returned is what the reference returns for the same schema and lines.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.costs import COSTS
from omnigraph.exec.load.lines import Lines, stands_at

_QUOTE, _COMMA, _OPEN, _CLOSE, _MINUS, _ZERO, _SPACE, _EXPONENT = b'",[]-0 e'
_LOWER = 32  # the bit that makes a letter small
_SPACES_BELOW = 32
_TOKEN = re.compile(rb'[ ]*(?:"([^"]*)"|(\[[^"\[\]{}]*\])|([^ ",:{}\[\]]+)|([{}:,]))')

_OFFSETS_MAX = (1 << 31) - 1

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _LineValue:
    """A value of the first line: its member, the text since the value before it, and whether it is
    between quotes."""

    path: Path
    before: bytes
    is_text: bool


@dataclass(frozen=True, slots=True)
class _LineLayout:
    """What a line consists of beside its values."""

    leaves: tuple[_LineValue, ...]
    end: bytes


@dataclass(frozen=True, slots=True)
class _ValueSpans:
    """The first and the last offset of one value in each line."""

    starts: np.ndarray
    ends: np.ndarray


def uniform_table(schema: pa.Schema, lines: Lines) -> pa.Table | None:
    """The columns of lines that all have the layout of the first; None when that is not sure."""
    data = lines.data
    if b"\\" in data or not len(lines) or len(data) > _OFFSETS_MAX:
        return None
    layout = _layout(data[: int(lines.ends[0])])
    if layout is None or not _fits(layout, schema):
        return None
    raw = np.frombuffer(data, np.uint8)
    spans = _located(layout, lines, raw)
    if spans is None or np.count_nonzero(raw < _SPACES_BELOW) != len(lines):
        return None
    columns: dict[Path, pa.Array] = {}
    for leaf, span in zip(layout.leaves, spans, strict=True):
        cells = _cells(data, raw, span, _type_at(schema, leaf.path))
        if cells is None:
            return None
        columns[leaf.path] = cells
    arrays = [_column(field, (field.name,), columns, len(lines)) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


# The layout of the first line


def _layout(line: bytes) -> _LineLayout | None:
    """The values of a line and what stands between them; None for what is no flat nest of objects,
    with numbers, truth values, texts and lists of numbers in them."""
    leaves: list[_LineValue] = []
    path: list[str] = []
    position, last = 0, 0
    expected = "value"
    while position < len(line):
        token = _TOKEN.match(line, position)
        if token is None:
            return None
        text, numbers, _, sign = token.groups()
        position = token.end()
        if expected == "name" and text is not None:
            path.append(text.decode())
            expected = ":"
        elif expected == ":" and sign == b":":
            expected = "value"
        elif expected == "value" and sign == b"{":
            expected = "name"
        elif expected == "value" and path and sign is None:
            group = 1 if text is not None else 2 if numbers is not None else 3
            leaves.append(
                _LineValue(tuple(path), line[last : token.start(group)], text is not None)
            )
            last = token.end(group)
            path.pop()
            expected = "next"
        elif expected == "next" and sign == b",":
            expected = "name"
        elif expected == "next" and sign == b"}":
            if path:
                path.pop()
            elif position < len(line):
                return None
        else:
            return None
    if expected != "next" or path or not leaves:
        return None
    return _LineLayout(tuple(leaves), line[last:])


def _fits(layout: _LineLayout, schema: pa.Schema) -> bool:
    """Whether every value has a column of its own, of a kind that is read here."""
    paths = [leaf.path for leaf in layout.leaves]
    if len(set(paths)) != len(paths):
        return False
    for leaf in layout.leaves:
        kind = _type_at(schema, leaf.path)
        if kind is None or pa.types.is_struct(kind) or pa.types.is_string(kind) != leaf.is_text:
            return False
    return True


def _type_at(schema: pa.Schema, path: Path) -> pa.DataType | None:
    kind: pa.DataType = pa.struct(list(schema))
    for name in path:
        index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if index < 0:
            return None
        kind = kind.field(index).type
    return kind


# Where the values are


def _located(layout: _LineLayout, lines: Lines, raw: np.ndarray) -> list[_ValueSpans] | None:
    """The spans of the values, if all that is between them is alike in every line."""
    every = np.flatnonzero(raw == _QUOTE)
    texts = [*(leaf.before for leaf in layout.leaves), layout.end]
    a_line = sum(text.count(b'"') for text in texts)
    if len(every) != a_line * len(lines):
        return None
    quotes = every.reshape(len(lines), a_line)
    if (quotes[:, 0] < lines.starts).any() or (quotes[:, -1] > lines.ends).any():
        return None
    spans: list[_ValueSpans] = []
    last, seen = lines.starts, 0  # where the value before ended, and the quotes until there
    for leaf, after in zip(layout.leaves, texts[1:], strict=True):
        seen += leaf.before.count(b'"')
        starts = quotes[:, seen - 1] + len(leaf.before) - leaf.before.rfind(b'"')
        if not _stands(leaf.before, last, starts, lines.data):
            return None
        lead = after.find(b'"')
        ends = quotes[:, seen] - lead if lead >= 0 else lines.ends - len(after)
        spans.append(_ValueSpans(starts, ends))
        last = ends
    return spans if _stands(layout.end, last, lines.ends, lines.data) else None


def _stands(text: bytes, first: np.ndarray, end: np.ndarray, data: bytes) -> bool:
    """Whether a text is all that lies between two offsets of each line."""
    return bool((end - first == len(text)).all()) and stands_at(data, text, first)


# Values


def _cells(
    data: bytes, raw: np.ndarray, span: _ValueSpans, kind: pa.DataType | None
) -> pa.Array | None:
    if kind is None or (span.ends < span.starts).any():
        return None
    if pa.types.is_string(kind):
        return _texts(data, span)
    if pa.types.is_list(kind):
        return _lists(data, raw, span, kind)
    if not (span.ends > span.starts).all():
        return None
    if pa.types.is_boolean(kind):
        return _truths(_texts(data, span))
    return _numbers(data, span, kind)


def _texts(data: bytes, span: _ValueSpans) -> pa.Array:
    """The bytes of each span, as a text."""
    count = len(span.starts)
    # Spans and what lies between them are the texts of one array over all bytes.
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = span.starts, span.ends
    offsets[-1] = offsets[-2]
    every = pa.StringArray.from_buffers(2 * count, pa.py_buffer(offsets), pa.py_buffer(data))
    return every.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def _truths(texts: pa.Array) -> pa.Array | None:
    is_true = pc.equal(texts, "true")
    return is_true if pc.all(pc.or_(is_true, pc.equal(texts, "false"))).as_py() else None


def _numbers(data: bytes, span: _ValueSpans, kind: pa.DataType) -> pa.Array | None:
    """Numbers as JSON spells them: Arrow's cast knows other spellings too."""
    texts = _texts(data, span)
    try:
        numbers = texts.cast(kind)
    except pa.ArrowException:
        return None
    if pa.types.is_integer(kind):
        return numbers if pc.all(pc.equal(numbers.cast(pa.utf8()), texts)).as_py() else None
    return numbers if _are_json(texts) else None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _are_json(texts: pa.Array) -> bool:
    """Whether texts that Arrow reads as floats are numbers of JSON: a digit first, but for a minus,
    a digit last and before an exponent, and no zeros in front."""
    _, offsets, signs = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[: len(texts) + 1].astype(np.intp)
    signs = np.append(np.frombuffer(signs, np.uint8)[: ends[-1]], np.uint8(_SPACE))
    is_digit = signs - np.uint8(_ZERO) < 10
    starts = ends[:-1] + (signs[ends[:-1]] == _MINUS)
    if not is_digit[starts].all() or not is_digit[ends[1:] - 1].all():
        return False
    zeros = starts[signs[starts] == _ZERO] + 1
    if (is_digit[zeros] & (zeros < ends[1:][signs[starts] == _ZERO])).any():
        return False
    exponents = np.flatnonzero((signs | np.uint8(_LOWER)) == _EXPONENT)
    return bool(is_digit[exponents - 1].all())


def _lists(data: bytes, raw: np.ndarray, span: _ValueSpans, kind: pa.DataType) -> pa.Array | None:
    """Lists of numbers that are all of one length, and have one."""
    if not _is_number(kind.value_type):
        return None  # Arrow would cast digits to texts and to truth values
    opened, closed = span.starts, span.ends - 1
    if not (raw[opened] == _OPEN).all() or not (raw[closed] == _CLOSE).all():
        return None
    width = int(np.count_nonzero(raw[opened[0] : closed[0]] == _COMMA)) + 1
    parts: list[pa.Array] = []
    step = max(1, COSTS.list_items_together // width)
    for first in range(0, len(opened), step):
        part = _ValueSpans(opened[first : first + step], closed[first : first + step])
        items = _items(raw, part, width)
        numbers = None if items is None else _numbers(data, items, kind.value_type)
        if numbers is None:
            return None
        parts.append(numbers)
    offsets = np.arange(len(opened) + 1, dtype=np.int32) * np.int32(width)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.concat_arrays(parts), type=kind)


def _items(raw: np.ndarray, span: _ValueSpans, width: int) -> _ValueSpans | None:
    """The items of lists between brackets, if each has so many."""
    begin = int(span.starts[0])
    commas = np.flatnonzero(raw[begin : int(span.ends[-1])] == _COMMA)
    low = commas.searchsorted(span.starts - begin)
    high = commas.searchsorted(span.ends - begin)
    if not (high - low == width - 1).all():
        return None
    bounds = np.empty((len(low), width + 1), np.int32)
    bounds[:, 0], bounds[:, width] = span.starts, span.ends
    bounds[:, 1:width] = commas[low[:, np.newaxis] + np.arange(width - 1)] + begin
    starts = bounds[:, :-1] + np.int32(1)
    if width > 1 and raw[starts[0, 1]] == _SPACE:
        starts[:, 1:] += 1  # a program that writes a space after a comma writes one after each
    items = _ValueSpans(starts.reshape(-1), bounds[:, 1:].reshape(-1))
    return items if (items.ends > items.starts).all() else None


def _column(field: pa.Field, path: Path, columns: dict[Path, pa.Array], count: int) -> pa.Array:
    """A column of the schema: of a value, of the members below it, or null in every line."""
    if path in columns:
        return columns[path]
    inside = [each for each in columns if each[: len(path)] == path]
    if not inside:
        return pa.nulls(count, field.type)
    fields: Sequence[pa.Field] = list(field.type)
    members = [_column(each, (*path, each.name), columns, count) for each in fields]
    return pa.StructArray.from_arrays(members, fields=fields)
