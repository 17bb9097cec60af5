"""Graph NDJSON → typed rows a type: the one decoder, for one process and for Spark's tasks.

Lines of one type are read by Arrow's own JSON reader, column by column. It is stricter than JSON
asks and names no line, so whatever it refuses, or might read otherwise than `records` would, is
read again line by line there.

Invariant: the result is what `records` alone would give.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Catalog
from omnigraph.errors import Violation
from omnigraph.exec.load.json_columns import NotSure, read_lines
from omnigraph.exec.load.lines import lines_of
from omnigraph.exec.load.records import Owner, Records, Rows
from omnigraph.exec.rules.faults import LIMITS, Faults
from omnigraph.exec.values.from_input import no_external
from omnigraph.exec.values.scalars import ReadExternal

LINE_BYTES_MAX = LIMITS["line_bytes"][1]
LINE_TOKENS_MAX = LIMITS["line_tokens"][1]
_STRUCTURE = re.compile(rb'[{}\[\]:,]|"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SNIFFED_LINES = 64
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors put it before a file's first line
_RECORD_SHOWN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of one file. `line` is the number of the first, counted in its part."""

    data: bytes
    line: int
    part: int = 0
    file: str | None = None


@dataclass(slots=True)
class Decoded:
    """Typed rows and faults of some lines."""

    rows: list[Rows] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)


class Decoder:
    """Reads blocks of lines. With `owner` each line is a flat record of that type."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        owner: Owner | None = None,
        rename: dict[str, str] | None = None,
        keep_rejects: bool = False,
        read: ReadExternal = no_external,
    ) -> None:
        self._catalog = catalog
        self._external = read
        self._owner = owner
        self._rename = rename or {}
        self._keep_rejects = keep_rejects

    def decode(self, block: Block) -> Decoded:
        """The rows of a block of lines, and what is wrong with the others."""
        done = Decoded(faults=Faults(self._keep_rejects))
        data = block.data.removeprefix(_BYTE_ORDER_MARK) if block.line == 1 else block.data
        for lines, numbers in self._groups(data):
            rows = None if numbers is None else self._fast(lines, numbers, block.line)
            if rows is not None:
                done.rows.append(rows)
            else:
                at = range(lines.count(b"\n") + 1) if numbers is None else numbers
                self._slow(lines, at, block, done)
        return done

    # Many lines at once

    def _groups(self, data: bytes) -> Iterator[tuple[bytes, Iterable[int] | None]]:
        """Lines that begin alike, with their places; None for places when all are to be read
        one by one."""
        whole = lines_of(data)
        data = whole.data
        if self._owner is not None or whole.longest > LINE_TOKENS_MAX or not whole.are_objects():
            yield data[:-1], None
            return
        if whole.begin_with(data[: data.index(b"\n")].split(b",", 1)[0]):
            yield data, range(len(whole))
            return
        alike: dict[bytes, list[int]] = {}
        lines = data.split(b"\n")[:-1]
        for place, line in enumerate(lines):
            alike.setdefault(line.split(b",", 1)[0], []).append(place)
        for places in alike.values():
            yield b"\n".join([lines[place] for place in places]) + b"\n", places

    def _fast(self, data: bytes, places: Iterable[int], first: int) -> Rows | None:
        try:
            sample = [json.loads(line) for line in _head(data)]
            owner = _owner_of(self._catalog, sample[0])
            if owner is None:
                return None
            table, given = read_lines(owner, data, sample)
        except (NotSure, ValueError, RecursionError):
            return None
        at = (
            np.fromiter(places, np.int64)
            if not isinstance(places, range)
            else np.arange(places.start, places.stop, dtype=np.int64)
        )
        if table.num_rows != len(at):
            return None
        return Rows(owner, table, pa.array(at + first), given)

    # Line by line

    def _slow(self, data: bytes, places: Iterable[int], block: Block, done: Decoded) -> None:
        records = Records(self._catalog, read=self._external)
        for place, line in zip(places, data.split(b"\n"), strict=False):
            number = block.line + place
            for violation in self._read(records, line, number):
                where = replace(violation, file=block.file, line=number)
                record = line[:_RECORD_SHOWN_BYTES].decode(errors="replace")
                done.faults.add(block.part, where, record)
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
                record = {self._rename.get(name, name): value for name, value in record.items()}
            yield from records.take_row(self._owner, record, number)


def decode_stream(catalog: Catalog, block: Block, read: ReadExternal = no_external) -> Decoded:
    """The older, forgiving format: JSON values one after the other, however they are laid out."""
    records = Records(catalog, permissive=True, read=read)
    done = Decoded()
    for record, line in _values(block.data):
        found = [record] if isinstance(record, Violation) else records.take(record, line)
        for violation in found:
            done.faults.add(block.part, replace(violation, file=block.file, line=line))
    done.rows.extend(records.rows())
    return done


def _values(data: bytes) -> Iterator[tuple[Any, int]]:
    """Each value of a text with its line; a violation where the text is no value."""
    reader = json.JSONDecoder(parse_constant=_no_constant)
    line, counted = 1, 0
    try:
        text = data.decode("utf-8-sig")
        place = _skip_space(text, 0)
        while place < len(text):
            line += text.count("\n", counted, place)
            counted = place
            record, place = reader.raw_decode(text, place)
            yield record, line
            place = _skip_space(text, place)
    except (ValueError, RecursionError) as cause:
        yield _malformed(cause), line


def decode_records(
    catalog: Catalog,
    values: Iterable[Any],
    *,
    owner: Owner | None,
    rename: Mapping[str, str],
    first: int,
    part: int = 0,
    read: ReadExternal = no_external,
) -> Decoded:
    """Records that are at hand as objects: of the graph format, or flat ones of one type."""
    records = Records(catalog, read=read)
    done = Decoded()
    for number, record in enumerate(values, first):
        if owner is None:
            found = records.take(record, number)
        else:
            if rename and isinstance(record, Mapping):
                record = {rename.get(name, name): value for name, value in record.items()}
            found = records.take_row(owner, record, number)
        for violation in found:
            done.faults.add(part, replace(violation, line=number))
    done.rows.extend(records.rows())
    return done


def parse_line(line: bytes) -> Any:
    """The value on a line, or the violation that keeps it from being one."""
    if len(line) > LINE_BYTES_MAX:
        return Violation("line_bytes", "", None, None, str(len(line)), "the line is too long")
    if len(line) > LINE_TOKENS_MAX:
        tokens = sum(1 for found in _STRUCTURE.finditer(line) if found.end() - found.start() == 1)
        if tokens > LINE_TOKENS_MAX:
            return Violation("line_tokens", "", None, None, str(tokens), "the line holds too much")
    try:
        return _STRICT.decode(line.decode())
    except _Twice as twice:
        text = f"member '{twice.name}' comes twice in one object"
        return Violation("duplicate_member", "", twice.name, None, None, text)
    except (ValueError, RecursionError) as cause:
        return _malformed(cause)


class _Twice(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise _Twice(counts.most_common(1)[0][0])
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_constant)


def _malformed(cause: Exception) -> Violation:
    reason = "it is nested too deeply" if isinstance(cause, RecursionError) else str(cause)
    return Violation("json", "", None, None, None, f"malformed JSON: {reason}")


def _skip_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _head(data: bytes) -> list[bytes]:
    """The first lines of a block."""
    lines: list[bytes] = []
    start = 0
    while len(lines) < _SNIFFED_LINES and start < len(data):
        end = data.index(b"\n", start)
        lines.append(data[start:end])
        start = end + 1
    return lines


def _owner_of(catalog: Catalog, record: Any) -> Owner | None:
    if not isinstance(record, dict) or ("type" in record) == ("edge" in record):
        return None
    name = record.get("type", record.get("edge"))
    if not isinstance(name, str):
        return None
    return catalog.node(name) if "type" in record else catalog.edge(name)


def concatenated(parts: list[Rows]) -> Rows:
    """Rows of one type as one."""
    return Rows(
        parts[0].owner,
        pa.concat_tables([part.table for part in parts]),
        pa.concat_arrays([part.lines for part in parts]),
        pa.concat_arrays([pc.cast(part.given, pa.bool_()) for part in parts]),
    )
