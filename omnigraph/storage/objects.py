"""Object store adapter: small objects (sidecars, leases, schema files) on local disk and S3.

Invariant: an object or a non-empty prefix exists, nothing else does; and a failure to look is an
error, never "absent". Puts are atomic: a reader sees the whole object or none of it.
"""

import itertools
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote, urlparse

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import LocalStore, S3Store

from omnigraph.errors import BadRequest, StorageFailed
from omnigraph.light_dataclass import dataclass
from omnigraph.storage.flushing import Flusher
from omnigraph.storage.stats import Stats

StorageOptions = dict[str, str]
LOCAL_SCHEME = "file-object-store://"
_UNESCAPED = "".join(c for c in map(chr, range(32, 127)) if c not in '\\{^}%`]">[~<#|*?')
_CHUNK_BYTES = 8 << 20
_numbers = itertools.count(1)
_CLIENT_OPTIONS = frozenset({"allow_http", "timeout", "connect_timeout"})


@dataclass(frozen=True, slots=True)
class Root:
    """The root folder or bucket prefix of a graph. `path` is set on local disk only."""

    uri: str
    path: Path | None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def is_local(self) -> bool:
        return self.path is not None

    @property
    def storage_options(self) -> StorageOptions | None:
        return dict(self.options) or None

    def join(self, relative: str) -> str:
        """The address of something below the root: of a local graph a path, never a URL."""
        return f"{self.uri}/{relative}"

    def branching(self, relative: str) -> str:
        """The address of a dataset whose Lance branches come and go. Lance makes a folder at the
        percent-encoded form of a path it is given there; an address that says which characters are
        meant is taken as it is."""
        if self.path is None or self.percent_encoded == self.uri:
            return self.join(relative)
        return f"{LOCAL_SCHEME}{quote(self.join(relative))}"

    @property
    def percent_encoded(self) -> str:
        """The path as Lance writes it where it takes a path for a URL."""
        return quote(self.uri, safe=_UNESCAPED).replace("~", "%7E")

    def require_branchable(self) -> None:
        """Pass for a root below which Lance can keep branches."""
        if self.path is not None and "?" in self.uri:
            raise BadRequest(
                f"there is a '?' in the path '{self.uri}', below which a table cannot be branched",
                "choose a folder without one, or move the graph there",
            )


def root_of(uri: str | os.PathLike[str], options: StorageOptions | None = None) -> Root:
    """The root a caller names: a path, `file://…` or `s3://bucket/prefix`."""
    text = os.fspath(uri)
    if text.startswith("s3://"):
        return Root(text.rstrip("/"), None, tuple(sorted((options or {}).items())))
    if text.startswith("file://"):
        text = unquote(urlparse(text).path)
    elif "://" in text:
        is_served = text.startswith(("http://", "https://"))
        served = f"; connect to a server with omnigraph.connect({text!r})" if is_served else ""
        raise BadRequest(
            f"'{text}' is no place for a graph", f"use a path, file:// or s3://{served}"
        )
    path = Path(text).expanduser().absolute()
    return Root(str(path), path)


@dataclass(frozen=True, slots=True)
class Stored:
    """One object as it was read: its bytes and the tag a conditional put names."""

    data: bytes
    tag: str


@dataclass(frozen=True, slots=True)
class Listed:
    """An object as a listing shows it; `modified` counts seconds since the epoch."""

    path: str
    size: int
    modified: float


class Objects:
    """The objects below one graph's root."""

    def __init__(self, where: Root, stats: Stats, flusher: Flusher | None = None) -> None:
        self.uri = where.uri
        self._where = where
        self._stats = stats
        self.flusher = flusher or Flusher(where.path, stats)
        self._opened: LocalStore | S3Store | None = None
        self._root = None if where.path is None else str(where.path)

    @property
    def _store(self) -> LocalStore | S3Store:
        if self._opened is None:
            self._opened = _open_store(self._where)
        return self._opened

    def get(self, path: str) -> Stored | None:
        """The object, or None when there is none."""
        with self._call("get", path):
            try:
                answer = obstore.get(self._store, path)
            except FileNotFoundError:
                return None
            return Stored(bytes(answer.bytes()), str(answer.meta["e_tag"]))

    def put(self, path: str, data: bytes) -> None:
        """Write the object, over what was there."""
        if not self.flusher.is_on:
            self.put_unflushed(path, data)
            return
        # A name must not move to a file whose content a power cut can still take away.
        aside = _aside(path)
        with self._call("put", path):
            _write_file(f"{self._root}/{aside}", data)
        self.flusher.barrier([aside])
        with self._call("put", path):
            os.replace(f"{self._root}/{aside}", f"{self._root}/{path}")
        self.flusher.barrier([path])

    def put_unflushed(self, path: str, data: bytes) -> None:
        """Write the object, over what was there. A later barrier flushes it."""
        with self._call("put", path):
            obstore.put(self._store, path, data)

    def put_aside(self, path: str, data: bytes) -> Callable[[], None]:
        """Write what shall replace an object; the barrier that follows flushes it, and the returned
        call, made after that, replaces the object. Without barriers it is a put."""
        if not self.flusher.is_on:
            return partial(self.put_unflushed, path, data)
        aside = _aside(path)
        with self._call("put", path):
            _write_file(f"{self._root}/{aside}", data)
        self.flusher.owe([aside])

        def replace() -> None:
            with self._call("rename", path):
                os.replace(f"{self._root}/{aside}", f"{self._root}/{path}")
            self.flusher.owe([path])

        return replace

    def move(self, path: str, to: str, data: bytes) -> None:
        """Give an object another name, over what has that name. `data` is its content, for stores
        that cannot move one."""
        if self._root is None or not self.flusher.is_on:
            self.put_unflushed(to, data)
            self.delete(path)
            return
        with self._call("rename", path):
            os.replace(f"{self._root}/{path}", f"{self._root}/{to}")
        self.flusher.owe([to])

    def put_if_absent(self, path: str, data: bytes) -> str | None:
        """Create the object and return its tag; None when it exists already."""
        with self._call("put", path):
            try:
                tag = str(obstore.put(self._store, path, data, mode="create")["e_tag"])
            except AlreadyExistsError:
                return None
        self.flusher.barrier([path])
        return tag

    def put_if_match(self, path: str, data: bytes, tag: str) -> str | None:
        """Replace the object that carries `tag` and return the new tag; None when it moved on."""
        with self._call("put", path):
            try:
                return str(obstore.put(self._store, path, data, mode={"e_tag": tag})["e_tag"])
            except (PreconditionError, FileNotFoundError):
                return None

    def copy_from(self, source: "Objects", path: str) -> bool:
        """Copy an object of another root to the same path below this one, a chunk at a time; False
        when there is none. It appears as a whole."""
        with source._call("get", path):
            try:
                answer = obstore.get(source._store, path)
            except FileNotFoundError:
                return False
        with self._call("put", path):
            # Only closing a writer makes the object: one that is dropped half-way leaves none.
            writer = obstore.open_writer(self._store, path, buffer_size=_CHUNK_BYTES)
            for chunk in answer.stream(min_chunk_size=_CHUNK_BYTES):
                writer.write(chunk)
            writer.close()
        self.flusher.owe([path])
        return True

    def delete(self, *paths: str) -> None:
        """Remove objects, many by one call where the store can. One that is gone already is no
        failure."""
        if self._root is None and len(paths) > 1:
            with self._call("delete", paths[0]):
                obstore.delete(self._store, paths)
            return
        for path in paths:
            with self._call("delete", path), suppress(FileNotFoundError):
                obstore.delete(self._store, path)

    def list(self, prefix: str) -> tuple[str, ...]:
        """The paths of all objects below a prefix, sorted."""
        with self._call("list", prefix):
            listing = obstore.list(self._store, prefix).collect()
            return tuple(sorted(str(meta["path"]) for meta in listing))

    def listed(self, prefix: str) -> tuple[Listed, ...]:
        """The objects below a prefix with their sizes and ages, sorted by path."""
        with self._call("list", prefix):
            listing = obstore.list(self._store, prefix).collect()
            each = (
                Listed(str(m["path"]), int(m["size"]), m["last_modified"].timestamp())
                for m in listing
            )
            return tuple(sorted(each, key=lambda listed: listed.path))

    def folders(self, prefix: str) -> tuple[str, ...]:
        """The names of the folders right below a prefix, sorted."""
        with self._call("list", prefix):
            listing = obstore.list_with_delimiter(self._store, prefix)
            return tuple(
                sorted(str(path).rpartition("/")[2] for path in listing["common_prefixes"])
            )

    def has(self, path: str) -> bool:
        """Whether exactly this object is there."""
        with self._call("head", path):
            if self._root is not None:
                return _is_file(f"{self._root}/{path}")
            try:
                obstore.head(self._store, path)
            except FileNotFoundError:
                return False
            return True

    def is_newest(self, known: str, following: str) -> bool:
        """Whether the next of numbered objects is absent, by one look. On local disk, where a whole
        folder can be gone at once, the known one must be there too."""
        if self._root is None:
            return not self.has(following)
        self._stats.call("object.head")
        try:
            # A name that cannot be looked up counts as absent; then the other cannot be either.
            is_absent = not os.access(f"{self._root}/{following}", os.F_OK)
            return is_absent and _is_file(f"{self._root}/{known}")
        except OSError as cause:
            raise StorageFailed(f"ran head on {self._where.join(known)}", str(cause)) from cause

    def exists(self, path: str) -> bool:
        """Whether an object, or a prefix with objects, is there."""
        return self.has(path) or bool(self.list(path))

    def delete_prefix(self, prefix: str) -> None:
        """Remove everything below a prefix."""
        self.delete(*self.list(prefix))
        self.prune(prefix)
        self.flusher.forget(prefix)

    def prune(self, folder: str) -> None:
        """Remove a folder and those below it as far as they are empty: a disk keeps them, an object
        store has none."""
        if self._root is None:
            return
        for path, _, _ in os.walk(f"{self._root}/{folder}", topdown=False):
            with suppress(OSError):
                os.rmdir(path)

    @contextmanager
    def _call(self, verb: str, path: str) -> Iterator[None]:
        self._stats.call(f"object.{verb}")
        try:
            yield
        except (BaseError, OSError) as cause:
            raise StorageFailed(f"ran {verb} on {self._where.join(path)}", str(cause)) from cause


class Files:
    """The files beside the tables, for rooms that may not touch other objects."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def read(self, path: str) -> bytes | None:
        """The content of a file, or None when there is none."""
        stored = self._objects.get(path)
        return None if stored is None else stored.data

    def keep(self, files: Mapping[str, bytes]) -> None:
        """Write files that never change, unless they are there already. The commit that follows
        flushes them."""
        for path, data in files.items():
            stored = self._objects.get(path)
            if stored is None or stored.data != data:
                self._objects.put_unflushed(path, data)
        self._objects.flusher.owe(files)


def _aside(path: str) -> str:
    """The name of a file that waits for its own: a store leaves names with such an end out."""
    return f"{path}#{os.getpid()}{next(_numbers):08d}"


def _write_file(path: str, data: bytes) -> None:
    os.makedirs(path.rpartition("/")[0], exist_ok=True)
    with open(path, "xb") as file:
        file.write(data)


def _is_file(path: str) -> bool:
    """Asked of the system itself: every read looks whether its branch moved on, and a detour
    through the store's runtime costs many times the look."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _open_store(where: Root) -> LocalStore | S3Store:
    if where.path is not None:
        return LocalStore(prefix=where.path)
    config = {k: v for k, v in where.options if k not in _CLIENT_OPTIONS}
    client: dict[str, Any] = {k: v for k, v in where.options if k in _CLIENT_OPTIONS}
    if "allow_http" in client:
        client["allow_http"] = str(client["allow_http"]).lower() == "true"
    return S3Store.from_url(
        where.uri, config=cast(Any, config), client_options=cast(Any, client) or None
    )
