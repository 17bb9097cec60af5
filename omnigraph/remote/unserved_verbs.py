"""Verbs of a graph that make vectors, which a served graph refuses: its server makes them.

Invariant: each says what to do instead.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from omnigraph.arguments import checked
from omnigraph.errors import NotServed
from omnigraph.exec.progress import Progress
from omnigraph.graph import Graph
from omnigraph.graph.embed_verb import EmbedResult
from omnigraph.storage.names import MAIN

if TYPE_CHECKING:
    from omnigraph.exec.search.embed import Provider


class UnservedEmbedVerbs(Graph):
    """The verbs of embeddings, refused."""

    @checked
    def embed(
        self,
        branch: str = MAIN,
        types: Collection[str] | None = None,
        *,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> EmbedResult:
        """Refused: the provider of a served graph is its server's."""
        raise NotServed("embed", self.uri, "run `omnigraph embed GRAPH` where the files are")

    def embed_with(
        self,
        provider: "Provider | str | None",
        *,
        model: str | None = None,
        key: str | None = None,
        base_url: str | None = None,
    ) -> None:
        """Refused: the provider of a served graph is its server's."""
        raise NotServed("embed_with", self.uri, "declare the provider in its cluster.yaml")
