"""The storage version of a graph: the one number this program reads and writes.

Invariant: no other module knows the number or the key it is kept under, and nothing migrates a
graph in place. A format change is a new number and a rebuild by export and load. Nothing here loads
Arrow, because `omnigraph version` asks for the number.
"""

from typing import TYPE_CHECKING

from omnigraph.errors import NotFound, UnsupportedVersion

if TYPE_CHECKING:
    import pyarrow as pa

INTERNAL_SCHEMA_VERSION = 4
_KEY = b"omnigraph:internal_schema_version"


def stamped(schema: "pa.Schema") -> "pa.Schema":
    """The schema with this program's stamp in its metadata."""
    return schema.with_metadata(
        {**(schema.metadata or {}), _KEY: str(INTERNAL_SCHEMA_VERSION).encode()}
    )


def read(schema: "pa.Schema", *, uri: str) -> int:
    """The stamp a manifest carries. A dataset without one is no graph of ours."""
    text = (schema.metadata or {}).get(_KEY)
    if text is None or not text.isdigit():
        raise NotFound("graph", uri, "its __manifest carries no storage version")
    return int(text)


def require_supported(schema: "pa.Schema", *, uri: str) -> None:
    """Pass only for the one version this program reads."""
    actual = read(schema, uri=uri)
    if actual != INTERNAL_SCHEMA_VERSION:
        raise UnsupportedVersion(actual, INTERNAL_SCHEMA_VERSION)
