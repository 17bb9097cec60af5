"""Stored tokens of servers: the file `credentials` beside `config.yaml`, its owner's alone.

Invariant: the file is written whole and with mode 0600; one that others may read is refused before
a token of it is used.
"""

from __future__ import annotations

import configparser
import os
import secrets
import stat
from pathlib import Path

from omnigraph import environment
from omnigraph.cli.config import config, home
from omnigraph.errors import BadRequest

_FILE = "credentials"
_TOKEN = "token"


def credentials_path() -> Path:
    """Where the tokens are kept."""
    return home() / _FILE


def token_for(url: str, server: str | None) -> str | None:
    """The token for the server at a URL: that of the name by which it is asked for, which is else
    the first one with that URL; without one the token for all."""
    names = [name for name, known in config().servers.items() if is_same_url(known, url)]
    if names:
        named = server if server in names else names[0]
        token = environment.server_token(named).read() or _stored().get(named)
        if token is not None:
            return token
    return environment.BEARER_TOKEN.read()


def is_same_url(one: str, other: str) -> bool:
    """Whether two addresses are those of one server."""
    return one.rstrip("/").lower() == other.rstrip("/").lower()


def store_token(server: str, token: str) -> Path:
    """Keep the token of a server; the file it is kept in."""
    if "://" in server:
        # Nothing would ever look for it there: a URL alone has the token for all.
        names = [name for name, url in config().servers.items() if is_same_url(url, server)]
        name = names[0] if names else "NAME"
        declare = (
            "" if names else f"write servers: {{ {name}: {{ url: {server} }} }} in config.yaml, "
        )
        raise BadRequest(
            f"'{server}' is a URL, and tokens are stored by the name of a server",
            f"{declare}omnigraph login {name}, or set {environment.BEARER_TOKEN.name}",
        )
    if not server.strip() or not server.isprintable() or set(server) & set("[]"):
        raise BadRequest(f"'{server}' cannot name a server", "use a name of config.yaml")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadRequest("the token is empty, or holds more than one word", "give it on one line")
    return _write({**_stored(), server: token})


def forget_token(server: str) -> bool:
    """Remove the token of a server; False if none is stored."""
    known = _stored()
    if known.pop(server, None) is None:
        return False
    _write(known)
    return True


def _stored() -> dict[str, str]:
    path = credentials_path()
    try:
        mode = path.stat().st_mode
        if stat.S_IMODE(mode) & 0o077:
            raise BadRequest(f"others may read {path}", f"make it yours alone: chmod 600 {path}")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as cause:
        raise BadRequest(f"cannot read {path}: {cause}", "correct or remove it") from None
    parser = _parser()
    try:
        parser.read_string(text)
    except configparser.Error as cause:
        fault = " ".join(str(cause).split())
        raise BadRequest(f"{path} cannot be used: {fault}", "correct or remove it") from None
    return {name: parser[name][_TOKEN] for name in parser.sections() if _TOKEN in parser[name]}


def _parser() -> configparser.ConfigParser:
    return configparser.ConfigParser(interpolation=None, default_section="")


def _write(tokens: dict[str, str]) -> Path:
    path = credentials_path()
    parser = _parser()
    parser.read_dict({name: {_TOKEN: token} for name, token in tokens.items()})
    unfinished = path.with_name(f".{_FILE}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            parser.write(stream)
        unfinished.replace(path)
    except OSError as cause:
        raise BadRequest(f"cannot write {path}: {cause.strerror}", "look at the folder") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return path
