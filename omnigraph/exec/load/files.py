"""File systems by name: this machine's, and object stores with the options of a graph.

Invariant: a name and its options open the same file in every process.
"""

import os
from collections.abc import Mapping
from urllib.parse import urlparse

import pyarrow.fs as pfs

Options = tuple[tuple[str, str], ...]
"""How to reach an object store, as a graph's `storage_options`; the usual variables count too."""


def is_remote(name: str) -> bool:
    """Whether a name belongs to another system than this machine's."""
    return "://" in name and not name.startswith("file://")


def opened(name: str, options: Options = ()) -> tuple[pfs.FileSystem, str]:
    """The file system that a name belongs to, and the name there."""
    if not is_remote(name):
        return pfs.LocalFileSystem(), name.removeprefix("file://")
    if name.startswith("s3://"):
        return _s3(dict(options)), name.removeprefix("s3://")
    files, path = pfs.FileSystem.from_uri(name)
    return files, str(path)


def _s3(options: Mapping[str, str]) -> pfs.S3FileSystem:
    def told(*names: str) -> str | None:
        for name in names:
            found = options.get(name) or os.environ.get(name.upper())
            if found:
                return found
        return None

    endpoint = told("aws_endpoint", "aws_endpoint_url", "endpoint", "endpoint_url")
    where = urlparse(endpoint) if endpoint else None
    known = {
        "access_key": told("aws_access_key_id", "access_key_id"),
        "secret_key": told("aws_secret_access_key", "secret_access_key"),
        "session_token": told("aws_session_token", "session_token"),
        "region": told("aws_region", "region", "aws_default_region"),
        "endpoint_override": where.netloc if where else None,
        "scheme": where.scheme if where else None,
    }
    return pfs.S3FileSystem(**{name: value for name, value in known.items() if value})
