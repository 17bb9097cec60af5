"""The graph that `bench/read.py` asks: people, companies, documents, the same for the same seed.

Out-degrees of `Knows` follow a power law with a mean of ten, and so does who is known. Documents
are texts of an invented language with word frequencies like English, and vectors around centres.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SCHEMA = """
node Person { name: String @key  age: I32 @index  city: String @index  score: F64 }
node Company { name: String @key  sector: String }
node Doc { slug: String @key  body: String @index  emb: Vector(64) @index }
edge Knows: Person -> Person
edge WorksAt: Person -> Company
edge Wrote: Person -> Doc
"""
DIMENSION = 64
_WORDS, _WORDS_A_TEXT, _CITIES = 20_000, 24, 100
_SYLLABLES = (
    "ba be bi bo da de di do fa fe ka ke ki ko la le li lo ma me mi mo na ne no pa ra re ri ro sa"
)

Table = dict[str, pa.Array]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Data:
    """Node tables by name, edge ends as node numbers."""

    persons: pa.Table
    companies: pa.Table
    docs: pa.Table
    knows: tuple[Numbers, Numbers]
    works_at: tuple[Numbers, Numbers]
    wrote: tuple[Numbers, Numbers]
    vectors: npt.NDArray[np.float32]
    words: list[str]


def generate(persons: int, seed: int = 42) -> Data:
    """A graph of so many people, a company for every hundred of them, a document for each."""
    chance = np.random.default_rng(seed)
    companies = max(persons // 100, 1)
    words = _vocabulary(chance)
    vectors = _vectors(chance, persons)
    workers = np.flatnonzero(chance.random(persons) < 0.8)
    employers = _popular(chance, len(workers), companies, 0.7)
    return Data(
        persons=pa.table(
            {
                "name": names("person", persons),
                "age": pa.array(chance.integers(18, 90, persons), pa.int32()),
                "city": names("city", _CITIES).take(pa.array(chance.integers(0, _CITIES, persons))),
                "score": chance.random(persons),
            }
        ),
        companies=pa.table(
            {
                "name": names("company", companies),
                "sector": names("sector", 12).take(pa.array(chance.integers(0, 12, companies))),
            }
        ),
        docs=pa.table(
            {
                "slug": names("doc", persons),
                "body": _texts(chance, persons, words),
                "emb": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION),
            }
        ),
        knows=_friendships(chance, persons),
        works_at=(workers, employers),
        wrote=(chance.integers(0, persons, persons), np.arange(persons)),
        vectors=vectors,
        words=words,
    )


def names(kind: str, count: int) -> pa.Array:
    """`kind-0000000` and so on."""
    return pa.array([f"{kind}-{n:07}" for n in range(count)], pa.utf8())


def _friendships(chance: np.random.Generator, persons: int) -> tuple[Numbers, Numbers]:
    degrees = chance.pareto(2.0, persons) + 1
    degrees = np.maximum(np.round(degrees * 10 / degrees.mean()), 1).astype(np.int64)
    degrees = np.minimum(degrees, max(persons // 10, 1))
    sources = np.repeat(np.arange(persons), degrees)
    targets = _popular(chance, len(sources), persons, 0.5)
    pairs = np.unique(sources * persons + targets)
    sources, targets = pairs // persons, pairs % persons
    apart = sources != targets
    order = chance.permutation(int(apart.sum()))
    return sources[apart][order], targets[apart][order]


def _popular(chance: np.random.Generator, count: int, among: int, skew: float) -> Numbers:
    """Draws in which the n-th of a hidden order is as likely as 1 / n^skew."""
    ranks = (chance.random(count) ** (1 / (1 - skew)) * among).astype(np.int64)
    hidden: Numbers = chance.permutation(among)
    return hidden[np.minimum(ranks, among - 1)]


def _vocabulary(chance: np.random.Generator) -> list[str]:
    syllables = _SYLLABLES.split()
    lengths = chance.integers(2, 5, _WORDS * 2)
    made = ("".join(chance.choice(syllables, n)) for n in lengths)
    return list(dict.fromkeys(made))[:_WORDS]


def _texts(chance: np.random.Generator, count: int, words: list[str]) -> pa.Array:
    lengths = chance.poisson(_WORDS_A_TEXT, count) + 1
    # Ranks of words as Zipf has them, without the few that would be in every text.
    ranks = (chance.random(int(lengths.sum())) ** 3 * len(words)).astype(np.int64)
    flat = pa.array(words, pa.utf8()).take(pa.array(ranks))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    joined = pa.compute.binary_join(pa.ListArray.from_arrays(offsets, flat), " ")
    return joined.cast(pa.utf8())


def _vectors(chance: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
    centres = chance.normal(size=(64, DIMENSION))
    around = centres[chance.integers(0, 64, count)]
    vectors = around + chance.normal(size=(count, DIMENSION))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors, dtype=np.float32)
