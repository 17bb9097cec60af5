"""Payload catalog: the texts of applied queries and policies, named by their digests.

    <storage>/__cluster/resources/query/<graph>/<name>/<digest>.gq
    <storage>/__cluster/resources/policy/<name>/<digest>.yaml

Invariant: a payload is written before the ledger names it and never changes, so a server that read
the ledger finds every text it names, and one that was tampered with does not fit its name.
"""

from omnigraph.cluster.diagnostics import ClusterRefusal
from omnigraph.cluster.ledger import FOLDER
from omnigraph.cluster.resources import digest_of_content, kind_of
from omnigraph.errors import StorageFailed
from omnigraph.storage.cluster_objects import ClusterObjects, step

RESOURCES = f"{FOLDER}/resources"
MISSING, MISMATCH, UNREADABLE = "payload_missing", "payload_mismatch", "payload_read_error"


def has_payload(address: str) -> bool:
    """Whether a resource has a text in the catalog."""
    return kind_of(address) in ("query", "policy")


def payload_path(address: str, digest: str) -> str:
    """Where the text of a query or a policy lies."""
    parts = address.split(".")
    ending = "gq" if parts[0] == "query" else "yaml"
    return f"{RESOURCES}/{'/'.join(parts)}/{digest}.{ending}"


def write_payload(objects: ClusterObjects, address: str, digest: str, content: bytes) -> None:
    """Keep the text of a resource."""
    step("cluster.payload_before")
    path = payload_path(address, digest)
    try:
        objects.keep(path, content)
    except StorageFailed as cause:
        text = f"cannot write {objects.join(path)}: {cause}"
        raise ClusterRefusal("resource_payload_write_error", address, text) from None
    step("cluster.payload_written")


def read_payload(objects: ClusterObjects, address: str, digest: str) -> bytes:
    """The text of a resource; `ClusterRefusal` if it is missing or not what it was."""
    path = payload_path(address, digest)
    try:
        content = objects.read(path)
    except StorageFailed as cause:
        raise ClusterRefusal("catalog_payload_read_error", address, str(cause)) from None
    if content is None:
        text = f"{objects.join(path)} is gone: refresh and apply write it again"
        raise ClusterRefusal("catalog_payload_missing", address, text)
    if digest_of_content(content) != digest:
        text = f"{objects.join(path)} is not what was applied: refresh and apply write it again"
        raise ClusterRefusal("catalog_payload_mismatch", address, text)
    return content


CONDITIONS = {
    "catalog_payload_missing": MISSING,
    "catalog_payload_mismatch": MISMATCH,
    "catalog_payload_read_error": UNREADABLE,
}
"""Conditions of a status by the code of the diagnostic."""
