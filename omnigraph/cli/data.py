"""`omnigraph init`, `query` and `mutate`: a graph made, read and written."""

from __future__ import annotations

import json as json_codec
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.arguments import as_given
from omnigraph.cli.address import (
    is_local,
    name_and_uri,
    require_outside_cluster,
)
from omnigraph.cli.column_output import column_bytes, show_bytes
from omnigraph.cli.compat import QueryName
from omnigraph.cli.config import config
from omnigraph.cli.engine import init_graph, open_graph
from omnigraph.cli.failure_document import failure_document
from omnigraph.cli.interrupts import heard_interrupts
from omnigraph.cli.options import (
    MAIN,
    Actor,
    Branch,
    BranchOrMain,
    EmbedTiming,
    Engine,
    EngineOption,
    Json,
    Message,
    Meta,
    Params,
    ParamsFile,
    QueryFile,
    QueryText,
    Quiet,
    Retry,
    Snapshot,
    Store,
    Timing,
    Words,
    exclusive,
    metadata,
)
from omnigraph.cli.render import (
    BINARY,
    Format,
    QueryRows,
    TableStyle,
    format_of_ending,
    lines_of,
)
from omnigraph.cli.servers import connected_graph, is_served
from omnigraph.cli.shapes import commit_document, rounded_document, rounded_lines
from omnigraph.cli.terminal import plain_errors, read_text, show, show_json, warn
from omnigraph.errors import BadRequest, NotServed, PreconditionFailed

if TYPE_CHECKING:
    from omnigraph.exec.mutate.run import MutationResult

_CONFLICT_STATUS = 4


def init(
    uri: Annotated[str, typer.Argument(metavar="URI", help="Where the graph shall live.")],
    schema: Annotated[str, typer.Option("--schema", metavar="FILE", help="Its schema (.pg).")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace what a failed init left; never a graph.")
    ] = False,
    json: Json = False,
) -> None:
    """Create a graph."""
    with plain_errors():
        if is_served(uri):
            raise NotServed("init", uri, "make the graph where its files shall be, then serve it")
        text = read_text(schema)
        require_outside_cluster(uri, "init")
        _require_room(uri, force=force)
        init_graph(uri, text).close()
        if json:
            show_json({"uri": uri})
        else:
            show(f"initialized {uri}")


def query(
    words: Words = None,
    query: QueryFile = None,
    source: QueryText = None,
    name: QueryName = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: BranchOrMain = None,
    snapshot: Snapshot = None,
    format: Annotated[
        Format | None, typer.Option("--format", help="Else by the ending of --out, else a table.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="A file for the rows, instead of the output."),
    ] = None,
    engine: EngineOption = Engine.AUTO,
    json: Json = False,
    store: Store = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Do not say what was written to --out.")
    ] = False,
) -> None:
    """Run a read query and print its rows."""
    with plain_errors(), heard_interrupts():
        exclusive(branch=branch, snapshot=snapshot)
        exclusive(json=json, format=None if format is Format.JSON else format)
        format = Format.JSON if json else format or format_of_ending(out)
        query_name, uri = name_and_uri(list(words or ()), name, store, source)
        given = read_params(params, params_file)
        on = None if snapshot is not None else branch or MAIN
        if _is_stored(query_name, query, source, uri):
            from omnigraph.cli.server_commands import invoked

            answer = invoked(uri, query_name or "", given, on, snapshot)
            _deliver(answer, format, out, quiet=quiet)
            return
        text = query_source(query, source, or_stored=True)
        with open_graph(uri, read_only=True) as graph:
            result = graph.query(
                text,
                given,
                name=query_name,
                branch=on,
                snapshot=snapshot,
                engine=as_given(str(engine)),
            )
        if format in BINARY:
            show_bytes(column_bytes(result.to_arrow(), format), out)
            _say_written(len(result), out, quiet=quiet)
            return
        from omnigraph.exec.read.result import json_rows

        answer = QueryRows(
            result.query_name,
            on,
            snapshot,
            result.columns,
            json_rows(result),
            result.tuples(),
            result.commit_id,
        )
        _deliver(answer, format, out, quiet=quiet)


def mutate(
    words: Words = None,
    query: QueryFile = None,
    source: QueryText = None,
    name: QueryName = None,
    params: Params = None,
    params_file: ParamsFile = None,
    branch: Branch = MAIN,
    if_commit: Annotated[
        str | None,
        typer.Option("--if-commit", metavar="COMMIT", help="Only if the branch is there."),
    ] = None,
    retry: Retry = None,
    actor: Actor = None,
    message: Message = None,
    meta: Meta = None,
    embed: EmbedTiming = Timing.NOW,
    json: Json = False,
    store: Store = None,
    quiet: Quiet = False,
) -> None:
    """Run a mutation. Exits with 4 if --if-commit names another commit than the branch's head."""
    with plain_errors():
        query_name, uri = name_and_uri(list(words or ()), name, store, source)
        given = read_params(params, params_file)
        is_stored = _is_stored(query_name, query, source, uri)
        text = "" if is_stored else query_source(query, source, or_stored=True)
        if not is_stored:
            _require_query(text, query_name)
        try:
            if is_stored:
                if retry is not None:
                    raise typer.BadParameter("--retry is not for a stored query")
                with connected_graph(uri, read_only=False) as served:
                    done = served.stored_queries.mutate(
                        query_name or "",
                        given,
                        branch=branch,
                        actor=actor,
                        if_commit=if_commit,
                        message=message,
                        metadata=metadata(meta),
                    )
                _show_mutation(done, as_json=json)
                return
            with open_graph(uri) as graph:
                done = graph.mutate(
                    text,
                    given,
                    name=query_name,
                    branch=branch,
                    embed=as_given(str(embed)),
                    actor=actor,
                    message=message,
                    metadata=metadata(meta),
                    if_commit=if_commit,
                    retries=_retries(retry, if_commit),
                )
        except PreconditionFailed as cause:
            _tell_conflict(cause, as_json=json)
        _show_mutation(done, as_json=json)


def _is_stored(name: str | None, file: str | None, source: str | None, uri: str) -> bool:
    """Whether a name alone is given: that of a stored query, which only a server has."""
    return name is not None and file is None and source is None and is_served(uri)


def _retries(given: int | None, if_commit: str | None) -> int | None:
    """As given, else of the configuration, which holds for writes that may be prepared again."""
    return given if given is not None or if_commit is not None else config().retries


def _require_query(text: str, name: str | None) -> None:
    """Refuse a text that is no mutation by its syntax (D₂ too) before a graph is opened to write,
    which would settle what dead writers left."""
    from omnigraph.language.query.parser import parse_queries
    from omnigraph.plan.compile import select_query

    select_query(parse_queries(text), name)


def _require_room(uri: str, *, force: bool) -> None:
    """Refuse a folder that is not empty, unless `force`; the engine refuses a graph either way."""
    from omnigraph.storage.manifest.state import LOCATION

    if force or not is_local(uri):
        return
    folder = Path(uri.removeprefix("file://"))
    if folder.is_dir() and any(folder.iterdir()) and not (folder / LOCATION).exists():
        raise BadRequest(
            f"'{uri}' is not empty and holds no graph",
            "choose another place, or pass --force to use what a failed init left",
        )


def _deliver(answer: QueryRows, format: Format | None, out: str | None, *, quiet: bool) -> None:
    """Rows to standard output, or to a file that appears when it is whole."""
    if out is None:
        show_answer(answer, format)
        return
    shape = _text_format(answer, format)
    text = "".join(f"{line}\n" for line in lines_of(answer, shape))
    show_bytes(iter([text.encode("utf-8", "backslashreplace")]), out)
    _say_written(len(answer.cells), out, quiet=quiet)


def _say_written(rows: int, out: str | None, *, quiet: bool) -> None:
    """Say on standard error what a file was written with."""
    if out is not None and not quiet:
        typer.echo(f"wrote {rows} rows to {out}", err=True)


def _text_format(answer: QueryRows, format: Format | None) -> Format:
    """The format to print in; bytes are for `query` with a text of its own. Warns if it has no
    place for all columns."""
    if format in BINARY:
        raise BadRequest(f"these rows are shown as text, not as {format}", "choose another format")
    shape = format or Format(config().output)
    if shape in (Format.JSON, Format.JSONL):
        from omnigraph.exec.read.result import repeated

        if (name := repeated(answer.columns)) is not None:
            warn(f"several columns are called '{name}'; a JSON row keeps the last: give aliases")
    return shape


def show_answer(answer: QueryRows, format: Format | None) -> None:
    """Rows, in a format or as the user's settings say; a table fits the terminal."""
    settings = config()
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    look = TableStyle(settings.column_width, settings.layout == "wrap", columns)
    for line in lines_of(answer, _text_format(answer, format), look):
        show(line)


def _tell_conflict(cause: PreconditionFailed, *, as_json: bool) -> None:
    if as_json:
        show_json(failure_document(str(cause), cause))
    typer.echo(f"error: {cause}", err=True)
    raise typer.Exit(_CONFLICT_STATUS)


def _show_mutation(done: MutationResult, *, as_json: bool) -> None:
    if as_json:
        show_json(
            {
                "branch": done.branch,
                "query_name": done.query_name,
                "affected_nodes": done.affected_nodes,
                "affected_edges": done.affected_edges,
                "actor_id": done.actor_id,
                **rounded_document(done.rounded),
                "commit": None if done.commit is None else commit_document(done.commit),
            }
        )
        return
    counts = f"{done.affected_nodes} nodes, {done.affected_edges} edges"
    show(f"changed {done.branch} via {done.query_name}: {counts}")
    for line in rounded_lines(done.rounded):
        show(line)
    if done.actor_id is not None:
        show(f"actor_id: {done.actor_id}")


def query_source(file: str | None, source: str | None, *, or_stored: bool = False) -> str:
    """The text of `--query FILE` or of `-e GQ`."""
    exclusive(query=file, **{"query-string": source})
    if file is None and source is None:
        stored = "; a name alone is a stored query of a server" if or_stored else ""
        raise typer.BadParameter(f"pass the query as --query FILE or as -e GQ{stored}")
    return read_text(file) if file is not None else source or ""


def read_params(text: str | None, file: str | None) -> Any:
    """The parameters of a query, from an option or a file."""
    exclusive(**{"params": text, "params-file": file})
    if text is None and file is None:
        return None
    try:
        return json_codec.loads(read_text(file) if file is not None else text or "")
    except (ValueError, RecursionError) as cause:
        why = cause if isinstance(cause, ValueError) else "it is nested too deeply"
        if file is None:
            example = """write an object, as in --params '{"name": "Ada"}'"""
            raise typer.BadParameter(f"--params is not JSON: {why}; {example}") from None
        raise BadRequest(f"'{file}' is not JSON: {why}") from None
