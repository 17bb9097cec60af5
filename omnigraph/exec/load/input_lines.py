"""Lines of an input's text files: the line where a row of CSV begins, and the text of a bad record.

Invariant: what a load says about a row of CSV names the line that an editor shows: the header and
lines inside quotes or without text are counted. A record is shown as it was read. A file is read
for it only when something is wrong.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from omnigraph.errors import OmnigraphError, Violation
from omnigraph.exec.load.decode import RECORD_SHOWN_CHARS
from omnigraph.exec.load.files import Options
from omnigraph.exec.load.sources import Format, Part, file_format, file_stream, where
from omnigraph.exec.load.text_cells import csv_delimiter
from omnigraph.exec.load.text_lines import text_lines
from omnigraph.exec.rules.faults import Faults, Reject

Locate = Callable[[Violation], Violation]


@dataclass(frozen=True, slots=True)
class TextRecord:
    """A record of a text file: its first line, and its text if the file could be read."""

    line: int
    text: str | None = None


def at_input_lines(faults: Faults, options: Options = ()) -> Faults:
    """The same faults, those of CSV files with the line of the file in the place of the row, and
    rejects of text files with their records."""
    rejected = [each.violation for each in faults.rejects]
    listed = [violation for _, violation in faults.listed()]
    of_csv = _csv_records([*listed, *rejected], options)
    without = [each.violation for each in faults.rejects if each.record is None]
    of_json = _json_records(without, options)

    def read(reject: Reject) -> Reject:
        violation = reject.violation
        named = (of_csv if _is(violation, "csv") else of_json).get(violation.file or "", {})
        record = named.get(violation.line or 0)
        text = reject.record if record is None else reject.record or record.text
        return Reject(reject.part, _at_line(of_csv, violation), text)

    return Faults(
        faults.keep_rejects,
        faults.counts,
        faults.examples_as(lambda _, violation: _at_line(of_csv, violation)),
        [read(each) for each in faults.rejects],
        faults.kinds,
    )


def csv_lines(violations: Iterable[Violation], options: Options = ()) -> Locate:
    """What puts the line of a CSV file in the place of a row, for any of these violations."""
    records = _csv_records(violations, options)
    return lambda violation: _at_line(records, violation)


RecordsByFile = dict[str, dict[int, TextRecord]]


def _at_line(records: RecordsByFile, violation: Violation) -> Violation:
    record = records.get(violation.file or "", {}).get(violation.line or 0)
    return violation if record is None else replace(violation, line=record.line)


def _is(violation: Violation, format: str) -> bool:
    return bool(violation.file and violation.line) and file_format(violation.file or "") == format


def _numbers(violations: Iterable[Violation], format: str) -> dict[str, set[int]]:
    """The lines or rows that violations name, by file."""
    numbers: dict[str, set[int]] = {}
    for violation in violations:
        if _is(violation, format):
            numbers.setdefault(violation.file or "", set()).add(violation.line or 0)
    return numbers


def _csv_records(violations: Iterable[Violation], options: Options) -> RecordsByFile:
    rows = _numbers(violations, "csv")
    return {file: _records_of_rows(file, sorted(every), options) for file, every in rows.items()}


def _records_of_rows(file: str, rows: Sequence[int], options: Options) -> dict[int, TextRecord]:
    """The records of these rows, which are in ascending order. Of a file that cannot be read any
    more, rows are counted after one line of names."""
    records = {row: TextRecord(row + 1) for row in rows}
    # The fault is what the caller must see, with a line that may be less exact.
    with suppress(OmnigraphError, OSError, csv.Error), _opened(file, "csv", options) as stream:
        records.update(_csv_rows(text_lines(stream.read), csv_delimiter(file), rows))
    return records


def _csv_rows(
    lines: Iterator[str], delimiter: str, rows: Sequence[int]
) -> Iterator[tuple[int, TextRecord]]:
    """Each of these rows with its record; the record before the first row is the header."""
    read: list[str] = []

    def kept() -> Iterator[str]:
        for line in lines:
            read.append(line)
            yield line

    reader = csv.reader(kept(), delimiter=delimiter)
    remaining, before, row = iter(rows), 0, -1
    next_row = next(remaining, None)
    for record in reader:
        row += bool(record)  # an empty line is no row
        if record and row == next_row:
            yield row, TextRecord(before + 1, _shown("".join(read)))
            next_row = next(remaining, None)
            if next_row is None:
                return
        before = reader.line_num
        read.clear()


def _json_records(violations: Iterable[Violation], options: Options) -> RecordsByFile:
    records: RecordsByFile = {}
    for file, numbers in _numbers(violations, "json").items():
        named = records.setdefault(file, {})
        with suppress(OmnigraphError, OSError), _opened(file, "json", options) as stream:
            for number, line in enumerate(text_lines(stream.read), 1):
                if number in numbers:
                    named[number] = TextRecord(number, _shown(line))
                if len(named) == len(numbers):
                    break
    return records


def _shown(text: str) -> str:
    return text.rstrip("\r\n")[:RECORD_SHOWN_CHARS]


def _opened(file: str, format: Format, options: Options) -> Any:
    return file_stream(Part(0, where(file), format, 0, label=file, options=options))
