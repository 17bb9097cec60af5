"""Levenshtein edit distance of one word to many, vectorised.

Invariant: the distance counts Unicode characters: each insertion, deletion or replacement of one
character counts one.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from omnigraph.costs import COSTS
from omnigraph.query_limits import checkpoint


def within_edits(word: str, words: Sequence[str], edits_max: int) -> list[int]:
    """The indexes of the words at most `edits_max` edits away."""
    lengths = np.fromiter(map(len, words), dtype=np.int64, count=len(words))
    # A word differs from another by at least the difference of their lengths.
    candidates = np.flatnonzero(np.abs(lengths - len(word)) <= edits_max)
    near: list[int] = []
    for first in range(0, len(candidates), COSTS.edit_words_together):
        block = candidates[first : first + COSTS.edit_words_together]
        distances = _distances(word, [words[index] for index in block], lengths[block], edits_max)
        near.extend(block[distances <= edits_max].tolist())
    return near


def _distances(
    word: str, words: list[str], lengths: npt.NDArray[np.int64], edits_max: int
) -> npt.NDArray[np.int64]:
    """Distances, exact up to `edits_max` (banded dynamic programming)."""
    longest = int(lengths.max(initial=0))
    letters = _letters(words, longest)
    far = edits_max + 1
    # above[j] is the distance between the letters of `word` so far and the first j of each other
    # word, far outside the band that can still come back to `edits_max`.
    above = [np.full(len(words), min(j, far), dtype=np.int64) for j in range(longest + 1)]
    for i, letter in enumerate(map(ord, word), start=1):
        checkpoint()
        row = [np.full(len(words), min(i, far), dtype=np.int64)]
        for j in range(1, longest + 1):
            if abs(i - j) > edits_max:
                row.append(np.full(len(words), far, dtype=np.int64))
                continue
            replaced = above[j - 1] + (letters[j - 1] != letter)
            row.append(np.minimum(np.minimum(row[j - 1], above[j]) + 1, replaced))
        above = row
    return np.stack(above)[lengths, np.arange(len(words))]


def _letters(words: list[str], longest: int) -> npt.NDArray[np.uint32]:
    """Code points, one row a position, one column a word, padded with 0, which no word holds."""
    padded = "".join(word.ljust(longest, "\0") for word in words)
    codes = np.frombuffer(padded.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return np.ascontiguousarray(codes.reshape(len(words), longest).T)
