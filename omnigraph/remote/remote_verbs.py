"""Verbs of a served graph that move data or undo: load, export, blobs, revert and restore.

Invariant: these methods make one request and one value of its answer. An export is written as it
arrives; a file appears when it is whole.
"""

import io
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

import orjson
import pyarrow as pa

from omnigraph.arguments import as_given, checked
from omnigraph.catalog.ids import NamedKey, key_text
from omnigraph.catalog.model import Catalog, Type
from omnigraph.errors import AlreadyExists, BadRequest, ConstraintViolated, NotFound, NotServed
from omnigraph.exec.changes.blobs import BlobCell
from omnigraph.exec.changes.export import (
    Exporting,
    ExportResult,
    choose_owners,
    chosen_format,
    exported_to,
    require_export,
)
from omnigraph.exec.load.inputs import open_whole
from omnigraph.exec.load.ndjson import TYPE_OF_ROWS
from omnigraph.exec.load.pieces import Piece
from omnigraph.exec.load.python_records import owner_of
from omnigraph.exec.load.request import HOW_TO_CREATE, MODES, LoadRequest, LoadResult
from omnigraph.exec.load.type_files import type_file
from omnigraph.exec.merge.resolve import ENTITY, Resolve
from omnigraph.exec.merge.undo import UndoOutcome
from omnigraph.exec.progress import Meter, Progress
from omnigraph.exec.rules.faults import Faults
from omnigraph.graph import Graph
from omnigraph.output_file import folder_path, local_path, whole_file, writing
from omnigraph.pipeline.named_owner import named_edge, named_node
from omnigraph.policy import TargetCheck
from omnigraph.remote.answers import settled
from omnigraph.remote.from_wire import load_of, undo_of
from omnigraph.remote.http_connection import JSON, REPLAY, Content, Params, encoded, given
from omnigraph.remote.iso_lines import iso_lines
from omnigraph.remote.line_counts import LineCounts, kind_and_type
from omnigraph.remote.load_body import load_body, owner_faults
from omnigraph.remote.remote_session import RemoteSession, key_of
from omnigraph.remote.served_changes import blob_of
from omnigraph.remote.served_rows import ARROW, arrow_batches
from omnigraph.storage.names import MAIN, require_text
from omnigraph.storage.protocol.intent import noted
from omnigraph.types import Kind


class RemoteVerbs(Graph):
    """The verbs of a served graph that load, export and undo."""

    session: RemoteSession

    @property
    def embedder(self) -> None:
        """None: texts are embedded by the server."""
        return None

    def check_merges(
        self, checks: Iterable[TargetCheck] = (), queries: Mapping[str, str] | None = None
    ) -> NoReturn:
        """Refused: the server has its own checks."""
        raise NotServed("check_merges", self.uri, "declare the checks where it is served")

    @checked
    def load(
        self,
        source: Any,
        mode: str,
        *,
        type: str | None = None,
        edge: str | None = None,
        branch: str = MAIN,
        from_branch: str | None = None,
        engine: str = "auto",
        spark: Any = None,
        columns: Mapping[str, str | None] | None = None,
        rejects: str | os.PathLike[str] | None = None,
        progress: Callable[[Progress], None] | None = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        permissive: bool = False,
        once: str | None = None,
        on_duplicate: str | None = None,
        order_by: str | Sequence[str] | None = None,
        indexes: str = "now",
        embed: str = "now",
    ) -> LoadResult:
        """Load bulk data as one commit. `mode` is append, merge, patch or overwrite."""
        session = self.session
        session.require_writable()
        session.require_own_actor(actor)
        session.require_branch(branch, from_branch)
        session.require_local_engine(engine, spark)
        if mode not in MODES:
            raise BadRequest(f"unknown load mode '{mode}'", f"use {', '.join(MODES)}")
        if type is not None and edge is not None:
            raise BadRequest("type= and edge= exclude each other", "load one type at a time")
        if rejects is not None or order_by is not None:
            raise NotServed("load(rejects=, order_by=)", self.uri)
        if once is not None:
            require_text("the name of a load `once`", once)
        noted(None, message, metadata)
        meter = Meter(progress)
        meter.add(0, "load")
        if permissive:
            texts = {"branch": branch, "from": from_branch, "mode": mode, "message": message}
            return self._ingested(source, {**texts, "metadata": metadata}, once)
        if columns and type is None and edge is None:
            raise BadRequest("columns= needs type= or edge=", TYPE_OF_ROWS)
        if any("=" in name for name in metadata or ()):
            raise NotServed("load(metadata=) with '=' in a name", self.uri, "choose another name")

        @cache
        def catalog() -> Catalog:
            try:
                return self.schema.on(branch).catalog
            except NotFound as missing:
                if from_branch is None:
                    hint = missing.hint or HOW_TO_CREATE
                    raise NotFound(missing.kind, missing.name, hint) from None
            return self.schema.on(from_branch).catalog

        is_typed = type is not None or edge is not None

        def owner(record: Mapping[str, Any]) -> Type | None:
            named = {"type": type} if type is not None else {"edge": edge}
            return owner_of(catalog(), named if is_typed else record)

        def faults_of(pieces: Iterator[Piece]) -> Faults:
            known = catalog()
            own: Type | None = None
            if is_typed:
                own = named_edge(known, edge or "") if type is None else named_node(known, type)
            request = LoadRequest(as_given(mode), owner=own, columns=columns or {})
            return owner_faults(known, request, pieces)

        body = load_body(
            source,
            columns or {},
            self.uri,
            None if is_typed else catalog,
            owner,
            faults_of=faults_of,
        )
        meta = [f"{name}={text}" for name, text in (metadata or {}).items()]
        params = given(
            branch=branch,
            from_=from_branch,
            mode=mode,
            type=type,
            edge=edge,
            message=message,
            meta=meta,
            on_duplicate=on_duplicate,
            indexes=None if indexes == "now" else indexes,
            embed=None if embed == "now" else embed,
        )
        with body.content:
            media = {"Content-Type": body.media}
            try:
                done = self._loaded(body.path, body.content, media, params, once)
            except ConstraintViolated as refused:
                raise body.at_source(refused) from None
        meter.report("done", done.total_entities)
        return done

    def _ingested(self, source: Any, options: dict[str, Any], once: str | None) -> LoadResult:
        (piece,) = open_whole(source).pieces()
        data = piece.data.data.decode("utf-8", "replace")  # type: ignore[union-attr]
        return self._loaded("/ingest", encoded({**options, "data": data}), JSON, (), once)

    def _loaded(
        self,
        path: str,
        content: Content,
        headers: Mapping[str, str],
        params: Params,
        once: str | None,
    ) -> LoadResult:
        key = None if once is None else key_of(once)
        answer = self.session.http.write_once(path, content, headers, params, key=key)
        return load_of(orjson.loads(answer.content), repeated=REPLAY in answer.headers)

    # ---- out

    @checked
    def export(
        self,
        target: str | os.PathLike[str] | IO[bytes],
        format: str | None = None,
        *,
        types: Iterable[str] | None = None,
        branch: str = MAIN,
        snapshot: str | None = None,
        engine: str = "local",
        spark: Any = None,
        progress: Callable[[Progress], None] | None = None,
        dates: str = "numbers",
    ) -> ExportResult:
        """Write one snapshot as NDJSON that loads again, as Parquet or as CSV; how many rows of
        what. The files are those that the library writes."""
        self.session.require_local_engine(engine, spark)
        format = chosen_format(target, format)
        require_export(format, dates)
        named = None if types is None else list(types)
        meter = Meter(progress)
        if format != "jsonl":
            self.session.require_branch(branch, snapshot)
            return exported_to(self._columns_export(named, branch, snapshot, meter), target, format)
        if isinstance(target, io.TextIOBase):
            raise BadRequest("an export is bytes, not text", "open the file with mode 'wb'")
        with self._exported(named, branch, snapshot) as response:
            commit = response.headers.get("omnigraph-snapshot-id")
            catalog = self.schema.catalog if commit is None else self.schema.at(commit).catalog
            owners = choose_owners(catalog, named)
            counts = LineCounts(
                (owner.name for owner in owners if owner.kind is Kind.NODE),
                (owner.name for owner in owners if owner.kind is Kind.EDGE),
            )
            chunks = _counted(response.iter_bytes(), counts, meter)
            if dates == "iso":
                chunks = iso_lines(chunks, catalog)
            if not isinstance(target, str | os.PathLike):
                for chunk in chunks:
                    target.write(chunk)
            elif os.fspath(target).endswith("/") or os.path.isdir(local_path(target, "the export")):
                files = [type_file(owner, "jsonl") for owner in owners]
                _to_folder(folder_path(target, "the export"), files, chunks)
            else:
                with whole_file(target, "the export") as stream:
                    for chunk in chunks:
                        stream.write(chunk)
        meter.add(0, "done")
        return counts.result(commit)

    def _columns_export(
        self, types: list[str] | None, branch: str, snapshot: str | None, meter: Meter
    ) -> Exporting:
        """An export whose rows come from the server, all of one commit."""
        commit = self.snapshot(branch, commit=snapshot).commit_id
        owners = choose_owners(self.schema.at(commit).catalog, types)

        def batches_of(owner: Type) -> Iterator[pa.RecordBatch]:
            asked = {"snapshot": commit, "type_names": [owner.name]}
            with self.session.http.stream("/export", asked, accept=ARROW) as response:
                yield from arrow_batches(response.iter_bytes())

        return Exporting(batches_of, commit, owners, meter)

    @checked
    def export_lines(
        self,
        *,
        types: Iterable[str] | None = None,
        branch: str = MAIN,
        snapshot: str | None = None,
    ) -> Iterator[bytes]:
        """One snapshot as NDJSON that loads again, a chunk of lines at a time as it is read."""
        with ExitStack() as stack:
            named = None if types is None else list(types)
            response = stack.enter_context(self._exported(named, branch, snapshot))
            return _whole_lines(response.iter_bytes(), stack.pop_all())

    def _exported(self, types: list[str] | None, branch: str, snapshot: str | None) -> Any:
        self.session.require_branch(branch, snapshot)
        pinned = {"branch": branch} if snapshot is None else {"snapshot": snapshot}
        return self.session.http.stream("/export", {**pinned, "type_names": types})

    @checked
    def blob(
        self,
        kind: str,
        type: str,
        id: NamedKey,
        property: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> BlobCell:
        """One blob: what is known about it, and its bytes when they are asked for."""
        self.session.require_branch(branch, snapshot)
        selector = given(entity=kind, type=type, id=key_text(id), property=property)
        return blob_of(self.session.http, [*selector, *given(branch=branch, snapshot=snapshot)])

    # ---- undo

    @checked
    def revert(
        self,
        commit: str,
        to: str | None = None,
        *,
        onto: str = MAIN,
        by: str = ENTITY,
        resolve: Resolve = None,
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> UndoOutcome:
        """Undo a commit, or with `to` the commits after it up to that one, as one new commit."""
        self._require_undo(actor, onto, dry_run=dry_run)
        body = {
            "commit": commit,
            "to": to,
            "branch": onto,
            "by": by,
            "dry_run": dry_run,
            "message": message,
            "metadata": metadata,
        }

        def send(resolutions: list[dict[str, Any]]) -> UndoOutcome:
            asked = {**body, "resolutions": resolutions}
            return undo_of(self.session.http.write("POST", "/revert", asked), self.uri)

        return settled(send, resolve)

    @checked
    def restore(
        self,
        point: str,
        types: Collection[str] | None = None,
        *,
        branch: str = MAIN,
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> UndoOutcome:
        """Make a branch's content that of a point, or that of some types, as one new commit."""
        self._require_undo(actor, branch, dry_run=dry_run)
        body = {
            "point": point,
            "types": None if types is None else list(types),
            "branch": branch,
            "dry_run": dry_run,
            "message": message,
            "metadata": metadata,
        }
        return undo_of(self.session.http.write("POST", "/restore", body), self.uri)

    def _require_undo(self, actor: str | None, branch: str, *, dry_run: bool) -> None:
        self.session.require_branch(branch)
        if not dry_run:
            self.session.require_writable()
        self.session.require_own_actor(actor)


def _whole_lines(chunks: Iterator[bytes], answer: ExitStack) -> Iterator[bytes]:
    """The lines of an answer, which is closed behind them."""
    rest = b""
    with answer:
        for chunk in chunks:
            lines = rest + chunk
            end = lines.rfind(b"\n") + 1
            rest = lines[end:]
            if end:
                yield lines[:end]


def _counted(chunks: Iterator[bytes], counts: LineCounts, meter: Meter) -> Iterator[bytes]:
    for chunk in chunks:
        meter.add(counts.see(chunk))
        yield chunk


def _to_folder(folder: Path, files: list[str], chunks: Iterator[bytes]) -> None:
    """A file of NDJSON a type."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise AlreadyExists("export", str(folder), "give an empty folder")
    with ExitStack() as stack:
        streams = {name: stack.enter_context((folder / name).open("wb")) for name in files}
        rest = b""
        for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                named = kind_and_type(line)
                if named is not None:
                    streams[f"{named[0]}-{named[1]}.jsonl"].write(line + b"\n")
