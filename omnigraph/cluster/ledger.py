"""Ledger of a cluster: what was applied, as one JSON object that is replaced by compare-and-swap.

    <storage>/__cluster/state.json

Invariant: a ledger is replaced only by one that was made from it, and its revision grows by one
each time. Members that nobody knows are refused, so that an older program drops nothing.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from omnigraph.cluster.diagnostics import ClusterRefusal
from omnigraph.cluster.resources import graph_digest, is_address, query_address, schema_address
from omnigraph.errors import StorageFailed
from omnigraph.storage.cluster_objects import ClusterObjects

FOLDER = "__cluster"
STATE = f"{FOLDER}/state.json"
STATUSES = ("pending", "planned", "applying", "applied", "drifted", "blocked", "error")
_VERSION = 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TOP = (
    "version",
    "state_revision",
    "applied_revision",
    "resource_statuses",
    "approval_records",
    "recovery_records",
    "observations",
)
_METADATA = ("embedding_provider", "external_blob_policy", "applies_to", "embedding_profile")
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An applied resource: its digest, and what is kept beside it."""

    digest: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> Document:
        return {"digest": self.digest, **self.metadata}


@dataclass(slots=True)
class Ledger:
    """What was applied, and what is known of it."""

    revision: int = 0
    config_digest: str | None = None
    resources: dict[str, LedgerEntry] = field(default_factory=dict)
    statuses: dict[str, Document] = field(default_factory=dict)
    approvals: dict[str, Document] = field(default_factory=dict)
    recoveries: dict[str, Document] = field(default_factory=dict)
    observations: dict[str, Document] = field(default_factory=dict)

    @property
    def digests(self) -> dict[str, str]:
        return {address: entry.digest for address, entry in sorted(self.resources.items())}

    def set_status(self, address: str, status: str, message: str, *conditions: str) -> None:
        """Say how a resource stands."""
        assert status in STATUSES
        self.statuses[address] = {
            "status": status,
            "conditions": list(conditions),
            "message": message,
        }

    def forget(self, address: str) -> None:
        """Drop a resource and all that is known of it."""
        for entries in (self.resources, self.statuses, self.observations):
            entries.pop(address, None)

    def queries(self, graph: str) -> dict[str, str]:
        """The digests of a graph's queries by address."""
        prefix = query_address(graph, "")
        return {a: e.digest for a, e in sorted(self.resources.items()) if a.startswith(prefix)}

    def graph_entry(self, graph: str, metadata: Mapping[str, Any]) -> LedgerEntry:
        """The entry of a graph that follows from the applied parts."""
        schema = self.resources.get(schema_address(graph))
        digest = graph_digest(
            None if schema is None else schema.digest,
            self.queries(graph),
            metadata.get("embedding_provider"),
            metadata.get("external_blob_policy"),
        )
        return LedgerEntry(digest, dict(metadata))

    def to_json(self) -> Document:
        applied: Document = {}
        if self.config_digest is not None:
            applied["config_digest"] = self.config_digest
        applied["resources"] = {a: e.to_json() for a, e in sorted(self.resources.items())}
        return {
            "version": _VERSION,
            "state_revision": self.revision,
            "applied_revision": applied,
            "resource_statuses": dict(sorted(self.statuses.items())),
            "approval_records": self.approvals,
            "recovery_records": self.recoveries,
            "observations": dict(sorted(self.observations.items())),
        }


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """The ledger as it was read: its bytes, for the swap, and what they say."""

    data: bytes | None
    ledger: Ledger

    @property
    def cas(self) -> str | None:
        """What names these bytes: `sha256:<hex>`."""
        return None if self.data is None else f"sha256:{hashlib.sha256(self.data).hexdigest()}"


def read_ledger(objects: ClusterObjects) -> LedgerSnapshot:
    """The ledger of a storage root, empty when there is none yet."""
    path = objects.join(STATE)
    try:
        data = objects.read(STATE)
    except StorageFailed as cause:
        raise ClusterRefusal("state_read_error", path, str(cause)) from None
    if data is None:
        return LedgerSnapshot(None, Ledger())
    return LedgerSnapshot(data, decoded_ledger(data, path))


def write_ledger(objects: ClusterObjects, seen: LedgerSnapshot, ledger: Ledger) -> LedgerSnapshot:
    """Replace the ledger that was read by the next revision of it."""
    ledger.revision = seen.ledger.revision + 1
    path = objects.join(STATE)
    data = orjson.dumps(ledger.to_json(), option=orjson.OPT_INDENT_2)
    try:
        is_swapped = objects.swap(STATE, data, seen.data)
    except StorageFailed as cause:
        raise ClusterRefusal("state_write_error", path, str(cause)) from None
    if not is_swapped:
        text = "another command replaced it meanwhile: run this one again"
        raise ClusterRefusal("state_cas_mismatch", path, text)
    return LedgerSnapshot(data, ledger)


def decoded_ledger(data: bytes, path: str) -> Ledger:
    """A ledger from its bytes, or `ClusterRefusal`."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as cause:
        raise ClusterRefusal("invalid_state_json", path, f"it is not JSON: {cause}") from None
    reader = _LedgerReader(path)
    return reader.ledger(reader.mapping(document, "the document"))


@dataclass(frozen=True, slots=True)
class _LedgerReader:
    """Walks a document and knows which file to blame."""

    path: str

    def fault(self, message: str) -> ClusterRefusal:
        return ClusterRefusal("invalid_state_json", self.path, message)

    def ledger(self, top: Document) -> Ledger:
        version = top.get("version")
        if type(version) is not int:
            raise self.fault("it has no version")
        if version != _VERSION:
            text = f"version {version} is of another program; this one reads {_VERSION}"
            raise ClusterRefusal("unsupported_state_version", self.path, text)
        self.only(top, _TOP, "the document")
        revision = top.get("state_revision")
        if type(revision) is not int or revision < 0:
            raise self.fault("state_revision is no whole number")
        applied = self.mapping(top.get("applied_revision"), "applied_revision")
        self.only(applied, ("config_digest", "resources"), "applied_revision")
        config_digest = applied.get("config_digest")
        if config_digest is not None and not isinstance(config_digest, str):
            raise self.fault("config_digest is no text")
        resources = self.mapping(applied.get("resources"), "resources")
        return Ledger(
            revision,
            config_digest,
            {address: self.entry(address, each) for address, each in resources.items()},
            self.statuses(top),
            self.documents(top, "approval_records"),
            self.documents(top, "recovery_records"),
            self.documents(top, "observations"),
        )

    def entry(self, address: str, value: Any) -> LedgerEntry:
        if not is_address(address):
            raise self.fault(f"'{address[:80]}' is no address of a resource")
        document = self.mapping(value, address)
        self.only(document, ("digest", *_METADATA), address)
        digest = document.pop("digest", None)
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise self.fault(f"the digest of {address} is not SHA-256")
        self.require_metadata(address, document)
        return LedgerEntry(digest, document)

    def require_metadata(self, address: str, metadata: Document) -> None:
        provider = metadata.get("embedding_provider", "")
        applies_to = metadata.get("applies_to", [])
        profile = metadata.get("embedding_profile", {})
        blobs = metadata.get("external_blob_policy", {})
        is_plain = (
            isinstance(provider, str)
            and isinstance(applies_to, list)
            and all(isinstance(each, str) for each in applies_to)
            and isinstance(profile, dict)
            and all(isinstance(each, str) for each in profile.values())
            and isinstance(blobs, dict)
            and isinstance(blobs.get("bases", []), list)
            and all(
                isinstance(b, dict) and {type(b.get("uri")), type(b.get("scope"))} == {str}
                for b in blobs.get("bases", [])
            )
        )
        if not is_plain:
            raise self.fault(f"what is kept of {address} is not as expected")

    def statuses(self, top: Document) -> dict[str, Document]:
        statuses = self.documents(top, "resource_statuses")
        for address, status in statuses.items():
            self.only(status, ("status", "conditions", "message"), f"the status of {address}")
            if status.get("status") not in STATUSES:
                raise self.fault(f"the status of {address} is none of {', '.join(STATUSES)}")
        return statuses

    def documents(self, top: Document, name: str) -> dict[str, Document]:
        entries = self.mapping(top.get(name, {}), name)
        return {key: self.mapping(each, f"{name}.{key}") for key, each in entries.items()}

    def mapping(self, value: Any, what: str) -> Document:
        if not isinstance(value, dict):
            raise self.fault(f"{what} is no object")
        return value

    def only(self, document: Document, known: Collection[str], what: str) -> None:
        for name in document:
            if name not in known:
                raise self.fault(f"{what} has the unknown member '{name[:80]}'")
