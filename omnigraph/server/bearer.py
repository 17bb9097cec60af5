"""Bearer tokens: actors by SHA-256 digest, compared in constant time, re-read from their file.

Invariant: no token is kept, only its digest. A tokens file that cannot be used leaves the tokens
that were in force before, and says so.
"""

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from omnigraph.errors import BadRequest
from omnigraph.server.refusals import HttpRefusal
from omnigraph.storage.protocol.intent import noted

_DIGEST = "sha256:"
_HEX_DIGITS = 64
ASK = {"WWW-Authenticate": 'Bearer realm="omnigraph"'}


def digest_of(token: str) -> str:
    """The digest of a token, in hexadecimal digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def digests(tokens: Any, where: str) -> dict[str, str]:
    """Actors by digest, from a JSON object of tokens, or of digests written `sha256:<hex>`. An
    actor may have several, so that one can be replaced while it is in use."""
    if not isinstance(tokens, Mapping) or not tokens:
        raise BadRequest(f"{where} holds no tokens", 'write {"actor": "token or sha256:…"}')
    actors: dict[str, str] = {}
    for actor, given in tokens.items():
        if not actor.strip():
            raise BadRequest(f"{where}: an actor has no name", "give it one")
        noted(actor)
        for token in given if isinstance(given, list) else [given]:
            if not isinstance(token, str) or not token.strip():
                raise BadRequest(f"{where}: the token of '{actor}' is empty", "give it one")
            digest = _digest(token.strip(), actor, where)
            if actors.setdefault(digest, actor) != actor:
                raise BadRequest(f"{where}: two actors have one token", "give each its own")
    if not actors:
        raise BadRequest(f"{where} holds no tokens", "an actor whose list is empty has none")
    return actors


def _digest(token: str, actor: str, where: str) -> str:
    if not token.startswith(_DIGEST):
        return digest_of(token)
    digits = token.removeprefix(_DIGEST).lower()
    if len(digits) != _HEX_DIGITS or not set(digits) <= set("0123456789abcdef"):
        raise BadRequest(f"{where}: the digest of '{actor}' is not SHA-256", "write 64 hex digits")
    return digits


def tokens_of_file(path: str) -> dict[str, str]:
    """Actors by digest from a JSON file."""
    try:
        content = Path(path).read_bytes()
    except OSError as cause:
        raise BadRequest(f"cannot read the tokens file {path}: {cause.strerror}") from None
    except ValueError as cause:  # no path at all: a NUL, half a surrogate pair
        raise BadRequest(f"cannot read the tokens file: {cause}") from None
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as cause:
        raise BadRequest(f"the tokens file {path} is not JSON: {cause}") from None
    return digests(document, f"the tokens file {path}")


def tokens_of_text(text: str, variable: str) -> dict[str, str]:
    """Actors by digest from JSON in an environment variable."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise BadRequest(f"{variable} is not JSON", 'write {"actor": "token"}') from None
    return digests(document, variable)


class Tokens:
    """The actors that are known."""

    def __init__(self, actors: Mapping[str, str]) -> None:
        self.replace(actors)

    def replace(self, actors: Mapping[str, str]) -> None:
        """Take other tokens, all at once: actors by digest."""
        self._digests = tuple((digest.encode(), actor) for digest, actor in actors.items())

    @property
    def digest(self) -> str:
        """The digest of all of them, which tells whether two workers know the same ones."""
        known = sorted(digest + actor.encode() for digest, actor in self._digests)
        return hashlib.sha256(b"\n".join(known)).hexdigest()

    def actor_of(self, token: str) -> str | None:
        """The actor of a token, if it is known."""
        given = digest_of(token).encode()
        actor = None
        for digest, name in self._digests:  # all of them, so that time tells nothing
            if hmac.compare_digest(digest, given):
                actor = name
        return actor

    def actor(self, header: str | None) -> str:
        """The actor of an `Authorization` header, or 401."""
        actor = self.actor_of(bearer_of(header))
        if actor is None:
            raise HttpRefusal(401, "invalid bearer token", ASK)
        return actor

    def digests_of(self, actor: str) -> tuple[str, ...]:
        """The digests of an actor's tokens; none for an actor that is not known."""
        return tuple(digest.decode() for digest, name in self._digests if name == actor)


def bearer_of(header: str | None, ask: Mapping[str, str] | None = None) -> str:
    """The token of an `Authorization` header, or 401."""
    if header is None or not header.startswith("Bearer "):
        raise HttpRefusal(401, "missing bearer token", ASK if ask is None else ask)
    return header.removeprefix("Bearer ").strip()
