"""JSON answers of the HTTP API as the values of the library: commits, snapshots, changes, outcomes.

Invariant: pure. One function a value, the inverse of what the server writes; a member that an older
server leaves out has the value that says "nothing known".
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from omnigraph.catalog.indexes import IndexKind, IndexNote
from omnigraph.errors import NotServed
from omnigraph.exec.changes.diff import DELETE, INSERT, UPDATE, Change, ChangedType
from omnigraph.exec.changes.feed import FeedBlock, FeedPage
from omnigraph.exec.changes.images import NO_MOMENTS, Moments, Values
from omnigraph.exec.load.request import LoadIndexes, LoadResult
from omnigraph.exec.merge.kept_edges import KeptEdge
from omnigraph.exec.merge.planned_changes import ChangeCounts, PlannedChange, PlannedChanges
from omnigraph.exec.merge.run import MergeOutcome
from omnigraph.exec.merge.undo import UndoOutcome
from omnigraph.exec.mutate.run import MutationResult
from omnigraph.remote.wire_faults import conflict
from omnigraph.storage.manifest.tags import Tag
from omnigraph.storage.names import MAIN
from omnigraph.storage.records import (
    Commit,
    CommitId,
    Origin,
    RowCounts,
    Snapshot,
    TablePin,
    TopologyState,
)
from omnigraph.types import Kind, Scalar, SchemaStep, TableKey, parse_table_key, table_key

Document = Mapping[str, Any]


def commit_of(document: Document) -> Commit:
    """A graph commit."""
    return Commit(
        id=CommitId(document["graph_commit_id"]),
        parent=document["parent_commit_id"],
        merged_parent=document["merged_parent_commit_id"],
        created_at=document["created_at"],
        branch=document["graph_branch"],
        manifest_version=document["graph_manifest_version"],
        actor=document["actor_id"],
        message=document.get("message"),
        metadata=document.get("metadata", {}),
        merged_from=_origin(document),
        counts=_counts(document),
        schema_steps=schema_steps_of(document),
    )


def schema_steps_of(document: Document) -> tuple[SchemaStep, ...]:
    """Return the schema steps of a diff, a preview or a commit."""
    return tuple(
        SchemaStep(each["text"], {name: fact for name, fact in each.items() if name != "text"})
        for each in document.get("schema_steps", ())
    )


def _origin(document: Document) -> Origin | None:
    return (document["merged_branch"], "") if "merged_branch" in document else None


def _counts(document: Document) -> dict[TableKey, RowCounts]:
    return {TableKey(key): RowCounts(**rows) for key, rows in document.get("counts", {}).items()}


def commit_or_none(document: Document | None) -> Commit | None:
    """A graph commit, if there is one."""
    return None if document is None else commit_of(document)


def cause_of(document: Document) -> Commit:
    """The commit behind changes."""
    branch = document["authored_branch"]
    return Commit(
        id=CommitId(document["graph_commit_id"]),
        parent=document.get("parent_commit_id"),
        merged_parent=document.get("merged_parent_commit_id"),
        created_at=document["authored_at"],
        branch=None if branch == MAIN else branch,
        manifest_version=document.get("graph_manifest_version", 0),
        actor=document.get("actor_id"),
        message=document.get("message"),
        metadata=document.get("metadata", {}),
        merged_from=_origin(document),
        counts=_counts(document),
        schema_steps=schema_steps_of(document),
    )


def snapshot_of(document: Document) -> Snapshot:
    """Every table of a branch with its version and count."""
    tables, topology = {}, {}
    for each in document["datasets"]:
        key = table_key(Kind(each["entity_kind"]), each["type_name"])
        tables[key] = TablePin(
            table_key=key,
            location=each["dataset_path"],
            version=each["published_dataset_version"],
            branch=each["native_dataset_branch"],
            row_count=each["entity_count"],
        )
        if "topology" in each:
            topology[key] = _topology(each["topology"])
    return Snapshot(
        branch=document["graph_branch"] or MAIN,
        commit_id=CommitId(document.get("graph_commit_id", "")),
        manifest_version=document["graph_manifest_version"],
        internal_schema_version=document["internal_schema_version"],
        tables=tables,
        topology=topology,
    )


def _topology(document: Document) -> TopologyState:
    branch = document["dataset_branch"]
    return TopologyState(
        document["dataset_version"],
        document["bytes"],
        document["rows_behind"],
        None if branch == MAIN else branch,
    )


def tag_of(document: Document) -> Tag:
    """The name of a commit."""
    return Tag(
        document["name"],
        document["graph_branch"] or MAIN,
        document["graph_manifest_version"],
        document["graph_commit_id"],
    )


# ---- changes


def moments_named(document: Document, type_id: str) -> Moments:
    """The properties of a type that an answer says are dates; none of a server that does not."""
    named = document.get("moments", {}).get(type_id, {})
    return {name: Scalar(scalar) for name, scalar in named.items()} or NO_MOMENTS


def changes_of(document: Document) -> tuple[Change, ...]:
    """The changes of a page or of a commit."""
    return tuple(change_of(each, document) for each in document["changes"])


def change_of(document: Document, beside: Document) -> Change:
    """One entity that differs; `beside` has the members beside it."""
    before, after = document.get("before"), document.get("after")
    shown = after if after is not None else before
    names = tuple(shown["properties"]) if shown is not None else ()
    kind = document["type"]
    named = moments_named(beside, kind["id"])
    moments = {name: named[name] for name in names if name in named}
    of = ChangedType(document["kind"], kind["name"], kind["id"], names, moments or NO_MOMENTS)
    was, now = _values(names, before), _values(names, after)
    return Change(of, document["id"], document["op"], was, now)


def _values(names: tuple[str, ...], image: Document | None) -> Values | None:
    if image is None:
        return None
    ends = image.get("endpoints")
    properties = image["properties"]
    values = tuple(properties.get(name) for name in names)
    return values if ends is None else (*values, ends["from"], ends["to"])


def block_of(document: Document) -> FeedBlock:
    """One commit of the feed and its changes."""
    return FeedBlock(cause_of(document["cause"]), changes_of(document))


def page_of(document: Document) -> FeedPage:
    """A page of the feed."""
    return FeedPage(
        tuple(map(block_of, document["blocks"])),
        document.get("next_page_token"),
        document.get("cursor"),
        document.get("caught_up"),
    )


# ---- results of writes


def mutation_of(document: Document, *, repeated: bool) -> MutationResult:
    """The result of a mutation."""
    return MutationResult(
        branch=document["branch"],
        query_name=document["query_name"],
        affected_nodes=document["affected_nodes"],
        affected_edges=document["affected_edges"],
        actor_id=document["actor_id"],
        commit=commit_or_none(document["commit"]),
        rounded=document.get("rounded", {}),
        repeated=repeated,
    )


def load_of(document: Document, *, repeated: bool) -> LoadResult:
    """The result of a load."""

    def counted(listed: Iterable[Document]) -> dict[str, int]:
        return {} if repeated else {each["name"]: each["entities_loaded"] for each in listed}

    return LoadResult(
        branch=document["branch"],
        base_branch=document["base_branch"],
        branch_created=document["branch_created"],
        mode=document["mode"],
        nodes=counted(document["nodes"]),
        edges=counted(document["edges"]),
        engine="none" if repeated else "server",
        actor_id=document["actor_id"],
        commit=commit_of(document["commit"]),
        repeated=repeated,
        rounded=document.get("rounded", {}),
        beside_equal=document.get("beside_equal", {}),
        indexes=_indexes_of(document.get("indexes")),
    )


def _indexes_of(document: Document | None) -> LoadIndexes:
    """The indexes that a load built."""
    if document is None:
        return LoadIndexes()
    notes = (
        IndexNote(TableKey(each["table"]), each["property"], IndexKind(each["kind"]))
        for each in document["built"]
    )
    return LoadIndexes(tuple(notes), document["graph_commit_id"], document.get("missing"))


class ServedPlannedChanges(PlannedChanges):
    """The entities that a commit changes, as a server counted or listed them."""

    def __init__(self, document: Document, url: str) -> None:
        super().__init__()
        self._counts = _planned(document)
        self._listed = document.get("changes")
        self._url = url

    def __reduce__(self) -> tuple[Any, ...]:
        document: dict[str, Any] = {"statistics": self.statistics()}
        if self._listed is not None:
            document["changes"] = self._listed
        return ServedPlannedChanges, (document, self._url)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ServedPlannedChanges) and self._listed is None:
            return self._counts == other._counts and other._listed is None
        return super().__eq__(other)

    __hash__ = PlannedChanges.__hash__

    def __iter__(self) -> Iterator[PlannedChange]:
        if self._listed is None and self._counts:
            raise NotServed(
                "the list of changes of a write that was done",
                self._url,
                "preview it with dry_run=True, or ask graph.commits.changes",
            )
        for each in self._listed or ():
            yield PlannedChange(each["kind"], each["type_name"], each["id"], each["op"])

    def counts(self) -> ChangeCounts:
        """How many changes there are by kind, type and operation."""
        return dict(self._counts)


def _planned(document: Document) -> ChangeCounts:
    """The counts of a preview, or those that the commit keeps."""
    if "statistics" in document:
        return {
            (each["kind"], each["type_name"], each["op"]): each["count"]
            for each in document["statistics"]
        }
    counts: ChangeCounts = {}
    for key, rows in _counts(document.get("commit") or {}).items():
        kind, name = parse_table_key(key)
        for op, count in ((INSERT, rows.inserted), (UPDATE, rows.updated), (DELETE, rows.deleted)):
            if count:
                counts[str(kind), name, op] = count
    return counts


def _kept(document: Document) -> KeptEdge:
    node = document["with"]
    return KeptEdge(
        document["type_name"],
        document["entity_id"],
        document["from"],
        document["to"],
        node["type_name"],
        node["entity_id"],
    )


def merge_of(document: Document, url: str, *, repeated: bool = False) -> MergeOutcome:
    """The outcome of a merge, or its preview."""
    return MergeOutcome(
        kind=document["outcome"],
        source=document["source"],
        target=document["target"],
        commit=commit_or_none(document.get("commit")),
        actor=document["actor_id"],
        branch_deleted=document.get("branch_deleted"),
        branch_delete_error=document.get("branch_delete_error"),
        changes=ServedPlannedChanges(document, url),
        kept_edges=tuple(map(_kept, document.get("kept_edges", ()))),
        conflicts=tuple(map(conflict, document.get("merge_conflicts", ()))),
        dry_run=document.get("dry_run", False),
        repeated=repeated,
        schema_steps=schema_steps_of(document),
    )


def undo_of(document: Document, url: str) -> UndoOutcome:
    """The outcome of a revert or a restore, or its preview."""
    return UndoOutcome(
        kind=document["outcome"],
        branch=document["branch"],
        undone=tuple(document["undone"]),
        commit=commit_or_none(document["commit"]),
        actor=document["actor_id"],
        message=document["message"],
        changes=ServedPlannedChanges(document, url),
        kept_edges=tuple(map(_kept, document.get("kept_edges", ()))),
        conflicts=tuple(map(conflict, document.get("merge_conflicts", ()))),
        dry_run=document["dry_run"],
        reason=document.get("reason", ""),
    )
