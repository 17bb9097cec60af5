"""`omnigraph config`: the user's settings and the environment variables, as they hold now."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph import environment
from omnigraph.cli.config import config as user_config
from omnigraph.cli.options import Json
from omnigraph.cli.terminal import plain_errors, show, show_json
from omnigraph.errors import BadRequest

Env = Annotated[bool, typer.Option("--env", help="Every environment variable instead.")]


def config(env: Env = False, json: Json = False) -> None:
    """Show the settings of config.yaml, or with --env every variable, its value and its default.

    Exits with 1 if a variable has a value that cannot be used.
    """
    with plain_errors():
        if not env:
            _show_settings(as_json=json)
            return
        known = [_document(variable) for variable in environment.TABLE]
        unknown = list(environment.unknown())
        if json:
            show_json({"variables": known, "unknown": unknown})
        else:
            for document in known:
                show(_line(document))
            for name in unknown:
                show(f"{name}: set, but nothing reads it; look at its spelling")
    if any(document["error"] for document in known):
        raise typer.Exit(1)


def _show_settings(*, as_json: bool) -> None:
    settings = user_config()
    document = {
        "path": str(settings.path),
        "exists": settings.path.exists(),
        "actor": settings.actor,
        "store": settings.defaults.store,
        "output": settings.output,
        "table_max_column_width": settings.column_width,
        "table_cell_layout": settings.layout,
        "retries": settings.retries,
        "profiles": sorted(settings.profiles),
    }
    if as_json:
        show_json(document)
        return
    for key, value in document.items():
        if value not in (None, []):
            show(f"{key}: {', '.join(value) if isinstance(value, list) else value}")


def _document(variable: environment.Variable) -> dict[str, str | None]:
    """One variable: its value as it is set, None if it is unset; a secret is not shown."""
    value = environment.current().get(variable.name) or None
    error = None
    try:
        variable.read()
    except BadRequest as cause:
        error = str(cause)
    is_secret = isinstance(variable, environment.TextVariable) and variable.is_secret
    return {
        "name": variable.name,
        "value": "(set)" if value is not None and is_secret else value,
        "default": str(variable.default) or None,
        "allowed": variable.allowed or None,
        "use": variable.use,
        "error": error,
    }


def _line(document: dict[str, str | None]) -> str:
    if document["value"] is not None:
        state = f"={document['value']}"
    else:
        state = f" (unset; {document['default']})" if document["default"] else " (unset)"
    allowed = f" [{document['allowed']}]" if document["allowed"] else ""
    fault = f"\n  error: {document['error']}" if document["error"] else ""
    return f"{document['name']}{state}: {document['use']}{allowed}{fault}"
