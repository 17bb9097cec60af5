"""`omnigraph jobs …`: long work of a server in the background: start, list, show, wait, cancel."""

from __future__ import annotations

import json as json_codec
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.address import graph_uri
from omnigraph.cli.engine import open_graph
from omnigraph.cli.options import GraphPath, Json, Store
from omnigraph.cli.servers import is_served
from omnigraph.cli.terminal import plain_errors, show, show_json
from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from omnigraph.remote.served_jobs import RemoteJobs, ServedJob

app = typer.Typer(
    name="jobs",
    help="Let a server load, export, merge, optimize, clean up or embed in the background.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The id of the job.")]


@app.command()
def start(
    kind: Annotated[str, typer.Argument(help="load, export, merge, optimize, cleanup or embed.")],
    path: GraphPath = None,
    members: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A member of its request; JSON or text."),
    ] = None,
    once: Annotated[
        str | None, typer.Option(metavar="NAME", help="Start it only if none has this name.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended.")] = False,
    json: Json = False,
    store: Store = None,
) -> None:
    """Start a job; with --wait show how it ended.

    The members are those of the server's route, such as source=/srv/in.jsonl and mode=merge of a
    load, keep=10 and confirm=true of a cleanup.
    """
    given = _members(members or [])
    with plain_errors(), _jobs(graph_uri(path, store), read_only=False) as graph:
        job = _of(graph).start(kind, given, once=once)
        _show(_of(graph).wait(job.id) if wait else job, as_json=json)


@app.command(name="list")
def list_(path: GraphPath = None, json: Json = False, store: Store = None) -> None:
    """List the newest jobs, newest first."""
    with plain_errors(), _jobs(graph_uri(path, store)) as graph:
        listed = _of(graph).list()
        if json:
            show_json({"jobs": [_document(job) for job in listed]})
            return
        for job in listed:
            show(_line(job))
        if not listed:
            show("(no jobs)")


@app.command(name="show")
def show_(job: JobId, path: GraphPath = None, json: Json = False, store: Store = None) -> None:
    """Show a job: its stage, then its result or error."""
    with plain_errors(), _jobs(graph_uri(path, store)) as graph:
        _show(_of(graph).show(job), as_json=json)


@app.command()
def wait(job: JobId, path: GraphPath = None, json: Json = False, store: Store = None) -> None:
    """Wait until a job has ended, and show it."""
    with plain_errors(), _jobs(graph_uri(path, store)) as graph:
        _show(_of(graph).wait(job), as_json=json)


@app.command()
def cancel(job: JobId, path: GraphPath = None, json: Json = False, store: Store = None) -> None:
    """Ask for the end of a job, which ends where it next reports."""
    with plain_errors(), _jobs(graph_uri(path, store), read_only=False) as graph:
        _show(_of(graph).cancel(job), as_json=json, is_ended=False)


def _jobs(where: str, *, read_only: bool = True) -> AbstractContextManager[Any]:
    if not is_served(where):
        raise BadRequest(
            f"jobs are of a server, and {where} is opened from its files",
            "name the graph by --server, or run the command itself: load, export, optimize",
        )
    return open_graph(where, read_only=read_only)


def _of(graph: Any) -> RemoteJobs:
    jobs: RemoteJobs = graph.jobs
    return jobs


def _members(words: list[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name or name in given:
            raise typer.BadParameter(f"--set '{word}' is not NAME=VALUE, each name once")
        try:
            given[name] = json_codec.loads(text)
        except ValueError:
            given[name] = text
    return given


def _show(job: ServedJob, *, as_json: bool, is_ended: bool = True) -> None:
    if as_json:
        show_json(_document(job))
    else:
        for line in _lines(job):
            show(line)
    if is_ended and job.state in ("failed", "interrupted"):
        raise typer.Exit(1)


def _document(job: ServedJob) -> dict[str, Any]:
    return {name: value for name, value in asdict(job).items() if value is not None}


def _line(job: ServedJob) -> str:
    made = datetime.fromtimestamp(job.created_at / 1e6, UTC)
    return f"{job.id}  {made:%Y-%m-%d %H:%M:%SZ}  {job.kind}  {job.state}  {job.actor_id or '-'}"


def _lines(job: ServedJob) -> Iterator[str]:
    yield f"job {job.id}: {job.kind} is {job.state}"
    if job.stage is not None and not job.has_ended:
        yield f"stage: {job.stage}, {job.rows or 0} rows"
    if job.error is not None:
        yield f"error: {job.error.get('error', job.error)}"
    for name, value in (job.result or {}).items():
        yield f"{name}: {json_codec.dumps(value, ensure_ascii=False)}"
