"""Vectorised scan of NDJSON bytes: line ends, common prefixes, lines that hold one object each.

Invariant: no line is parsed. Each test covers all lines at once, in numpy, without the GIL.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

_ESCAPED_NULL = re.compile(rb'\\u[^"]*"\s*:\s*null')  # a name that may be spelled with an escape
_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_WORD = 8


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines with their first and last offsets; the last line ends in a newline too."""

    data: bytes
    starts: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def longest(self) -> int:
        """The bytes of the longest line, its end counted."""
        return int((self.ends - self.starts).max()) + 1

    def are_objects(self) -> bool:
        """Whether each line holds one object of sound text, as far as bytes can tell.

        A line that begins with { and ends with } cannot be a piece of an object that goes on in the
        next one: after a } inside an object comes a comma or another }.
        """
        raw = np.frombuffer(self.data, np.uint8)
        if not (raw[self.starts] == _OPEN).all() or not (raw[self.ends - 1] == _CLOSE).all():
            return False
        try:
            self.data.isascii() or self.data.decode()
        except UnicodeDecodeError:
            return False
        return True

    def has_null_member(self, names: Iterable[str]) -> bool:
        """Whether one of these members may be null somewhere, in any object. Arrow's reader takes
        that for a member that is absent."""
        if b"null" not in self.data:
            return False
        if b"\\u" in self.data and _ESCAPED_NULL.search(self.data):
            return True
        words = b"|".join(re.escape(name.encode()) for name in names)
        return re.search(rb'"(?:' + words + rb')"\s*:\s*null', self.data) is not None

    def begin_with(self, prefix: bytes) -> bool:
        """Whether each line begins with these bytes."""
        if int((self.ends - self.starts).min()) < len(prefix):
            return False
        return stands_at(self.data, prefix, self.starts)


def stands_at(data: bytes, text: bytes, offsets: np.ndarray) -> bool:
    """Whether a text stands at each of these offsets, which leave room for it."""
    size = len(text)
    if size < _WORD:
        raw = np.frombuffer(data, np.uint8)
        return all((raw[offsets + n] == text[n]).all() for n in range(size))
    # Eight bytes from any byte on, as one number each.
    words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))
    steps = [*range(0, size - _WORD, _WORD), size - _WORD]
    expected = (int.from_bytes(text[step : step + _WORD], "little") for step in steps)
    return all(
        (words[offsets + step] == np.uint64(word)).all()
        for step, word in zip(steps, expected, strict=True)
    )


def lines_of(data: bytes) -> Lines:
    """The lines of a block; objects may end their lines in the way of Windows."""
    data = data if data.endswith(b"\n") else data + b"\n"
    ends = _ends(data)
    raw = np.frombuffer(data, np.uint8)
    if ((raw[ends - 1] == _RETURN) & (raw[np.maximum(ends - 2, 0)] == _CLOSE)).any():
        data = data.replace(b"}\r\n", b"}\n")
        ends = _ends(data)
    starts = np.concatenate([[0], ends[:-1] + 1])
    return Lines(data, starts, ends)


def line_count(data: bytes) -> int:
    """How many lines end here."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == _NEWLINE))


def _ends(data: bytes) -> np.ndarray:
    return np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
