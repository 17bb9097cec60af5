"""`omnigraph cluster …`: plan and apply what `cluster.yaml` declares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.options import Actor, Json
from omnigraph.cli.terminal import painted, plain_errors, show, show_json

if TYPE_CHECKING:
    from omnigraph.cluster.commands import ClusterCommand

app = typer.Typer(
    name="cluster",
    help="Plan and apply the graphs, queries and policies of a cluster.yaml.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ConfigFolder = Annotated[
    str, typer.Option("--config", metavar="DIR", help="The folder of cluster.yaml.")
]


def _command(folder: str) -> ClusterCommand:
    from omnigraph.cluster.commands import ClusterCommand

    return ClusterCommand(Path(folder))


def _finish(document: dict[str, Any], headline: str, lines: list[str], *, as_json: bool) -> None:
    """Print a document, and end with 1 if it is not ok."""
    if as_json:
        show_json(document)
    else:
        show(headline)
        for line in lines:
            show(line)
        for each in document["diagnostics"]:
            label = "ERROR" if each["severity"] == "error" else "WARN "
            show(f"{label} {each['code']} {each['path']}: {each['message']}")
    if not document["ok"]:
        raise typer.Exit(1)


@app.command()
def validate(folder: ConfigFolder = ".", json: Json = False) -> None:
    """Check cluster.yaml and the files it names."""
    with plain_errors():
        document = _command(folder).validate()
        resources, edges = len(document["resources"]), len(document["dependencies"])
        valid = f"cluster config valid: {resources} resource(s), {edges} dependency edge(s)"
        headline = valid if document["ok"] else "cluster config invalid"
        _finish(document, headline, [], as_json=json)


@app.command()
def plan(folder: ConfigFolder = ".", json: Json = False) -> None:
    """Show what an apply would do; writes nothing."""
    with plain_errors():
        document = _command(folder).plan()
        changes, gates = len(document["changes"]), len(document["approvals_required"])
        headline = f"cluster plan: {changes} change(s), {gates} approval gate(s)"
        _finish(document, headline, _change_lines(document), as_json=json)


@app.command()
def apply(folder: ConfigFolder = ".", actor: Actor = None, json: Json = False) -> None:
    """Make the cluster what cluster.yaml declares."""
    with plain_errors():
        document = _command(folder).apply(actor)
        applied, waiting = document["applied_count"], document["deferred_count"]
        lines = _change_lines(document)
        lines.append(f"converged: {'yes' if document['converged'] else 'no'}")
        headline = f"cluster apply: {applied} applied, {waiting} deferred/blocked"
        _finish(document, headline, lines, as_json=json)


@app.command()
def approve(
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help="Such as graph.knowledge.")],
    folder: ConfigFolder = ".",
    actor: Actor = None,
    json: Json = False,
) -> None:
    """Approve the deletion of a graph, as an actor."""
    with plain_errors():
        document = _command(folder).approve(resource, actor)
        headline = f"cluster approve: {resource} not approved"
        if document["ok"]:
            headline = (
                f"cluster approve: {document['operation']} of {resource} approved by "
                f"{document['approved_by']} ({document['approval_id']})"
            )
        _finish(document, headline, [], as_json=json)


@app.command()
def status(folder: ConfigFolder = ".", json: Json = False) -> None:
    """Show what the ledger says was applied."""
    with plain_errors():
        document = _command(folder).status()
        _finish(document, _state_line(document), _status_lines(document), as_json=json)


@app.command()
def refresh(folder: ConfigFolder = ".", json: Json = False) -> None:
    """Look at graphs and payloads again, and let the ledger say what is there."""
    with plain_errors():
        document = _command(folder).refresh()
        _finish(document, _state_line(document), _status_lines(document), as_json=json)


@app.command(name="import")
def import_(folder: ConfigFolder = ".", json: Json = False) -> None:
    """Make the ledger of a cluster, from the graphs that exist."""
    with plain_errors():
        document = _command(folder).import_()
        _finish(document, _state_line(document), _status_lines(document), as_json=json)


@app.command(name="force-unlock")
def force_unlock(
    lock_id: Annotated[str, typer.Argument(metavar="LOCK_ID", help="Its exact id.")],
    folder: ConfigFolder = ".",
    json: Json = False,
) -> None:
    """Remove the lock that a command left behind."""
    with plain_errors():
        document = _command(folder).unlock(lock_id)
        is_removed = document["lock_removed"]
        headline = f"cluster lock {lock_id} {'removed' if is_removed else 'not removed'}"
        _finish(document, headline, [], as_json=json)


_DESTRUCTIVE = ("drop_type", "drop_property")
_SIGNS = {"create": "+", "update": "~", "delete": "-"}


def _change_lines(document: dict[str, Any]) -> list[str]:
    lines = []
    for change in document["changes"]:
        reason = f" ({change['reason']})" if "reason" in change else ""
        sign = _SIGNS[change["operation"]]
        line = f"{sign} {change['resource']} {change['disposition']}{reason}"
        lines.append(painted(line, "red") if change["operation"] == "delete" else line)
        migration = change.get("migration")
        if migration is not None:
            supported = "yes" if migration["supported"] else "no"
            lines.append(f"    {len(migration['steps'])} migration step(s), supported: {supported}")
            lines += map(_step_line, migration["steps"])
    return lines


def _step_line(step: dict[str, Any]) -> str:
    line = f"    - {step['text']}"
    return painted(f"{line}  [destructive]", "red") if step["kind"] in _DESTRUCTIVE else line


def _state_line(document: dict[str, Any]) -> str:
    state = document["state_observations"]
    count = len(document["resource_digests"])
    return f"cluster state: revision {state['state_revision']}, {count} resource(s)"


def _status_lines(document: dict[str, Any]) -> list[str]:
    lines = []
    state = document["state_observations"]
    if state["locked"]:
        lines.append(f"locked by {state['lock_operation']}: {state['lock_id']}")
    for address, status in sorted(document["resource_statuses"].items()):
        lines.append(f"{status['status']:<8} {address}")
    return lines
