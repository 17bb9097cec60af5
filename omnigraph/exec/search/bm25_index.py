"""Inverted index of a text column of one table version, in memory, with BM25 scores.

Invariant: documents are the rows whose text has a term, numbered in the order of their ids, so
ascending numbers are ascending ids. All statistics are those of the whole version: a filter
changes which documents are returned, never their scores.

The score of a document is the sum over the query's terms, each as often as the query holds it, of

    idf(t) · f (k1 + 1) / (f + k1 (1 − b + b · length / average length))
    idf(t) = ln(1 + (N − n + 0.5) / (n + 0.5))

with f the term's frequency in the document, N the documents and n those that hold the term.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.exec.limits import announce
from omnigraph.exec.search.edits import within_edits
from omnigraph.exec.values.analyse import analyse, terms
from omnigraph.exec.values.sorted_ids import joined

K1, B = 1.2, 0.75

_BYTES_A_WORD = 48
"""Peak bytes of inverting, per word: its row, its term, and the sorted pairs."""

Numbers = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TextIndex:
    """Postings: documents and frequencies by term. Made by `build`."""

    ids: pa.Array
    vocabulary: dict[str, int]
    starts: Numbers  # of the term's postings; one more entry than terms
    documents: npt.NDArray[np.int32]  # ascending within a term
    frequencies: npt.NDArray[np.int32]
    lengths: Numbers  # in terms, of each document
    norms: Scores  # k1 (1 − b + b · length / average length) of each document

    @property
    def bytes_held(self) -> int:
        """Estimated bytes, for the cache."""
        arrays = (self.starts, self.documents, self.frequencies, self.lengths, self.norms)
        words = sum(map(len, self.vocabulary)) + 120 * len(self.vocabulary)
        return int(self.ids.nbytes) + sum(array.nbytes for array in arrays) + words

    def matching(self, query: str) -> Numbers:
        """The documents that hold a term of the query, ascending."""
        return self._holding(self._known(terms(query)))

    def matching_fuzzily(self, query: str, edits_max: int) -> Numbers:
        """The documents that hold a term within `edits_max` edits of a term of the query."""
        words = list(self.vocabulary)
        near = {n for term in set(terms(query)) for n in within_edits(term, words, edits_max)}
        return self._holding(sorted(near))

    def scored(self, query: str) -> tuple[Numbers, Scores]:
        """The documents that hold a term of the query, ascending, with their scores."""
        counts = Counter(terms(query))
        known = sorted(term for term in counts if term in self.vocabulary)
        if not known:
            return np.empty(0, np.int64), np.empty(0, np.float64)
        gains = [self._gains_of(self.vocabulary[term], counts[term]) for term in known]
        if len(gains) == 1:
            return gains[0]
        return _summed(gains, len(self.norms))

    def _gains_of(self, term: int, times: int) -> tuple[Numbers, Scores]:
        postings = slice(self.starts[term], self.starts[term + 1])
        documents, frequencies = self.documents[postings], self.frequencies[postings]
        count, total = len(documents), len(self.norms)
        idf = np.log1p((total - count + 0.5) / (count + 0.5))
        gain = frequencies * (K1 + 1) / (frequencies + self.norms[documents])
        return documents.astype(np.int64), times * idf * gain

    def _known(self, words: Iterable[str]) -> list[int]:
        return sorted({self.vocabulary[word] for word in words if word in self.vocabulary})

    def _holding(self, numbers: list[int]) -> Numbers:
        if not numbers:
            return np.empty(0, np.int64)
        postings = [self.documents[self.starts[n] : self.starts[n + 1]] for n in numbers]
        if len(postings) == 1:
            return postings[0].astype(np.int64)
        seen = np.zeros(len(self.norms), dtype=np.bool_)
        for documents in postings:
            seen[documents] = True
        return np.flatnonzero(seen)


def _summed(postings: list[tuple[Numbers, Scores]], total: int) -> tuple[Numbers, Scores]:
    # Every score is summed in the order of the terms, so equal documents get equal scores.
    documents = np.concatenate([documents for documents, _ in postings])
    gains = np.concatenate([gains for _, gains in postings])
    if len(documents) * 8 < total:
        scored, indexes = np.unique(documents, return_inverse=True)
        return scored, np.bincount(indexes, gains).astype(np.float64)
    scores = np.bincount(documents, gains, minlength=total).astype(np.float64)
    scored = np.flatnonzero(scores)  # a gain is more than nothing
    return scored, scores[scored]


def build(ids: pa.Array, texts: pa.ChunkedArray) -> TextIndex:
    """Invert a column, chunk by chunk, so that copies stay small."""
    vocabulary: dict[str, int] = {}
    rows, numbers, first, words = [], [], 0, 0
    for chunk in texts.chunks:
        analysed = analyse(chunk)
        local = [vocabulary.setdefault(word, len(vocabulary)) for word in analysed.vocabulary]
        numbers.append(np.array(local, dtype=np.int64)[analysed.term_of])
        rows.append(analysed.text_of + first)
        first += len(chunk)
        words += len(numbers[-1])
        announce(_BYTES_A_WORD * words)
    return _inverted(ids, vocabulary, _joined(rows), _joined(numbers))


def _joined(parts: list[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _inverted(
    ids: pa.Array, vocabulary: dict[str, int], rows: Numbers, numbers: Numbers
) -> TextIndex:
    lengths_of_rows = np.bincount(rows, minlength=len(ids))
    kept = np.flatnonzero(lengths_of_rows)
    order = pc.sort_indices(ids.take(pa.array(kept))).to_numpy()
    kept = kept[order]  # document → row
    document_of = np.empty(len(ids), dtype=np.int64)
    document_of[kept] = np.arange(len(kept))

    pairs, frequencies = np.unique(numbers * len(kept) + document_of[rows], return_counts=True)
    return _index(ids.take(pa.array(kept)), vocabulary, pairs, frequencies, lengths_of_rows[kept])


def _index(
    ids: pa.Array,
    vocabulary: dict[str, int],
    pairs: Numbers,
    frequencies: npt.NDArray[np.integer[Any]],
    lengths: Numbers,
) -> TextIndex:
    """From `term · documents + document` of each posting, ascending."""
    terms_of, documents = np.divmod(pairs, max(len(ids), 1))
    holders = np.bincount(terms_of, minlength=len(vocabulary))
    average = lengths.mean() if len(ids) else 1.0
    return TextIndex(
        ids=ids,
        vocabulary=vocabulary,
        starts=np.concatenate([[0], np.cumsum(holders)]).astype(np.int64),
        documents=documents.astype(np.int32),
        frequencies=frequencies.astype(np.int32),
        lengths=lengths,
        norms=K1 * (1 - B + B * lengths / average),
    )


def replaced(index: TextIndex, gone: npt.NDArray[np.bool_], extra: TextIndex) -> TextIndex:
    """The index without the documents marked in `gone`, merged with another index."""
    kept = np.flatnonzero(~gone)
    ids, kept_numbers, extra_numbers = joined(index.ids.take(pa.array(kept)), extra.ids)
    number_of = np.full(len(index.ids), -1)
    number_of[kept] = kept_numbers
    vocabulary = dict(index.vocabulary)
    words = [vocabulary.setdefault(word, len(vocabulary)) for word in extra.vocabulary]

    # Both are in order of terms and documents, and the new numbers keep that order.
    stays = ~gone[index.documents]
    old = _terms(index)[stays] * len(ids) + number_of[index.documents[stays]]
    new = np.array(words, dtype=np.int64)[_terms(extra)] * len(ids) + extra_numbers[extra.documents]
    order = np.argsort(new)
    slots = np.searchsorted(old, new[order])
    lengths = np.empty(len(ids), dtype=np.int64)
    lengths[kept_numbers], lengths[extra_numbers] = index.lengths[kept], extra.lengths
    return _index(
        ids,
        vocabulary,
        np.insert(old, slots, new[order]),
        np.insert(index.frequencies[stays], slots, extra.frequencies[order]),
        lengths,
    )


def _terms(index: TextIndex) -> Numbers:
    return np.repeat(np.arange(len(index.vocabulary)), np.diff(index.starts))
