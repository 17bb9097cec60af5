"""Table layout for a terminal: column widths, truncation, wrapping and wide characters.

Invariant: widths count what a terminal shows, so a column of Chinese lines up with one of English.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from omnigraph.types import columns_of

WIDTH_MIN = 8
_GAP = " | "
_ELLIPSIS = "…"


def cell_width(text: str) -> int:
    """How many columns a text takes."""
    if text.isascii():
        return len(text)
    return sum(map(columns_of, text))


def flat(text: str) -> str:
    """A cell on one line; what would move the cursor is written out."""
    text = text.replace("\r\n", "\\n").replace("\n", "\\n").replace("\r", "\\n")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == " " else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    if unicodedata.category(char) in ("Cc", "Cs"):
        return char.encode("unicode_escape").decode()
    return char


def fitted(widths: Sequence[int], columns: int | None) -> list[int] | None:
    """The widths, the widest made narrower until they fit; None if they cannot."""
    room = list(widths)
    if columns is None:
        return room
    gaps = len(_GAP) * (len(room) - 1)
    if sum(min(width, WIDTH_MIN) for width in room) + gaps > columns:
        return None
    excess = sum(room) + gaps - columns
    while excess > 0:
        widest = max(range(len(room)), key=room.__getitem__)
        below = max((width for width in room if width < room[widest]), default=WIDTH_MIN)
        floor = max(below, WIDTH_MIN, room[widest] - excess)
        if floor >= room[widest]:
            if room[widest] <= WIDTH_MIN:
                return None
            floor = room[widest] - 1
        excess -= room[widest] - floor
        room[widest] = floor
    return room


def grid(rows: Sequence[Sequence[str]], widths: Sequence[int], *, wrap: bool) -> Iterator[str]:
    """The rows as lines, the first of them as the head over a rule."""
    for number, row in enumerate(rows):
        cells = [_wrapped(c, w) if wrap else [_cut(c, w)] for c, w in zip(row, widths, strict=True)]
        for line in range(max(map(len, cells))):
            pieces = [cell[line] if line < len(cell) else "" for cell in cells]
            yield _GAP.join(_padded(p, w) for p, w in zip(pieces, widths, strict=True))
        if number == 0:
            yield "-+-".join("-" * width for width in widths)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - cell_width(text))


def _cut(text: str, width: int) -> str:
    if cell_width(text) <= width:
        return text
    kept, used = [], 0
    for char in text:
        used += columns_of(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept) + _ELLIPSIS


def _wrapped(text: str, width: int) -> list[str]:
    lines, line, used = [], "", 0
    for char in text:
        columns = columns_of(char)
        if used + columns > width:
            lines.append(line)
            line, used = "", 0
        line += char
        used += columns
    return [*lines, line]
