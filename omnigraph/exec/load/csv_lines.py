"""Lines of CSV rows: where in its file a row of a load begins.

Invariant: what a load says about a row of CSV names the line that an editor shows: the header and
lines inside quotes or without text are counted. A file is read for it only when something is wrong.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from omnigraph.errors import OmnigraphError, Violation
from omnigraph.exec.load.files import Options
from omnigraph.exec.load.sources import Part, file_format, file_stream, where
from omnigraph.exec.load.text_cells import csv_delimiter
from omnigraph.exec.rules.faults import Faults, Reject

_READ_BYTES = 1 << 20


Locate = Callable[[Violation], Violation]


def at_csv_lines(faults: Faults, options: Options = ()) -> Faults:
    """The same faults, those of CSV files with the line of the file in the place of the row."""
    listed = [violation for _, violation in faults.first.values()]
    at_line = csv_lines([*listed, *(reject.violation for reject in faults.rejects)], options)
    return Faults(
        faults.keep_rejects,
        faults.counts,
        {kind: (part, at_line(each)) for kind, (part, each) in faults.first.items()},
        [Reject(each.part, at_line(each.violation), each.record) for each in faults.rejects],
        faults.kinds,
    )


def csv_lines(violations: Iterable[Violation], options: Options = ()) -> Locate:
    """What puts the line of a CSV file in the place of a row, for any of these violations."""
    rows: dict[str, set[int]] = {}
    for violation in violations:
        if violation.file and violation.line and file_format(violation.file) == "csv":
            rows.setdefault(violation.file, set()).add(violation.line)
    lines = {file: _lines_of_rows(file, sorted(every), options) for file, every in rows.items()}

    def at_line(violation: Violation) -> Violation:
        known = lines.get(violation.file or "", {})
        return replace(violation, line=known.get(violation.line or 0, violation.line))

    return at_line


def _lines_of_rows(file: str, rows: Sequence[int], options: Options) -> dict[int, int]:
    """The first line of each of these rows, which are in ascending order. Of a file that cannot be
    read any more, rows are counted after one line of names."""
    part = Part(0, where(file), "csv", 0, label=file, options=options)
    lines = {row: row + 1 for row in rows}
    # The fault is what the caller must see, with a line that may be less exact.
    with suppress(OmnigraphError, OSError, csv.Error), file_stream(part) as stream:
        texts = _text_lines(stream.read)
        lines.update(_first_lines(csv.reader(texts, delimiter=csv_delimiter(file)), rows))
    return lines


def _first_lines(reader: Any, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Each of these rows with its first line; the record before the first row is the header."""
    remaining, before, row = iter(rows), 0, -1
    next_row = next(remaining, None)
    for record in reader:
        row += bool(record)  # an empty line is no row
        if record and row == next_row:
            yield row, before + 1
            next_row = next(remaining, None)
            if next_row is None:
                return
        before = reader.line_num


def _text_lines(read: Callable[[int], bytes]) -> Iterator[str]:
    """The lines of a file as text, with their ends."""

    class Raw(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            data = read(min(len(buffer), _READ_BYTES))
            buffer[: len(data)] = data
            return len(data)

    return iter(io.TextIOWrapper(io.BufferedReader(Raw()), "utf-8", "replace", newline=""))
