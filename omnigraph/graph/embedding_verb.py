"""Embedding provider of an open graph: which service embeds the texts of its queries."""

from typing import TYPE_CHECKING

from omnigraph.exec.read.reading import Reading

if TYPE_CHECKING:
    from omnigraph.exec.search.embed import Provider


class EmbeddingVerb:
    """Lets an open graph have a provider of its own."""

    _reading: Reading

    @property
    def embedder(self) -> "Provider | None":
        """The provider of its own, if it has one."""
        return self._reading.embedder

    def embed_with(self, provider: "Provider | None") -> None:
        """Embed the texts of queries with this provider; None: with that of the environment."""
        self._reading.embedder = provider
