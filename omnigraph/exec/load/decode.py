"""NDJSON decoder: lines of graph or flat records to typed rows, in one process and Spark's tasks.

Lines of one type go to Arrow's JSON reader, column by column (`json_columns`). Arrow is stricter
than JSON asks and names no line, so lines that it refuses, or might read otherwise than `ndjson`
would, are read again one by one.

Invariant: the result is what `ndjson` alone would give.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.model import Catalog
from omnigraph.errors import Violation
from omnigraph.exec.load.column_names import ColumnNames, renamed
from omnigraph.exec.load.json_columns import read_flat, read_lines
from omnigraph.exec.load.lines import Lines, lines_of
from omnigraph.exec.load.ndjson import ONE_A_LINE, BadRecord, Owner, Records, TypedRows
from omnigraph.exec.load.python_records import owner_of, plain_record
from omnigraph.exec.load.rule_faults import rule_faults
from omnigraph.exec.rules.faults import LIMITS, Faults, merged
from omnigraph.exec.values.arrow_json import NotSure
from omnigraph.exec.values.from_input import no_external
from omnigraph.exec.values.scalars import ReadExternal

LINE_BYTES_MAX = LIMITS["line_bytes"][1]
LINE_TOKENS_MAX = LIMITS["line_tokens"][1]
_STRUCTURE = re.compile(rb'[{}\[\]:,]|"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SNIFFED_LINES = 64
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors put it before a file's first line
RECORD_SHOWN_CHARS = 1 << 20


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Whole lines of one file. `line` is the number of the first, counted in its part."""

    data: bytes
    line: int
    part: int = 0
    file: str | None = None


@dataclass(slots=True)
class Decoded:
    """Typed rows and faults of one piece of input."""

    rows: list[TypedRows] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)


class Decoder:
    """Reads blocks of lines. With `owner` each line is a flat record of that type."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        owner: Owner | None = None,
        rename: ColumnNames | None = None,
        keep_rejects: bool = False,
        patch: bool = False,
        read: ReadExternal = no_external,
    ) -> None:
        self._catalog = catalog
        self._patch = patch
        self._external = read
        self._owner = owner
        self._rename = rename or {}
        self._keep_rejects = keep_rejects
        self._never_null: tuple[str, ...] = ("type", "edge", "from", "to", "data", "id")
        if owner is not None:
            targets = ("id", "from", "to", "src", "dst")
            renamed = (name for name, target in self._rename.items() if target in targets)
            self._never_null = (*targets, *renamed)

    def decode(self, block: LineBlock) -> Decoded:
        """The rows of the good lines of a block, and the faults of the bad ones."""
        done = Decoded(faults=Faults(self._keep_rejects))
        data = block.data.removeprefix(_BYTE_ORDER_MARK) if block.line == 1 else block.data
        for lines, indexes in self._groups(data):
            rows = None if indexes is None else self._fast(lines, indexes, block.line)
            if rows is not None:
                done.rows.append(rows)
            else:
                every = range(len(lines)) if indexes is None else indexes
                self._slow(lines.data[:-1], every, block, done)
        return done

    # Many lines at once

    def _groups(self, data: bytes) -> Iterator[tuple[Lines, Iterable[int] | None]]:
        """Lines grouped by their first member, with their indexes in the block; indexes are None
        when all lines are to be read one by one."""
        whole = lines_of(data)
        data = whole.data
        if whole.longest > LINE_TOKENS_MAX or not whole.are_objects():
            yield whole, None
            return
        if self._owner is not None:
            yield whole, range(len(whole))
            return
        if whole.begin_with(data[: data.index(b"\n")].split(b",", 1)[0]):
            yield whole, range(len(whole))
            return
        alike: dict[bytes, list[int]] = {}
        lines = data.split(b"\n")[:-1]
        for index, line in enumerate(lines):
            alike.setdefault(line.split(b",", 1)[0], []).append(index)
        for indexes in alike.values():
            yield lines_of(b"\n".join([lines[index] for index in indexes])), indexes

    def _fast(self, lines: Lines, indexes: Iterable[int], first: int) -> TypedRows | None:
        if self._patch and b"null" in lines.data:
            return None  # Arrow's reader does not tell a null from a member that is absent
        try:
            sample = [json.loads(line) for line in _head(lines.data)]
            owner = self._owner or owner_of(self._catalog, sample[0])
            if owner is None:
                return None
            if self._owner is None:
                rows = read_lines(self._catalog, owner, lines, sample, self._never_null)
            else:
                flat = (self._catalog, owner, lines, sample, self._rename)
                rows = read_flat(*flat, self._never_null)
        except (NotSure, ValueError, RecursionError):
            return None
        numbers = (
            np.fromiter(indexes, np.int64)
            if not isinstance(indexes, range)
            else np.arange(indexes.start, indexes.stop, dtype=np.int64)
        )
        if rows.table.num_rows != len(numbers):
            return None
        absent = rows.absent if self._patch else {}
        return TypedRows(
            owner, rows.table, pa.array(numbers + first), rows.given, rows.rounded, absent
        )

    # Line by line

    def _slow(self, data: bytes, indexes: Iterable[int], block: LineBlock, done: Decoded) -> None:
        records = Records(self._catalog, patch=self._patch, read=self._external)
        for index, line in zip(indexes, data.split(b"\n"), strict=False):
            number = block.line + index
            for violation in self._read(records, line, number):
                where = replace(violation, file=block.file, line=number)
                record = line[:RECORD_SHOWN_CHARS].decode(errors="replace")
                done.faults.add_unread(block.part, where, record)
        done.faults.merge(_rule_faults(records, block.part, block.file, self._keep_rejects))
        done.rows.extend(records.rows())

    def _read(self, records: Records, line: bytes, number: int) -> Iterator[Violation]:
        if not line.strip():
            return
        record = parse_line(line)
        if isinstance(record, Violation):
            yield record
        elif self._owner is None:
            yield from records.take(record, number)
        else:
            if self._rename and isinstance(record, dict):
                record = renamed(record, self._rename)
            yield from records.take_row(self._owner, record, number)


def decode_stream(
    catalog: Catalog,
    block: LineBlock,
    read: ReadExternal = no_external,
    *,
    last_of_line: bool = False,
) -> Decoded:
    """The older, forgiving format: JSON values one after the other, however they are laid out.

    A row is known by its line later on, so `last_of_line` drops rows of an id that comes again on
    the same line.
    """
    records = Records(catalog, permissive=True, read=read)
    done = Decoded()
    for record, line in _values(block.data):
        violations = [record] if isinstance(record, Violation) else records.take(record, line)
        for violation in violations:
            done.faults.add_unread(block.part, replace(violation, file=block.file, line=line))
    done.faults.merge(_rule_faults(records, block.part, block.file))
    done.rows.extend(_last_of_line(rows) if last_of_line else rows for rows in records.rows())
    return done


def _last_of_line(rows: TypedRows) -> TypedRows:
    ids, lines = rows.table.column("id").to_pylist(), rows.lines.to_pylist()
    last = {named: index for index, named in enumerate(zip(ids, lines, strict=True))}
    if len(last) == len(ids):
        return rows
    kept = pa.array(sorted(last.values()))
    table, given = rows.table.take(kept), rows.given.take(kept)
    return replace(rows, table=table, lines=rows.lines.take(kept), given=given)


def _values(data: bytes) -> Iterator[tuple[Any, int]]:
    """Each JSON value of a text with its line; a violation where the text is malformed."""
    reader = json.JSONDecoder(parse_constant=_no_constant)
    line, counted = 1, 0
    try:
        text = data.decode("utf-8-sig")
        position = _skip_space(text, 0)
        while position < len(text):
            line += text.count("\n", counted, position)
            counted = position
            record, position = reader.raw_decode(text, position)
            yield record, line
            position = _skip_space(text, position)
    except (ValueError, RecursionError) as cause:
        yield _malformed(cause), line


def decode_records(
    catalog: Catalog,
    values: Iterable[Any],
    *,
    owner: Owner | None,
    rename: ColumnNames,
    first: int,
    part: int = 0,
    patch: bool = False,
    read: ReadExternal = no_external,
) -> Decoded:
    """Records given as Python objects: of the graph format, or flat ones of one type."""
    records = Records(catalog, patch=patch, read=read)
    done = Decoded()
    for number, given in enumerate(values, first):
        for violation in _taken(records, given, number, catalog, owner, rename):
            done.faults.add_unread(part, replace(violation, line=number))
    done.faults.merge(_rule_faults(records, part, None))
    done.rows.extend(records.rows())
    return done


def _taken(
    records: Records,
    given: Any,
    number: int,
    catalog: Catalog,
    owner: Owner | None,
    rename: ColumnNames,
) -> Iterator[Violation]:
    try:
        if owner is None:
            record = plain_record(given, partial(owner_of, catalog))
            yield from records.take(record, number)
        else:
            is_renamed = rename and isinstance(given, Mapping)
            flat = renamed(given, rename) if is_renamed else given
            yield from records.take_row(owner, plain_record(flat, lambda _: owner), number)
    except BadRecord as wrong:
        yield wrong.violation


def _rule_faults(
    records: Records, part: int, file: str | None, keep_rejects: bool = False
) -> Faults:
    """What else is wrong with the records that were refused, as far as they could be read."""
    return merged(
        (
            rule_faults(
                refused.owner,
                refused.table(),
                pa.array(refused.lines, pa.int64()),
                part,
                file,
                keep_rejects=keep_rejects,
                unread=refused.unread,
                are_partial=records.patch,
            )
            for refused in records.refused.values()
        ),
        keep_rejects=keep_rejects,
    )


def parse_line(line: bytes) -> Any:
    """The JSON value of a line, or a violation: malformed, too long, a member twice."""
    if len(line) > LINE_BYTES_MAX:
        return Violation("line_bytes", "", None, None, str(len(line)), "the line is too long")
    if len(line) > LINE_TOKENS_MAX:
        tokens = sum(1 for token in _STRUCTURE.finditer(line) if token.end() - token.start() == 1)
        if tokens > LINE_TOKENS_MAX:
            return Violation("line_tokens", "", None, None, str(tokens), "the line holds too much")
    try:
        return _STRICT.decode(line.decode())
    except _Twice as twice:
        text = f"member '{twice.name}' comes twice in one object"
        return Violation("duplicate_member", "", twice.name, None, None, text)
    except (ValueError, RecursionError) as cause:
        wrong = _malformed(cause)
        is_spread = line.strip() == b"{" or line.lstrip().startswith(b"[")
        return replace(wrong, text=f"{wrong.text}; {ONE_A_LINE}") if is_spread else wrong


class _Twice(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise _Twice(counts.most_common(1)[0][0])
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_constant)


def _malformed(cause: Exception) -> Violation:
    reason = "it is nested too deeply" if isinstance(cause, RecursionError) else str(cause)
    return Violation("json", "", None, None, None, f"malformed JSON: {reason}")


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _head(data: bytes) -> list[bytes]:
    """The first lines of a block."""
    lines: list[bytes] = []
    start = 0
    while len(lines) < _SNIFFED_LINES and start < len(data):
        end = data.index(b"\n", start)
        lines.append(data[start:end])
        start = end + 1
    return lines
