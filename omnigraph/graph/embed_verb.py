"""`Graph.embed` and `embed_with`: vectors that writes left out, and who makes them.

Invariant: texts leave the machine only for a provider that was named, here or by the environment. A
vector is written only if its text is still the one it was made from.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from omnigraph.arguments import checked
from omnigraph.catalog.model import Catalog, NodeType
from omnigraph.costs import COSTS
from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest, PreconditionFailed
from omnigraph.exec.progress import Meter, Progress
from omnigraph.exec.schemas import Schemas
from omnigraph.graph.late_reading import ReadSide
from omnigraph.graph.policy_guard import PolicyGuard
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.intent import noted
from omnigraph.storage.records import CommitNote, Snapshot

if TYPE_CHECKING:
    from omnigraph.exec.read.result import QueryResult
    from omnigraph.exec.search.embed import (
        Provider,
        make_provider,
        require_provider,
        selected_provider,
    )
    from omnigraph.exec.search.vector_fill import TextVectors, VectorFill, embedded_properties
    from omnigraph.graph.handles import Transaction
else:
    QueryResult = deferred("omnigraph.exec.read.result", "QueryResult")
    Provider = deferred("omnigraph.exec.search.embed", "Provider")
    make_provider = deferred("omnigraph.exec.search.embed", "make_provider")
    require_provider = deferred("omnigraph.exec.search.embed", "require_provider")
    selected_provider = deferred("omnigraph.exec.search.embed", "selected_provider")
    TextVectors = deferred("omnigraph.exec.search.vector_fill", "TextVectors")
    VectorFill = deferred("omnigraph.exec.search.vector_fill", "VectorFill")
    embedded_properties = deferred("omnigraph.exec.search.vector_fill", "embedded_properties")
    Transaction = deferred("omnigraph.graph.handles", "Transaction")

NOW, LATER = "now", "later"
_ATTEMPTS = 5
_MISSING = (
    'query missing($n: I64) {{ match {{ $d: {}  $d.{} is null  trim($d.{}) != "" }} '
    "return {{ {} }} order {{ $d }} limit $n }}"
)


@dataclass(frozen=True, slots=True)
class EmbedResult:
    """Vectors that were made, by `Type.property`, and the last commit that has them; None if
    nothing was missing.

    >>> graph.embed_with("mock")
    >>> graph.embed().commit_id is None
    True
    """

    branch: str
    embedded: dict[str, int] = field(default_factory=dict)
    commit_id: str | None = None


class EmbedVerb(ReadSide):
    """The verbs of a graph that make vectors."""

    _schemas: Schemas
    _guard: PolicyGuard
    query: Callable[..., QueryResult]
    snapshot: Callable[..., Snapshot]

    @property
    def embedder(self) -> "Provider | None":
        """The provider of its own, if it has one.

        >>> graph.embed_with(None)
        >>> graph.embedder is None
        True
        """
        return self._reading.embedder

    def embed_with(
        self,
        provider: "Provider | str | None",
        *,
        model: str | None = None,
        key: str | None = None,
        base_url: str | None = None,
    ) -> None:
        """Name the provider that embeds texts of this graph, in writes and in queries: mock,
        openai, openai-compatible or gemini. None: that of the environment, if it names one.

        >>> graph.embed_with("mock")
        """
        if isinstance(provider, str):
            provider = make_provider(provider, model=model, key=key, base_url=base_url)
        self._reading.embedder = provider

    def _vector_fill(self, catalog: Catalog, embed: str) -> "VectorFill | None":
        """What fills the vectors of a write, if anything does."""
        if embed not in (NOW, LATER):
            raise BadRequest(f"unknown time for vectors '{embed}'", "use now or later")
        if not catalog.embeds:
            return None
        provider = None if embed == LATER else selected_provider(self._reading.embedder)
        if provider is None and embed == NOW:
            return None
        vectors = self._reading.text_vectors  # shared by the handles of an open graph
        if vectors is None:
            vectors = self._reading.text_vectors = TextVectors()
        return VectorFill(provider, vectors)

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
        """Make the vectors that are missing where their texts are there, in commits of up to 2,000
        rows. Texts that have a vector are not sent.

        >>> graph.embed_with("mock")
        >>> graph.embed().embedded
        {}
        """
        note = noted(self._guard.changes(branch, actor), message, metadata)
        require_provider(self._reading.embedder)  # also where nothing is missing
        catalog = self._schemas.current(branch).catalog
        for name in types or ():
            if catalog.node(name) is None:
                raise BadRequest(f"there is no node type '{name}'", ", ".join(catalog.nodes))
        done, commit, meter = dict[str, int](), None, Meter(progress)
        for owner in catalog.nodes.values():
            if types is not None and owner.name not in types:
                continue
            for prop, embed in embedded_properties(owner):
                while True:
                    count, made = self._page(branch, owner, (prop.name, embed.source), note)
                    if not count:
                        break
                    commit = made
                    name = f"{owner.name}.{prop.name}"
                    done[name] = done.get(name, 0) + count
                    meter.add(count, "embed")
        return EmbedResult(branch, done, commit)

    def _page(
        self, branch: str, owner: NodeType, names: tuple[str, str], note: CommitNote
    ) -> tuple[int, str | None]:
        """Embed some rows that lack a vector, on the head they were read from; how many, and the
        commit. The texts are written with the vectors, unchanged: the write makes those."""
        kept = [*(owner.key or ("id",)), names[1]]
        shown = ", ".join(f"$d.{name} as c{number}" for number, name in enumerate(kept))
        text = _MISSING.format(owner.name, *names, shown)
        for attempt in range(_ATTEMPTS):
            head = self.snapshot(branch).commit_id
            rows = self.query(text, {"n": COSTS.embed_page_rows}, snapshot=head).rows
            if not rows:
                return 0, None
            records = [
                {
                    "type": owner.name,
                    "data": {name: row[f"c{number}"] for number, name in enumerate(kept)},
                }
                for row in rows
            ]
            try:
                with Transaction(self, note, branch, head) as block:  # type: ignore[arg-type]
                    block.load(records, "patch", engine="local")
            except PreconditionFailed:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            outcome = block.outcome
            commit = None if outcome is None else outcome.commit
            if commit is None:  # rows that stay without a vector would be read again for ever
                raise BadRequest(f"the provider gave no vector for {owner.name}.{names[0]}")
            return len(rows), str(commit.id)
        raise AssertionError("every attempt returns or raises")
