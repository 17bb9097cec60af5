"""Embeddings on write: vectors of `@embed` properties, made from the texts that a write brings.

Invariant: a vector that a row gives is kept. A text that a committed row of the same id has too
keeps that row's vector, and no text is sent twice while it is remembered. Without a provider
nothing is sent: vectors of new texts stay null until `embed` makes up for them. A provider that
fails, or that has another model than the one recorded for the property, refuses the write, whole.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import Embed, NodeType, Property, Type
from omnigraph.costs import COSTS
from omnigraph.errors import EmbeddingFailed
from omnigraph.exec.search.embed import Provider, Purpose, Vector, provider_name
from omnigraph.exec.values.vector_base import CommittedRows, Filled, VectorBase, other_model
from omnigraph.lru import Lru
from omnigraph.storage.records import EmbeddedBy, embedded_property

_LATER = "; nothing was written: repeat it, or write with embed='later' and run `omnigraph embed`"


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

    def filled(self, owner: Type, rows: pa.Table, base: VectorBase) -> Filled:
        """Return the vector columns of rows, with values where they were null."""
        done = Filled()
        for prop, embed in embedded_properties(owner):
            empty = pc.is_null(rows.column(prop.name))
            texts = rows.column(embed.source)
            is_text = pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False)
            numbers = pc.indices_nonzero(pc.and_(empty, is_text))
            if len(numbers):
                done.columns[prop.name] = self._column(owner, prop, rows, numbers, base, done)
        return done

    def _column(
        self,
        owner: Type,
        prop: Property,
        rows: pa.Table,
        numbers: pa.Array,
        base: VectorBase,
        done: Filled,
    ) -> pa.Array:
        embed = prop.embed
        assert embed is not None
        chosen = rows.select(["id", embed.source]).take(numbers)
        ids, texts = (chosen.column(n).to_pylist() for n in ("id", embed.source))
        known = _known(base.rows, ids, embed.source, prop.name)
        new = [text for entity, text in zip(ids, texts, strict=True) if (entity, text) not in known]
        made: dict[str, Vector] = {}
        if self.provider is not None and new:
            provider, key = self._provider_of(prop, embed), embedded_property(owner.id, prop.id)
            recorded = base.recorded.get(key)
            if recorded is not None and recorded.model != provider.model:
                if base.keeps_vectors(prop.name):
                    raise other_model(prop.name, recorded.model, provider.model)
                known, new = {}, texts
            width = prop.type.dimension or 0
            done.embedded[key] = EmbeddedBy(provider_name(provider), provider.model, width)
            made = self.vectors.of(provider, new, width)
        column = rows.column(prop.name).to_pylist()
        for number, entity, text in zip(numbers.to_pylist(), ids, texts, strict=True):
            column[number] = known.get((entity, text)) or made.get(text)
        return pa.array(column, rows.schema.field(prop.name).type)

    def _provider_of(self, prop: Property, embed: Embed) -> Provider:
        """Return the provider, which must have the model that the schema names."""
        assert self.provider is not None
        provider = self.provider()
        if embed.model is not None and embed.model != provider.model:
            raise other_model(prop.name, embed.model, provider.model)
        return provider


def _known(
    committed: CommittedRows | None, ids: list[str], source: str, name: str
) -> dict[tuple[str, str], Vector]:
    """Return the committed vectors of rows by id and text."""
    if committed is None:
        return {}
    columns = ["id", source, name]
    before = committed(pa.array(ids, pa.utf8()), columns)
    rows = zip(*(before[column].to_pylist() for column in columns), strict=True)
    return {
        (entity, text): vector
        for entity, text, vector in rows
        if text is not None and vector is not None
    }
