"""`omnigraph token`: bearer tokens for actors, made here, kept as digests in a tokens file.

Invariant: a token is shown once and stored nowhere. A tokens file is replaced as a whole, readable
by its owner alone, and a server that uses it takes the change over by itself.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from omnigraph.cli.options import Json
from omnigraph.cli.terminal import plain_errors, show, show_json
from omnigraph.errors import BadRequest, NotFound

app = typer.Typer(
    name="token",
    help="Make and withdraw the tokens of a server's actors.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ActorName = Annotated[str, typer.Argument(metavar="ACTOR", help="Who the token stands for.")]
TokensFile = Annotated[
    str, typer.Option("--tokens", metavar="FILE", help="The server's tokens file (JSON).")
]
_BYTES = 32
_PREFIX = "og_"
_KEPT = "sha256:"


@app.command()
def create(
    actor: ActorName,
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="FILE", help="Add its digest to this file.")
    ] = None,
    json: Json = False,
) -> None:
    """Make a token for an actor. It is shown now and never again.

    An actor may have several: to rotate, create one, hand it out, then revoke the older ones.
    """
    with plain_errors():
        _require_actor(actor)
        from omnigraph.server.bearer import digest_of

        token = _PREFIX + secrets.token_urlsafe(_BYTES)
        digest = f"{_KEPT}{digest_of(token)}"
        if tokens is not None:
            with _changed(tokens) as known:
                known[actor] = [*_listed(known.get(actor, [])), digest]
        if json:
            show_json({"actor_id": actor, "token": token, "digest": digest, "tokens": tokens})
            return
        show(token)
        if tokens is None:
            typer.echo(f'add to the tokens file: "{actor}": "{digest}"', err=True)
        else:
            typer.echo(f"added its digest for '{actor}' to {tokens}", err=True)


@app.command()
def revoke(
    actor: ActorName,
    tokens: TokensFile,
    keep_newest: Annotated[
        bool, typer.Option("--keep-newest", help="Only the older ones, to end a rotation.")
    ] = False,
    json: Json = False,
) -> None:
    """Withdraw the tokens of an actor."""
    with plain_errors():
        with _changed(tokens) as known:
            listed = _listed(known.get(actor, []))
            if not listed:
                raise NotFound("actor", actor, f"{tokens} has no token of it")
            kept = listed[-1:] if keep_newest else []
            if kept:
                known[actor] = kept
            else:
                del known[actor]
            if not known:
                raise BadRequest(
                    "it is the last token of all, and a server starts with none",
                    "create another one first",
                )
        gone = len(listed) - len(kept)
        if json:
            show_json({"actor_id": actor, "revoked": gone, "kept": len(kept)})
            return
        show(f"revoked {gone} token(s) of '{actor}'")


@app.command(name="list")
def list_(tokens: TokensFile, json: Json = False) -> None:
    """List the actors of a tokens file, and how many tokens each has."""
    with plain_errors():
        counts = {actor: len(_listed(given)) for actor, given in sorted(_read(tokens).items())}
        if json:
            show_json({"actors": [{"actor_id": a, "tokens": n} for a, n in counts.items()]})
            return
        for actor, number in counts.items():
            show(f"{actor}\t{number}")


def _require_actor(actor: str) -> None:
    from omnigraph.storage.names import require_actor

    require_actor(actor)
    if not actor.strip() or actor != actor.strip():
        raise BadRequest(f"'{actor}' is no name of an actor", "leave out spaces around it")


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _read(path: str) -> dict[str, Any]:
    """The object in a tokens file, which must be one that a server takes."""
    from omnigraph.server.bearer import tokens_of_file

    tokens_of_file(path)
    document: dict[str, Any] = orjson.loads(Path(path).read_bytes())
    return document


@contextlib.contextmanager
def _changed(path: str) -> Iterator[dict[str, Any]]:
    """A tokens file to change: written at the end of the block, while no other command does."""
    import fcntl  # which Windows has not

    if "\0" in path:
        raise BadRequest(f"the tokens file {path!r} cannot be one", "name it without a null byte")
    folder = os.path.dirname(os.path.abspath(path))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        known = _read(path) if os.path.exists(path) else {}
        yield known
        mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o600
        draft, name = tempfile.mkstemp(dir=folder, prefix=".tokens-")
        with os.fdopen(draft, "wb") as file:
            file.write(orjson.dumps(known, option=orjson.OPT_INDENT_2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    finally:
        os.close(descriptor)
