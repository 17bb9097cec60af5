"""Request and result of a bulk load.

Invariant: plain values. A request decides everything about a load but its engine.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from omnigraph.catalog.indexes import IndexNote
from omnigraph.errors import BadRequest
from omnigraph.exec.load.column_names import ColumnNames
from omnigraph.exec.load.committed import Mode
from omnigraph.exec.load.files import Options
from omnigraph.exec.load.ndjson import Owner, TypedRows
from omnigraph.exec.progress import OnProgress
from omnigraph.storage.external import ExternalBlobs
from omnigraph.storage.names import MAIN
from omnigraph.storage.protocol.write import Write
from omnigraph.storage.records import NO_NOTE, Commit, CommitNote

MODES: tuple[Mode, ...] = ("append", "merge", "patch", "overwrite")

BY_ID: frozenset[Mode] = frozenset({"merge", "patch"})
"""Modes whose rows meet committed ones by id."""

OnDuplicate = Literal["last", "refuse"]
"""What an id that comes twice in the input means: the last row counts, or the load is refused."""


class FillRows(Protocol):
    """Gives rows the vectors of their texts."""

    def __call__(self, rows: TypedRows) -> TypedRows: ...

    def record(self, write: Write) -> None:
        """Record the models of the vectors with a write."""
        ...


HOW_TO_CREATE = "pass from_branch= (`from` in a request) to create it"
"""What to do about a branch that a load does not find."""

IndexTiming = Literal["now", "later"]
"""Whether the indexes of the schema are built right after the commit of a load, or by upkeep."""


def index_timing(text: str) -> IndexTiming:
    """When indexes are built, or `BadRequest`."""
    match text:
        case "now" | "later":
            return text
        case _:
            raise BadRequest(f"unknown time for indexes '{text}'", "use now or later")


@dataclass(frozen=True, slots=True)
class LoadIndexes:
    """Indexes that a load built or extended after its commit, and the commit of the index writer.
    `missing` says why there are none, and what to do; None when nothing failed."""

    built: tuple[IndexNote, ...] = ()
    commit_id: str | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The parameters of a load; the input and the engine are passed beside it."""

    mode: Mode
    branch: str = MAIN
    owner: Owner | None = None  # of columnar input
    columns: ColumnNames = field(default_factory=dict)
    rejects: Path | None = None
    note: CommitNote = NO_NOTE
    progress: OnProgress | None = None
    permissive: bool = False  # the older, forgiving format, read as a whole
    once: str | None = None  # a name of this load: a branch has one commit of it at most
    on_duplicate: OnDuplicate = "refuse"
    is_ordered: bool = True  # false for a DataFrame, whose rows have no order of their own
    order_by: tuple[str, ...] = ()  # columns that order a DataFrame
    counts_rows: bool = False  # true for tables and records in memory, which have no lines
    external: ExternalBlobs = field(default_factory=lambda: ExternalBlobs(()))
    options: Options = ()  # how to reach the files of the input
    fill: FillRows | None = None  # makes vectors of texts, in a load of one process

    @property
    def is_frame(self) -> bool:
        """Whether the input is a DataFrame, whose rows have ids and no lines."""
        return bool(self.order_by) or not self.is_ordered


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Result of a load. `nodes` and `edges` count input rows by type, in name order; `rounded`
    counts values of the input that were cut to the millisecond, by `Type.property`; `beside_equal`
    edges that a merge of at most 10,000 added although an equal one was there, by type; `indexes`
    are those that were built after the commit.

    >>> done = graph.load([{"name": "Fay"}], "merge", type="Person", engine="local")
    >>> done.inserted, done.updated, done.engine
    (1, 0, 'local')
    """

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: Mode
    nodes: dict[str, int]
    edges: dict[str, int]
    engine: str
    actor_id: str | None
    commit: Commit
    repeated: bool = False  # nothing was done: the commit is that of an earlier load `once`
    rounded: dict[str, int] = field(default_factory=dict)
    beside_equal: dict[str, int] = field(default_factory=dict)
    indexes: LoadIndexes = field(default_factory=LoadIndexes)

    @property
    def total_entities(self) -> int:
        """Nodes and edges together."""
        return sum(self.nodes.values()) + sum(self.edges.values())

    @property
    def inserted(self) -> int:
        """Entities that were not there before."""
        return sum(count.inserted for count in self.commit.counts.values())

    @property
    def updated(self) -> int:
        """Entities that were there before and got the values of the input."""
        return sum(count.updated for count in self.commit.counts.values())

    @property
    def superseded(self) -> int:
        """Rows of the input with a key or an id that a later row of it has as well."""
        if self.repeated or self.mode not in BY_ID:
            return 0
        return max(self.total_entities - self.inserted - self.updated, 0)

    def __repr__(self) -> str:
        loaded = ", ".join(f"{n:,} {name}" for name, n in {**self.nodes, **self.edges}.items())
        again = f", {self.superseded:,} superseded" if self.superseded else ""
        how = "once before" if self.repeated else f"{self.mode}, {self.engine}"
        written = f"{self.inserted:,} inserted, {self.updated:,} updated{again}"
        return f"LoadResult({loaded or 'nothing'}: {written}; {how}, {self.commit!r})"
