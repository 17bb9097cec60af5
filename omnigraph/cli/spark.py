"""`omnigraph spark`: the archive of packages that Spark executors need."""

from __future__ import annotations

from typing import Annotated

import typer

from omnigraph.cli.options import Json
from omnigraph.cli.terminal import plain_errors, show, show_json

app = typer.Typer(
    name="spark", help="What a Spark cluster needs.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _group() -> None:
    """What a Spark cluster needs."""


@app.command()
def package(
    out: Annotated[
        str, typer.Option("--out", metavar="PATH", help="The archive, or a folder for it.")
    ] = ".",
    json: Json = False,
) -> None:
    """Build the archive that executors need, and say how to submit with it."""
    from omnigraph.pipeline.package import build, executor_settings, submit_line

    with plain_errors():
        path = build(out)
        if json:
            size = path.stat().st_size
            settings = executor_settings(str(path))
            show_json({"archive": str(path), "size_bytes": size, "settings": settings})
            return
        show(f"wrote {path} ({path.stat().st_size >> 20} MiB)")
        show(submit_line(str(path)))
