"""Text analysis for full-text search: tokens, lower case, stems, stop words, ASCII folding.

A text is split at every character that is neither letter nor digit. Pieces of 40 bytes and more are
dropped; the others are lower-cased, stemmed (English Snowball), dropped if the stem is a stop word,
and folded to ASCII where that is possible, in this order.

Invariant: the terms of a text are those that Lance's full-text index makes with `INDEX_PARAMETERS`,
for every text, so an index matches what a scan matches. `characters.txt` holds what Lance's Unicode
tables say about characters beyond ASCII; Python's own follow another edition of Unicode.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.query_limits import checkpoint

INDEX_PARAMETERS: dict[str, Any] = {
    "base_tokenizer": "simple",
    "language": "English",
    "max_token_length": 40,
    "lower_case": True,
    "stem": True,
    "remove_stop_words": True,
    "custom_stop_words": None,
    "ascii_folding": True,
    "with_position": False,
}
"""Parameters of a full-text index that agrees with `terms`."""

_PIECE = re.compile("[^ ]+")
_CHUNK = 1 << 16  # characters between two looks at the deadline
_PIECES_CHECKED = 64
_PIECE_BYTES_END = 40
_TERMS_KEPT = 1 << 20

_STOP_WORDS = """
a about above after again against all am an and any are as at be because been before being below
between both but by can did do does doing down during each few for from further had has have
having he her here hers herself him himself his how i if in into is it its itself just me more
most my myself now of off on once only or other our ours ourselves out over own re same she should
so some such than that the their theirs them themselves then there these they this those through
to too under until up very was we were what when where which while who whom why will with you your
yours yourself yourselves
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def terms(text: str) -> list[str]:
    """The terms of a text, in order, as often as they occur."""
    stems = (term(piece) for piece in _pieces(text))
    return [stem for stem in stems if stem is not None]


def _separated_text(text: str) -> str:
    """Return a text with a space for each separator. Checks the deadline in long texts."""
    split = _characters().split
    if len(text) <= _CHUNK:
        return text.translate(split)
    parts = list[str]()
    for start in range(0, len(text), _CHUNK):
        checkpoint()
        parts.append(text[start : start + _CHUNK].translate(split))
    return "".join(parts)


def _pieces(text: str) -> Iterator[str]:
    """Yield the words of a text. Checks the deadline in long texts."""
    for count, piece in enumerate(_separated_text(text).split(" ")):
        if not count % _PIECES_CHECKED:
            checkpoint()
        yield piece


def searched_words(text: str) -> list[str]:
    """Return one word of a text for each distinct term, in order.

    The words hold letters and digits alone, so no other reader finds an operator or a quote in
    them, and their terms are `terms(text)`.
    """
    words: dict[str, str] = {}
    for word in _pieces(text):
        stem = term(word)
        if stem is not None:
            words.setdefault(stem, word)
    return list(words.values())


def highlighted(
    text: str, sought: Collection[str], before: str, after: str, bytes_max: int
) -> tuple[str, int]:
    """Return the text with marks around every word whose term is one of these, and how many were
    found. A text that would exceed `bytes_max` comes back without marks."""
    parts, end, found = list[str](), 0, 0
    for count, piece in enumerate(_PIECE.finditer(_separated_text(text))):
        if not count % _PIECES_CHECKED:
            checkpoint()
        if term(piece[0]) in sought:
            parts += [text[end : piece.start()], before, piece[0], after]
            end = piece.end()
            found += 1
    if found * (len(before) + len(after)) > bytes_max:
        return text, found
    return "".join((*parts, text[end:])), found


@lru_cache(maxsize=_TERMS_KEPT)
def term(piece: str) -> str | None:
    """The term of one piece of text without separators, if it has one."""
    if not piece or len(piece.encode("utf-8", "surrogatepass")) >= _PIECE_BYTES_END:
        return None
    if piece.isascii():
        stem = _stem(piece.lower())
        return None if stem in STOP_WORDS else stem
    characters = _characters()
    stem = _stem(piece.translate(characters.lower))
    return None if stem in STOP_WORDS else stem.translate(characters.fold)


def _stem(word: str) -> str:
    # A stemmer keeps its word in itself, so each call gets one of its own: queries run in threads.
    return str(_stemmers()().stemWord(word))


@cache
def _stemmers() -> Any:
    # Loads the stemmers of thirty languages, which takes longer than opening a graph.
    return import_module("snowballstemmer.english_stemmer").EnglishStemmer


# Columns


@dataclass(frozen=True, slots=True)
class Analysed:
    """The terms of many texts: occurrence i is `vocabulary[term_of[i]]` in text `text_of[i]`."""

    vocabulary: tuple[str, ...]
    term_of: npt.NDArray[np.int64]
    text_of: npt.NDArray[np.int64]


def analyse(texts: pa.Array) -> Analysed:
    """The terms of every text of a column. Nulls have none."""
    lists = pc.split_pattern(_separated(texts), " ")
    pieces = lists.flatten().dictionary_encode()
    text_of = lists.value_parent_indices().to_numpy(zero_copy_only=False)
    vocabulary: dict[str, int] = {}
    numbers = np.empty(len(pieces.dictionary), dtype=np.int64)
    for index, piece in enumerate(pieces.dictionary.to_pylist()):
        stem = term(piece)
        numbers[index] = -1 if stem is None else vocabulary.setdefault(stem, len(vocabulary))
    occurrences = numbers[pieces.indices.to_numpy(zero_copy_only=False)]
    kept = occurrences >= 0
    return Analysed(tuple(vocabulary), occurrences[kept], text_of[kept].astype(np.int64))


def _separated(texts: pa.Array) -> pa.Array:
    """The texts with a space for each separator."""
    ascii_only = pc.string_is_ascii(texts)
    if pc.all(ascii_only, min_count=0).as_py():
        return _separated_ascii(texts)
    split = _characters().split
    other = pa.array(
        [text.translate(split) for text in texts.filter(pc.invert(ascii_only)).to_pylist()],
        pa.large_utf8(),
    )
    blanked = _separated_ascii(pc.if_else(ascii_only, texts, pa.scalar(None, texts.type)))
    return pc.replace_with_mask(blanked, pc.fill_null(pc.invert(ascii_only), False), other)


_ASCII_SEPARATED = np.array(
    [byte if chr(byte).isascii() and chr(byte).isalnum() else 32 for byte in range(256)],
    dtype=np.uint8,
)


def _separated_ascii(texts: pa.Array) -> pa.Array:
    # Byte for byte in the column's own buffer: no text becomes a Python object.
    texts = pc.cast(texts, pa.large_utf8())
    validity, offsets, data = texts.buffers()
    if data is None:
        return texts
    spaced = _ASCII_SEPARATED[np.frombuffer(data, dtype=np.uint8)]
    buffers = [validity, offsets, pa.py_buffer(spaced)]
    return pa.Array.from_buffers(
        pa.large_utf8(), len(texts), buffers, null_count=texts.null_count, offset=texts.offset
    )


# Characters


@dataclass(frozen=True, slots=True)
class _Characters:
    """Tables for `str.translate`: separators to spaces, to lower case, to ASCII."""

    split: "_Separators"
    lower: dict[int, str]
    fold: dict[int, str]


class _Separators(dict[int, str | int]):
    """Maps a character that is neither letter nor digit to a space; filled on first use."""

    def __init__(self, starts: list[int], ends: list[int]) -> None:
        super().__init__()
        self._starts, self._ends = starts, ends

    def __missing__(self, code: int) -> str | int:
        index = bisect_right(self._starts, code) - 1
        inside = index >= 0 and code <= self._ends[index]
        self[code] = code if inside else " "
        return self[code]


@cache
def _characters() -> _Characters:
    text = files("omnigraph.exec.values").joinpath("characters.txt").read_text(encoding="ascii")
    tables = {name: rest.split(" ") for name, _, rest in map(_parted, text.splitlines())}
    ranges = [("30", "39"), ("41", "5a"), ("61", "7a"), *map(_range, tables["word"])]
    lower = {code: chr(code + 32) for code in range(ord("A"), ord("Z") + 1)}
    for entry in tables["lower"]:
        code, _, codes = entry.partition("=")
        lower[int(code, 16)] = _decoded(codes)
    fold = {}
    for entry in tables["fold"]:
        folded, _, sources = entry.partition("=")
        fold.update(dict.fromkeys((int(code, 16) for code in sources.split(",")), _decoded(folded)))
    starts = [int(first, 16) for first, _ in ranges]
    ends = [int(last, 16) for _, last in ranges]
    return _Characters(_Separators(starts, ends), lower, fold)


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition(" ")


def _range(entry: str) -> tuple[str, str]:
    first, _, last = entry.partition("-")
    return first, last or first


def _decoded(codes: str) -> str:
    return "".join(chr(int(code, 16)) for code in codes.split("+"))
