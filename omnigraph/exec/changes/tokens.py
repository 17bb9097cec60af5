"""Page tokens and cursors: sealed with a digest, bound to one listing.

Invariant: the server keeps nothing. A token says what it is for, binds the listing it belongs to,
and one that was changed, cut or taken from elsewhere is refused.
"""

import base64
import binascii
import hashlib
from typing import Any

import orjson

from omnigraph.errors import BadRequest

TOKEN_CHARS_MAX = 4_096
_DIGEST_BYTES = 16


def sealed(kind: str, scope: Any, facts: Any) -> str:
    """A token of one kind that is valid for one scope."""
    body = orjson.dumps([kind, _digest(orjson.dumps(scope)).hex(), facts])
    token = base64.urlsafe_b64encode(_digest(body) + body).decode().rstrip("=")
    if len(token) > TOKEN_CHARS_MAX:
        raise BadRequest("the place in the listing is too long for a token", "filter by type")
    return token


def unsealed(token: str, kind: str, scope: Any) -> Any:
    """The content of a token of this kind and for this scope, or `BadRequest`."""
    found_kind, found_scope, facts = _opened(token)
    if found_kind != kind:
        raise _rejected(f"it is a {found_kind} token, not a {kind} token")
    if found_scope != _digest(orjson.dumps(scope)).hex():
        raise _rejected("it belongs to another graph, branch, commit or filter")
    return facts


def _opened(token: str) -> tuple[str, str, Any]:
    if len(token) > TOKEN_CHARS_MAX:
        raise _rejected("it is too long")
    try:
        padded = token + "=" * (-len(token) % 4)
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
        digest, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if digest != _digest(body):
            raise _rejected("it was changed")
        kind, scope, facts = orjson.loads(body)
    except (binascii.Error, ValueError):
        raise _rejected("it is malformed") from None
    return kind, scope, facts


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:_DIGEST_BYTES]


def _rejected(reason: str) -> BadRequest:
    return BadRequest(f"change cursor rejected: {reason}", "start again from a commit you know")
