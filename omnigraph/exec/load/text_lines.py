"""Lines of a CSV file as text: where a quote opens that is never closed, and what is not UTF-8.

Invariant: lines are those that an editor shows, also inside quotes. A file is read here only when
something is wrong with it.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from omnigraph.costs import COSTS

_ESCAPED = re.compile("[\udc80-\udcff]")
_TO_CLOSING = re.compile(r'(?:[^"]|"")*+"')


def text_lines(read: Callable[[int], bytes], errors: str = "replace") -> Iterator[str]:
    """The lines of a file as text, with their ends."""

    class Raw(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            data = read(min(len(buffer), COSTS.csv_read_bytes))
            buffer[: len(data)] = data
            return len(data)

    return iter(io.TextIOWrapper(io.BufferedReader(Raw()), "utf-8", errors, newline=""))


def undecodable_line(read: Callable[[int], bytes]) -> int:
    """The number of the first line that is not UTF-8; there is one."""
    lines = enumerate(text_lines(read, "surrogateescape"), 1)
    return next(number for number, line in lines if _ESCAPED.search(line))


def unclosed_quote(lines: Iterable[str], delimiter: str) -> int | None:
    """The number of the line where a quote opens that is not closed before the end, or before the
    next opening quote in a later line; None if every quote is closed. A quote inside a cell that
    does not begin with one is text."""
    opened: int | None = None
    for number, line in enumerate(lines, 1):
        if '"' not in line:
            continue
        position = 0
        if opened is None:
            position = _opening(line, 0, delimiter)
        while position >= 0:
            # Here the line goes on inside quotes.
            closing = _TO_CLOSING.match(line, position)
            if closing is None:
                opened = opened or number
                break
            after = line[closing.end() : closing.end() + 1]
            if opened is not None and after not in ("", delimiter, "\r", "\n"):
                return opened
            opened = None
            position = _opening_after(line, closing.end(), delimiter)
    return opened


def _opening(line: str, start: int, delimiter: str) -> int:
    """The position after the next quote that begins a cell, from the cell at `start` on; -1 if the
    line has none."""
    if line.startswith('"', start):
        return start + 1
    return _opening_after(line, start, delimiter)


def _opening_after(line: str, start: int, delimiter: str) -> int:
    """The same, from the cell after that at `start` on."""
    before = line.find(f'{delimiter}"', start)
    return before if before < 0 else before + 2
