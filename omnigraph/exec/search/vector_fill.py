"""Embeddings on write: vectors of `@embed` properties, made from the texts that a write brings.

Invariant: a vector that a row gives is kept. A text that a committed row of the same id has too
keeps that row's vector, and no text is sent twice while it is remembered. Without a provider
nothing is sent: vectors of new texts stay null until `embed` makes up for them. A provider that
fails refuses the write, whole.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph import environment
from omnigraph.catalog.model import Embed, NodeType, Property, Type
from omnigraph.costs import COSTS
from omnigraph.errors import BadRequest, EmbeddingFailed
from omnigraph.exec.search.embed import Provider, Purpose, Vector, provider_from_env
from omnigraph.lru import Lru

Committed = Callable[[pa.Array, list[str]], pa.Table]
"""Looks committed rows up by ids: those columns of the rows that are there."""

_LATER = "; nothing was written: repeat it, or write with embed='later' and run `omnigraph embed`"


def named_provider() -> Callable[[], Provider] | None:
    """What makes the provider that the environment names. A key alone names none, so that nothing
    is sent."""
    if environment.EMBED_MOCK.read() or environment.EMBED_PROVIDER.is_set():
        return cache(provider_from_env)
    return None


def embedded_properties(owner: Type) -> list[tuple[Property, Embed]]:
    """The vectors of a type that are made from texts."""
    if not isinstance(owner, NodeType):
        return []
    return [(prop, prop.embed) for prop in owner.properties if prop.embed is not None]


@dataclass(slots=True)
class TextVectors:
    """LRU of vectors by provider, dimension and text, shared by the writes of a graph."""

    _kept: Lru[tuple[Hashable, int, str], Vector] = field(
        default_factory=lambda: Lru(COSTS.vector_components_kept_max, len)
    )

    def of(self, provider: Provider, texts: Sequence[str], dimension: int) -> dict[str, Vector]:
        """The vector of each text; texts that are not remembered are sent, some at a time."""
        vectors: dict[str, Vector] = {}
        # Two services may give one name to two models.
        maker = provider if isinstance(provider, Hashable) else provider.model
        for text in texts:
            kept = self._kept.get((maker, dimension, text))
            if kept is not None:
                vectors[text] = kept
        missing = [text for text in dict.fromkeys(texts) if text not in vectors]
        for batch in _batches(missing):
            try:
                made = provider.embed(batch, dimension, Purpose.DOCUMENT)
            except EmbeddingFailed as cause:
                raise EmbeddingFailed(cause.provider, cause.detail + _LATER) from cause
            for text, vector in zip(batch, made, strict=True):
                vectors[text] = vector
                self._kept.put((maker, dimension, text), vector)
        return vectors


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        is_full = len(batch) >= COSTS.embed_batch_texts_max
        if batch and (is_full or characters + len(text) > COSTS.embed_batch_characters_max):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class VectorFill:
    """Fills the vectors of rows that are about to be written. Without a provider only those that
    are known are filled; it is made when a text has to be sent, so that one without a key is no
    matter to rows that bring their vectors."""

    provider: Callable[[], Provider] | None
    vectors: TextVectors

    def filled(
        self, owner: Type, rows: pa.Table, committed: Committed | None
    ) -> dict[str, pa.Array]:
        """The vector columns of rows, by name, with values where they were null."""
        columns = {}
        for prop, embed in embedded_properties(owner):
            empty = pc.is_null(rows.column(prop.name))
            texts = rows.column(embed.source)
            is_text = pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False)
            numbers = pc.indices_nonzero(pc.and_(empty, is_text))
            if len(numbers):
                columns[prop.name] = self._column(prop, embed, rows, numbers, committed)
        return columns

    def _column(
        self,
        prop: Property,
        embed: Embed,
        rows: pa.Table,
        numbers: pa.Array,
        committed: Committed | None,
    ) -> pa.Array:
        chosen = rows.select(["id", embed.source]).take(numbers)
        ids, texts = (chosen.column(n).to_pylist() for n in ("id", embed.source))
        known: dict[tuple[str, str], list[float]] = {}
        if committed is not None:
            columns = ["id", embed.source, prop.name]
            before = committed(pa.array(ids, pa.utf8()), columns)
            for entity, text, vector in zip(*(before[n].to_pylist() for n in columns), strict=True):
                if text is not None and vector is not None:
                    known[entity, text] = vector
        new = [text for entity, text in zip(ids, texts, strict=True) if (entity, text) not in known]
        made = self._made(prop, embed, new)
        column = rows.column(prop.name).to_pylist()
        for number, entity, text in zip(numbers.to_pylist(), ids, texts, strict=True):
            column[number] = known.get((entity, text)) or made.get(text)
        return pa.array(column, rows.schema.field(prop.name).type)

    def _made(self, prop: Property, embed: Embed, texts: list[str]) -> dict[str, Vector]:
        if self.provider is None or not texts:
            return {}
        provider = self.provider()
        if embed.model is not None and embed.model != provider.model:
            raise BadRequest(
                f"property '{prop.name}' is embedded with model '{embed.model}', the provider uses "
                f"'{provider.model}'",
                f"set {environment.EMBED_MODEL.name} to the property's model, or give the vectors",
            )
        return self.vectors.of(provider, texts, prop.type.dimension or 0)
