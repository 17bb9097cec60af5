"""Declarations of `cluster.yaml`: graphs, queries, policies, embedding providers, storage.

Invariant: a declaration that exists is well formed and refers only to what is declared; whatever is
wrong is a diagnostic with its path, and all of them are found in one pass.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from omnigraph.cluster.blob_policy import read_blob_policy
from omnigraph.cluster.diagnostics import Diagnostics
from omnigraph.cluster.embedding_profile import read_profile
from omnigraph.cluster.resources import (
    CLUSTER_SCOPE,
    PROVIDER_PREFIX,
    RESOURCE_ID,
    graph_address,
    is_address,
    provider_address,
)
from omnigraph.cluster.yaml_mapping import YamlMapping
from omnigraph.yaml_document import DuplicateKey, YamlFault, read_yaml

CONFIG_FILE = "cluster.yaml"
_TOP = ("version", "metadata", "storage", "state", "providers", "graphs", "policies")
_RESERVED = ("apply", "env_file", "pipelines", "embeddings", "ui", "aliases", "bindings")
_GRAPH = ("schema", "queries", "embedding_provider", "external_blobs")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_BARE_REFERENCE = re.compile(r"(?<=:)([ \t]+)(\$\{\w+\})(?=[ \t]*[,}\r\n])")


@dataclass(frozen=True, slots=True)
class QueryFolder:
    """Every declaration of every `*.gq` of a folder."""

    folder: str


@dataclass(frozen=True, slots=True)
class QueryFiles:
    """Every declaration of some files."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamedQueries:
    """Chosen declarations: files by the name of a query in them."""

    files: Mapping[str, str]


DeclaredQueries = QueryFolder | QueryFiles | NamedQueries


@dataclass(frozen=True, slots=True)
class DeclaredGraph:
    """A graph: its schema file, stored queries, provider and the bases of external blobs."""

    id: str
    path: str
    schema: str | None
    queries: DeclaredQueries
    provider: str | None
    blob_policy: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class DeclaredPolicy:
    """A policy file and the scopes it is bound to: addresses of graphs, or `cluster`."""

    name: str
    path: str
    file: str | None
    applies_to: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A whole `cluster.yaml`."""

    folder: Path
    storage: str
    takes_lock: bool = True
    name: str | None = None
    providers: Mapping[str, dict[str, str]] = field(default_factory=dict)  # profiles by address
    graphs: Mapping[str, DeclaredGraph] = field(default_factory=dict)
    policies: Mapping[str, DeclaredPolicy] = field(default_factory=dict)


def read_config(folder: Path, findings: Diagnostics) -> ClusterConfig | None:
    """The declarations of a folder; None when there is nothing to go on with, not even storage."""
    if not folder.is_dir():
        findings.add("config_dir_not_found", str(folder), "there is no such folder")
        return None
    top = _document(folder / CONFIG_FILE, findings)
    if top is None:
        return None
    version = top.values.get("version")
    if isinstance(version, bool) or version != 1:
        top.fault("version", "it must be 1", "unsupported_cluster_config_version")
    for key in _RESERVED:
        if key in top.values:
            top.fault(key, "it is reserved and does nothing yet: remove it", "future_phase_field")
    top.only((*_TOP, *_RESERVED))
    storage = _storage(top, folder)
    locks = _state(top)
    providers = _providers(top)
    graphs = {
        name: _graph(name, declared, providers) for name, declared in top.named("graphs").items()
    }
    policies = _policies(top, graphs)
    name = _name(top)
    if storage is None:
        return None
    return ClusterConfig(folder, storage, locks, name, providers, graphs, policies)


def _document(file: Path, findings: Diagnostics) -> YamlMapping | None:
    try:
        text = file.read_bytes().decode()
    except OSError as cause:
        reason = cause.strerror or str(cause)
        findings.add("cluster_config_read_error", CONFIG_FILE, f"cannot read {file}: {reason}")
        return None
    except UnicodeDecodeError:
        findings.add("invalid_cluster_yaml", CONFIG_FILE, "it is not UTF-8")
        return None
    try:
        document = _values(text)
    except DuplicateKey as cause:
        findings.add("duplicate_yaml_key", CONFIG_FILE, str(cause))
        return None
    except YamlFault as cause:
        findings.add("invalid_cluster_yaml", CONFIG_FILE, str(cause))
        return None
    if not isinstance(document, Mapping):
        findings.add("invalid_cluster_yaml", CONFIG_FILE, "it is no mapping")
        return None
    return YamlMapping(document, "", findings)


def _values(text: str) -> Any:
    """The document, in which `{ api_key: ${NAME} }` is a text: in YAML the brace would end it."""
    try:
        return read_yaml(text, aliases=False)
    except DuplicateKey:
        raise
    except YamlFault:
        quoted = _BARE_REFERENCE.sub(r'\1"\2"', text)
        if quoted == text:
            raise
        return read_yaml(quoted, aliases=False)


def _name(top: YamlMapping) -> str | None:
    metadata = top.mapping("metadata")
    metadata.only(("name",))
    value = metadata.values.get("name")
    if "name" in metadata.values and (not isinstance(value, str) or not value.strip()):
        metadata.fault("name", "it is empty: give a name or leave it out", "empty_metadata_name")
        return None
    return value


def _state(top: YamlMapping) -> bool:
    state = top.mapping("state")
    state.only(("backend", "lock"))
    if state.values.get("backend", "cluster") != "cluster":
        state.fault("backend", "it must be `cluster`", "unsupported_state_backend")
    return state.flag("lock", True)


def _storage(top: YamlMapping, folder: Path) -> str | None:
    """The storage root: the folder itself unless another one is given."""
    value = top.values.get("storage")
    if value is None:
        return str(folder.absolute())
    fault = storage_fault(value)
    if fault is not None:
        top.fault("storage", fault, "invalid_storage_root")
        return None
    text = str(value).strip()
    return text.rstrip("/") if "://" in text else str((folder / text).absolute())


def storage_fault(value: object) -> str | None:
    """Why a value is no storage root, or None."""
    if not isinstance(value, str) or not value.strip():
        return "it is no address: give s3://bucket/prefix, file:///folder or a folder"
    if not _SCHEME.match(value.strip()):
        return "there is a NUL in it" if "\0" in value else None
    try:
        parts = urlsplit(value.strip())
    except ValueError as cause:
        return f"it is no address: {cause}"
    if parts.scheme not in ("s3", "file"):
        return (
            f"'{parts.scheme}' is no storage: give s3://bucket/prefix, file:///folder or a folder"
        )
    if parts.query or parts.fragment or "@" in parts.netloc:
        return "it may hold no credentials, query or fragment"
    if (parts.scheme == "s3") != bool(parts.netloc):
        return "it names no bucket" if parts.scheme == "s3" else "write file:///folder"
    return None


def _providers(top: YamlMapping) -> dict[str, dict[str, str]]:
    providers = top.mapping("providers")
    providers.only(("embedding",))
    profiles = {}
    for name, declared in providers.named("embedding").items():
        profiles[provider_address(name)] = read_profile(declared)
    return profiles


def _graph(name: str, declared: YamlMapping, providers: Mapping[str, Any]) -> DeclaredGraph:
    if "streaming" in declared.values:
        declared.fault(
            "streaming",
            "streaming is no longer declared: remove it",
            "removed_streaming_declaration",
        )
    declared.only((*_GRAPH, "streaming"))
    return DeclaredGraph(
        name,
        declared.path,
        declared.text("schema", required=True),
        _queries(declared),
        _provider(declared, providers),
        read_blob_policy(declared),
    )


def _queries(declared: YamlMapping) -> DeclaredQueries:
    value = declared.values.get("queries")
    match value:
        case None:
            return QueryFiles(())
        case str() if value.strip():
            return QueryFolder(value)
        case list() if all(isinstance(each, str) and each.strip() for each in value):
            return QueryFiles(tuple(value))
        case Mapping():
            return _named_queries(declared)
        case _:
            declared.fault("queries", "it is a folder, a list of files, or names with their files")
            return QueryFiles(())


def _named_queries(declared: YamlMapping) -> DeclaredQueries:
    files = {}
    for name, chosen in declared.named("queries").items():
        chosen.only(("file",))
        file = chosen.text("file", required=True)
        if file is not None:
            files[name] = file
    return NamedQueries(files)


def _provider(declared: YamlMapping, providers: Mapping[str, Any]) -> str | None:
    text = declared.text("embedding_provider")
    if text is None:
        return None
    if "." in text and not text.startswith(PROVIDER_PREFIX):
        declared.fault(
            "embedding_provider",
            f"'{text}' is no embedding provider: write its name, or {PROVIDER_PREFIX}NAME",
            "wrong_kind_reference",
        )
        return None
    address = text if text.startswith(PROVIDER_PREFIX) else provider_address(text)
    if address not in providers:
        declared.fault(
            "embedding_provider",
            f"no provider '{text}' is declared",
            "dangling_embedding_provider_reference",
        )
        return None
    return address


def _policies(top: YamlMapping, graphs: Mapping[str, DeclaredGraph]) -> dict[str, DeclaredPolicy]:
    owners: dict[str, str] = {}
    policies = {}
    for name, declared in top.named("policies").items():
        declared.only(("file", "applies_to"))
        bindings = _bindings(declared, graphs)
        for scope in bindings:
            if scope in owners:
                declared.fault(
                    "applies_to",
                    f"'{scope}' has the policy '{owners[scope]}' already",
                    "duplicate_policy_binding",
                )
            owners.setdefault(scope, name)
        file = declared.text("file", required=True)
        policies[name] = DeclaredPolicy(name, declared.path, file, bindings)
    return policies


def _bindings(declared: YamlMapping, graphs: Mapping[str, DeclaredGraph]) -> tuple[str, ...]:
    """The scopes of a policy, sorted: addresses of graphs, or `cluster`."""
    given = declared.texts("applies_to")
    if not given:
        if not declared.has("applies_to") or given is not None:
            declared.fault(
                "applies_to",
                "name the graphs it is for, or `cluster`",
                "policy_missing_applies_to",
            )
        return ()
    bound = {scope for text in given if (scope := _scope(text, declared, graphs)) is not None}
    if CLUSTER_SCOPE in bound and len(bound) > 1:
        declared.fault(
            "applies_to",
            "a policy is for graphs or for the cluster, not for both",
            "policy_mixed_binding_kinds",
        )
    if len(given) != len(set(given)):
        declared.fault("applies_to", "a scope is named twice", "duplicate_policy_binding")
    return tuple(sorted(bound))


def _scope(text: str, declared: YamlMapping, graphs: Mapping[str, DeclaredGraph]) -> str | None:
    graph = text.removeprefix("graph.")
    # A graph may be called `cluster`: it is meant by `graph.cluster`.
    if text == CLUSTER_SCOPE:
        return CLUSTER_SCOPE
    if graph == text and is_address(text):
        declared.fault("applies_to", f"'{text}' is no graph", "wrong_kind_reference")
        return None
    if not RESOURCE_ID.fullmatch(graph) or graph not in graphs:
        declared.fault(
            "applies_to", f"no graph '{graph[:80]}' is declared", "dangling_graph_reference"
        )
        return None
    return graph_address(graph)
