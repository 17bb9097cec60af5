"""Files outside the graph that a Blob may be copied from.

Invariant: nothing is read that does not lie below an allowed base, also through `..`, an encoded
dot or a symbolic link. Without bases nothing is allowed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from omnigraph.errors import (
    BadRequest,
    ExternalBlobDenied,
    ExternalBlobUnreadable,
    LimitExceeded,
)
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.objects import StorageOptions

URI_BYTES_MAX = 64 << 10
URIS_MAX = 8_192  # in one operation
OBJECT_BYTES_MAX = 256 << 20
_SCHEMES = ("file", "s3")


def checked_bases(bases: Iterable[str]) -> tuple[str, ...]:
    """The bases as they are compared: absolute, normalised, none inside another."""
    checked = tuple(_checked_base(base) for base in bases)
    for one in checked:
        if any(one is not other and one.startswith(other) for other in checked):
            raise BadRequest(f"the base '{one}' lies inside another one", "keep one of the two")
    return checked


def _checked_base(base: str) -> str:
    try:
        parts = urlsplit(base)
        plain = not (parts.query or parts.fragment or parts.username or parts.password)
        is_base = parts.scheme in _SCHEMES and plain and _is_normal(base)
    except ValueError:  # half of an IPv6 address
        is_base = False
    if not is_base:
        raise BadRequest(
            f"'{base}' is no base for external blobs",
            "give file:///folder/ or s3://bucket/prefix/ without credentials, query or dots",
        )
    return base if base.endswith("/") else f"{base}/"


def _is_normal(uri: str) -> bool:
    """Whether an address means what it spells: no dots, no empty steps, nothing encoded."""
    parts = urlsplit(uri)
    steps = parts.path.strip("/").split("/") if parts.path.strip("/") else []
    host = bool(parts.netloc) if parts.scheme == "s3" else not parts.netloc
    return (
        host
        and parts.path.startswith("/")
        and unquote(uri) == uri
        and "\\" not in uri
        and all(step not in ("", ".", "..") for step in steps)
        and not parts.path.startswith("//")
    )


@dataclass(slots=True)
class ExternalBlobs:
    """What one operation copies from outside. A file that is named twice is read once."""

    bases: Sequence[str]
    options: StorageOptions | None = None
    _read: dict[str, bytes] = field(default_factory=dict)

    def afresh(self) -> "ExternalBlobs":
        """The same allowance, with nothing read yet."""
        return ExternalBlobs(self.bases, self.options)

    def read(self, uri: str) -> bytes:
        """The bytes of an allowed file."""
        if uri not in self._read:
            self._require_few(uri)
            base = next((base for base in self.bases if uri.startswith(base)), None)
            if base is None or urlsplit(uri).query or not _is_normal(uri):
                raise ExternalBlobDenied(uri)
            self._read[uri] = self._file(uri, base) if base[:5] == "file:" else self._object(uri)
        return self._read[uri]

    def _require_few(self, uri: str) -> None:
        size = len(uri.encode())
        if size > URI_BYTES_MAX:
            raise LimitExceeded("external Blob URI bytes", size, URI_BYTES_MAX)
        if len(self._read) >= URIS_MAX:
            raise LimitExceeded("external Blob reference cells", len(self._read) + 1, URIS_MAX)

    def _file(self, uri: str, base: str) -> bytes:
        try:
            path = Path(urlsplit(uri).path).resolve(strict=True)
            if not path.is_relative_to(Path(urlsplit(base).path).resolve(strict=True)):
                raise ExternalBlobDenied(uri)  # a link that leads out
            _require_small(path.stat().st_size)
            return path.read_bytes()
        except OSError as cause:
            raise ExternalBlobUnreadable(uri, cause.strerror or str(cause)) from cause

    def _object(self, uri: str) -> bytes:
        bucket = f"s3://{urlsplit(uri).netloc}"
        options = self.options or {}
        client = {"allow_http": options.get("allow_http", "false").lower() == "true"}
        config = {name: value for name, value in options.items() if name != "allow_http"}
        try:
            store = S3Store.from_url(
                bucket, config=cast(Any, config), client_options=cast(Any, client)
            )
            answer = obstore.get(store, urlsplit(uri).path.lstrip("/"))
            _require_small(int(answer.meta["size"]))
            return bytes(answer.bytes())
        except (BaseError, OSError) as cause:
            raise ExternalBlobUnreadable(uri, str(cause).splitlines()[0]) from cause


def _require_small(size: int) -> None:
    if size > OBJECT_BYTES_MAX:
        raise LimitExceeded("external Blob object bytes", size, OBJECT_BYTES_MAX)
