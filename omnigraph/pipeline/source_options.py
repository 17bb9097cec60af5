"""Options of the Spark data source, parsed and checked.

Invariant: an option that is unknown, missing or not understood is refused when the DataFrame or the
write is made, not by a task.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from omnigraph.catalog.model import Catalog
from omnigraph.errors import BadRequest
from omnigraph.exec.load.committed import Mode
from omnigraph.exec.load.ndjson import Owner
from omnigraph.exec.load.request import IndexTiming, index_timing
from omnigraph.exec.schemas import Schemas
from omnigraph.pipeline.named_owner import named_edge, named_node
from omnigraph.storage.names import MAIN
from omnigraph.storage.opening import open_store
from omnigraph.storage.protocol.intent import noted
from omnigraph.storage.records import NO_NOTE, CommitNote
from omnigraph.storage.store import Store

_OWN = frozenset(
    {"path", "type", "edge", "branch", "snapshot", "columns", "where", "mode", "actor"}
    | {"message", "metadata", "storage_options", "indexes"}
)
# Options of a stream of changes. Spark asks for the columns before it says whether rows are read
# or streamed, so with a type one of these must be there.
_STREAMS = frozenset(
    {"changes", "startingcommit", "startingbaseline", "maxcommitspertrigger", "skipactors"}
)
# An option that Spark adds where a table is created in its catalog, with others.
_PROVIDER = "provider"
# Options that Spark itself adds to those of a query.
_SPARKS = frozenset({"checkpointlocation", "queryname"})


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read or write."""

    path: str
    type: str | None = None
    edge: str | None = None
    branch: str = MAIN
    snapshot: str | None = None
    columns: tuple[str, ...] | None = None  # of a read
    renamed: Mapping[str, str] = field(default_factory=dict)  # of a write
    where: str | None = None
    mode: Mode | None = None
    note: CommitNote = NO_NOTE
    storage_options: dict[str, str] | None = None
    indexes: IndexTiming | None = None  # of a write; None: after a batch, not within a stream
    starting_commit: str | None = None  # of a stream of changes
    starts_with_baseline: bool = False
    commits_max: int | None = None
    skipped_actors: frozenset[str] = frozenset()

    def open(self, *, read_only: bool) -> tuple[Store, Schemas]:
        """The graph that the options name, and its schemas."""
        store = open_store(self.path, read_only=read_only, storage_options=self.storage_options)
        return store, Schemas(store)

    def owner(self, catalog: Catalog) -> Owner:
        """The type that the options name."""
        if self.type is not None:
            return named_node(catalog, self.type)
        assert self.edge is not None
        return named_edge(catalog, self.edge)


def change_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a stream of changes, or `BadRequest` with what is wrong with them."""
    known = {key.lower(): value for key, value in given.items()}
    if not are_of_changes(known):
        raise BadRequest(
            "a stream of one type needs to know that its rows are changes",
            "add the option changes=true",
        )
    own = {key: known.pop(key) for key in _STREAMS & known.keys()}
    if not _truth("changes", own.get("changes", "true")):
        raise BadRequest("a stream is of changes", "leave out changes=false, or use spark.read")
    has_baseline = _truth("startingBaseline", own.get("startingbaseline", "false"))
    if has_baseline and "startingcommit" in own:
        raise BadRequest(
            "startingCommit and startingBaseline exclude each other",
            "a baseline is of the head of the branch; give one of them",
        )
    limit = own.get("maxcommitspertrigger")
    if limit is not None and not (limit.isascii() and limit.isdigit() and int(limit) > 0):
        raise BadRequest(
            f"maxCommitsPerTrigger cannot be '{limit}'", "give a whole number from 1 on"
        )
    return replace(
        _options(known),
        starting_commit=own.get("startingcommit"),
        starts_with_baseline=has_baseline,
        commits_max=None if limit is None else int(limit),
        skipped_actors=frozenset(_names(own.get("skipactors", ""))),
    )


def are_of_changes(given: Mapping[str, str]) -> bool:
    """Whether options are of a stream of changes: no type is named, or how to stream is."""
    names = {key.lower() for key in given}
    return not names & {"type", "edge"} or bool(names & _STREAMS)


def is_of_table(given: Mapping[str, str]) -> bool:
    """Whether options are of `CREATE TABLE`."""
    return _PROVIDER in given


def table_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options of a table of Spark's catalog that are ours. Spark adds the table's properties to
    them, and makes an address of the path."""
    known = {key.lower(): value for key, value in given.items()}
    own = {key: value for key, value in known.items() if key in _OWN}
    if "storage_options" in own:
        # They would go into the metadata of its columns, and with these into every file of them.
        raise BadRequest(
            "a table keeps no storage_options", "set them in the environment, as AWS_… variables"
        )
    path = own.get("path", "")
    if path.startswith("file:"):
        own["path"] = unquote(urlsplit(path).path)
    return own


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a read or a write of rows, or `BadRequest` with what is wrong with them."""
    if not {"type", "edge"} & {key.lower() for key in given}:
        _options({key: value for key, value in given.items() if key.lower() not in _STREAMS})
        raise BadRequest("say which rows", "give either the option type or the option edge")
    if are_of_changes(given):
        raise BadRequest(
            "changes are a stream", "use spark.readStream, or leave out the options of a stream"
        )
    return _options(given)


def _options(given: Mapping[str, str]) -> SourceOptions:
    known = {key.lower(): value for key, value in given.items()}
    for name in known:
        if name not in _OWN | _SPARKS:
            raise BadRequest(f"unknown option '{name}'", f"use {', '.join(sorted(_OWN))}")
    if not known.get("path"):
        raise BadRequest(
            "no graph is named",
            "give its path to load() or save(); a table made by CREATE TABLE can be read, if it "
            "was made without columns of its own, and not be written to",
        )
    if "type" in known and "edge" in known:
        raise BadRequest("say which rows", "give either the option type or the option edge")
    if "branch" in known and "snapshot" in known:
        raise BadRequest("branch and snapshot exclude each other", "give one of them")
    names = known.get("columns")
    renamed = _object("columns", names) if names and names.lstrip().startswith("{") else {}
    return SourceOptions(
        path=known["path"],
        type=known.get("type"),
        edge=known.get("edge"),
        branch=known.get("branch", MAIN),
        snapshot=known.get("snapshot"),
        columns=_names(names) if names and not renamed else None,
        renamed=renamed,
        where=known.get("where"),
        mode=_mode(known.get("mode")),
        note=noted(
            known.get("actor"),
            known.get("message"),
            _object("metadata", known["metadata"]) if "metadata" in known else None,
        ),
        storage_options=_object("storage_options", known["storage_options"])
        if "storage_options" in known
        else None,
        indexes=index_timing(known["indexes"]) if "indexes" in known else None,
    )


def _truth(option: str, text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise BadRequest(f"{option} cannot be '{text}'", "give true or false")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip().strip("`") for name in text.split(",") if name.strip())


def _mode(text: str | None) -> Mode | None:
    match text:
        case None | "append" | "merge" | "patch" | "overwrite":
            return text
        case _:
            raise BadRequest(f"unknown load mode '{text}'", "use append, merge or overwrite")


def _object(option: str, text: str) -> dict[str, str]:
    try:
        members: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        members = None
    if not isinstance(members, dict) or not all(isinstance(v, str) for v in members.values()):
        raise BadRequest(f"the option {option} is no JSON object of texts")
    return members
