"""File systems by URI: the local one, S3 and others, with the storage options of a graph.

Invariant: a name and its options open the same file in every process.
"""

from collections.abc import Mapping
from urllib.parse import urlparse

import pyarrow.fs as pfs

from omnigraph import environment
from omnigraph.errors import BadRequest

Options = tuple[tuple[str, str], ...]
"""A graph's `storage_options` for an object store; environment variables fill what is left out."""


def is_remote(name: str) -> bool:
    """Whether a name is a URI of another file system than the local one."""
    return "://" in name and not name.startswith("file://")


def opened(name: str, options: Options = ()) -> tuple[pfs.FileSystem, str]:
    """The file system of a name, and the path inside it."""
    if not is_remote(name):
        return pfs.LocalFileSystem(), name.removeprefix("file://")
    if name.startswith("s3://"):
        return _s3(dict(options)), name.removeprefix("s3://")
    try:
        files, path = pfs.FileSystem.from_uri(name)
    except (ValueError, NotImplementedError) as cause:  # Arrow's own are among them
        raise BadRequest(
            f"'{name}' is in no file system that can be reached", "give a path, file:// or s3://"
        ) from cause
    return files, str(path)


def _s3(options: Mapping[str, str]) -> pfs.S3FileSystem:
    def option(*names: str) -> str | None:
        for name in names:
            variable = environment.AWS.get(name.upper())
            value = options.get(name) or (variable.read() if variable is not None else None)
            if value:
                return value
        return None

    endpoint = option("aws_endpoint", "aws_endpoint_url", "endpoint", "endpoint_url")
    where = urlparse(endpoint) if endpoint else None
    known = {
        "access_key": option("aws_access_key_id", "access_key_id"),
        "secret_key": option("aws_secret_access_key", "secret_access_key"),
        "session_token": option("aws_session_token", "session_token"),
        "region": option("aws_region", "region", "aws_default_region"),
        "endpoint_override": where.netloc if where else None,
        "scheme": where.scheme if where else None,
    }
    return pfs.S3FileSystem(**{name: value for name, value in known.items() if value})
