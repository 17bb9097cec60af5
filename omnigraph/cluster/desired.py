"""Desired resources of a cluster: the declared files read, checked and digested.

Invariant: a file is read once, and its digest is that of the bytes that were checked. Resources and
dependencies are sorted by address.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph.catalog.accept import accept
from omnigraph.catalog.model import Catalog
from omnigraph.cluster.declared import (
    ClusterConfig,
    DeclaredGraph,
    DeclaredPolicy,
    NamedQueries,
    QueryFiles,
    QueryFolder,
    read_config,
)
from omnigraph.cluster.diagnostics import ClusterRefusal, Diagnostics
from omnigraph.cluster.policy_binding import policy_fault
from omnigraph.cluster.resources import (
    CLUSTER_SCOPE,
    Dependency,
    digest_of_content,
    digest_of_description,
    graph_address,
    graph_digest,
    kind_of,
    policy_address,
    query_address,
    schema_address,
)
from omnigraph.errors import CATALOG_CODES, ParseError, TypeCheckError
from omnigraph.language.query import ast
from omnigraph.language.query.parser import parse_queries
from omnigraph.plan.compile import plan_query


@dataclass(frozen=True, slots=True)
class DesiredResource:
    """One resource as it is declared. `path` is its file, below the folder of the configuration;
    `metadata` is what the ledger keeps of it beside its digest."""

    address: str
    digest: str
    path: str | None = None
    content: bytes = field(default=b"", repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, str]:
        document = {"address": self.address, "kind": kind_of(self.address), "digest": self.digest}
        return document if self.path is None else {**document, "path": self.path}


@dataclass(frozen=True, slots=True)
class Desired:
    """Everything that a configuration asks for."""

    config: ClusterConfig
    resources: Mapping[str, DesiredResource]
    dependencies: tuple[Dependency, ...]

    @property
    def digests(self) -> dict[str, str]:
        return {address: resource.digest for address, resource in self.resources.items()}

    @property
    def config_digest(self) -> str:
        """The digest of all that an apply would record: resources and what is kept beside them."""
        return digest_of_description(
            {
                address: {"digest": each.digest, **each.metadata}
                for address, each in self.resources.items()
            }
        )

    def current_content(self, address: str) -> bytes:
        """The file of a resource as it is now, if it is still what was checked."""
        resource = self.resources[address]
        assert resource.path is not None
        try:
            content = (self.config.folder / resource.path).read_bytes()
        except OSError as cause:
            text = f"{resource.path} could be read a moment ago: {cause.strerror or cause}"
            raise ClusterRefusal("resource_content_changed", address, text) from None
        if digest_of_content(content) != resource.digest:
            text = f"{resource.path} was changed while it was applied: apply again"
            raise ClusterRefusal("resource_content_changed", address, text)
        return content


def read_desired(folder: Path, findings: Diagnostics) -> tuple[ClusterConfig | None, Desired]:
    """The declarations of a folder, and the resources they ask for as far as they can be used."""
    config = read_config(folder, findings)
    if config is None:
        return None, Desired(ClusterConfig(folder, str(folder)), {}, ())
    resources: dict[str, DesiredResource] = {}
    dependencies: list[Dependency] = []
    for address, profile in config.providers.items():
        digest = digest_of_description(profile)
        metadata = {"embedding_profile": profile}
        resources[address] = DesiredResource(address, digest, metadata=metadata)
    for graph in config.graphs.values():
        for resource in _GraphFiles(config, graph, findings).resources():
            resources[resource.address] = resource
        dependencies += _graph_dependencies(graph, resources)
    for policy in config.policies.values():
        read = _policy(config, policy, findings)
        if read is not None:
            resources[read.address] = read
            dependencies += [
                Dependency(read.address, scope)
                for scope in policy.applies_to
                if scope != CLUSTER_SCOPE
            ]
    ordered = sorted(dependencies, key=lambda each: (each.source, each.target))
    return config, Desired(config, dict(sorted(resources.items())), tuple(ordered))


def _graph_dependencies(
    graph: DeclaredGraph, resources: Mapping[str, DesiredResource]
) -> Iterator[Dependency]:
    address, schema = graph_address(graph.id), schema_address(graph.id)
    if schema in resources:
        yield Dependency(schema, address)
    for query in resources:
        if query.startswith(query_address(graph.id, "")):
            yield Dependency(query, address)
            yield Dependency(query, schema)
    if graph.provider is not None:
        yield Dependency(address, graph.provider)


@dataclass(slots=True)
class _GraphFiles:
    """Reads the files of one graph and checks its queries against its schema."""

    config: ClusterConfig
    graph: DeclaredGraph
    findings: Diagnostics

    def resources(self) -> list[DesiredResource]:
        """The schema, the queries and the graph made of them."""
        schema, catalog = self._schema()
        queries = self._queries(catalog)
        digests = {each.address: each.digest for each in queries}
        digest = graph_digest(
            None if schema is None else schema.digest,
            digests,
            self.graph.provider,
            self.graph.blob_policy,
        )
        metadata: dict[str, Any] = {}
        if self.graph.provider is not None:
            metadata["embedding_provider"] = self.graph.provider
        if self.graph.blob_policy is not None:
            metadata["external_blob_policy"] = self.graph.blob_policy
        graph = DesiredResource(graph_address(self.graph.id), digest, metadata=metadata)
        return [graph, *([] if schema is None else [schema]), *queries]

    def _schema(self) -> tuple[DesiredResource | None, Catalog | None]:
        file, path = self.graph.schema, f"{self.graph.path}.schema"
        if file is None:
            return None, None
        content = _content(self.config.folder / file)
        if isinstance(content, str):
            self.findings.add("schema_file_missing", path, f"{file}: {content}")
            return None, None
        digest = digest_of_content(content)
        resource = DesiredResource(schema_address(self.graph.id), digest, file, content)
        try:
            return resource, accept(content.decode())
        except UnicodeDecodeError:
            self.findings.add("schema_parse_error", path, f"{file} is not UTF-8")
        except ParseError as cause:
            is_whole = cause.code in CATALOG_CODES
            code = "schema_catalog_error" if is_whole else "schema_parse_error"
            self.findings.add(code, path, f"{file}: {_said(cause)}")
        return resource, None

    def _queries(self, catalog: Catalog | None) -> list[DesiredResource]:
        queries: dict[str, DesiredResource] = {}
        parsed: dict[str, tuple[bytes, ast.QueryFile] | None] = {}
        for file, path, chosen in self._files():
            if file not in parsed:
                parsed[file] = self._parsed(file, path)
            read = parsed[file]
            if read is None:
                continue
            content, query_file = read
            for query in self._chosen(query_file, file, path, chosen):
                self._add(queries, query, query_file, file, content, path, catalog)
        if queries and catalog is None:
            text = "the schema cannot be used, so queries were not checked against it"
            self.findings.add("query_typecheck_skipped", f"{self.graph.path}.queries", text)
        return list(queries.values())

    def _files(self) -> Iterator[tuple[str, str, str | None]]:
        """Each file with its path in the configuration and the one query that is meant, if any."""
        path = f"{self.graph.path}.queries"
        match self.graph.queries:
            case QueryFolder(folder=folder):
                for file in self._folder(folder, path):
                    yield file, path, None
            case QueryFiles(files=files):
                for number, file in enumerate(dict.fromkeys(files)):
                    yield file, f"{path}[{number}]", None
            case NamedQueries(files=named):
                for name, file in named.items():
                    yield file, f"{path}.{name}", name

    def _folder(self, folder: str, path: str) -> list[str]:
        try:
            entries = sorted((self.config.folder / folder).iterdir())
            names = [each.name for each in entries if each.suffix == ".gq" and each.is_file()]
        except (OSError, ValueError) as cause:
            reason = getattr(cause, "strerror", None) or str(cause)
            self.findings.add("query_dir_unreadable", path, f"{folder}: {reason}")
            return []
        if not names:
            self.findings.add("query_dir_empty", path, f"there is no .gq file in {folder}")
        return [f"{folder.rstrip('/')}/{name}" for name in names]

    def _parsed(self, file: str, path: str) -> tuple[bytes, ast.QueryFile] | None:
        content = _content(self.config.folder / file)
        if isinstance(content, str):
            self.findings.add("query_file_missing", path, f"{file}: {content}")
            return None
        try:
            return content, parse_queries(content.decode())
        except UnicodeDecodeError:
            self.findings.add("query_parse_error", path, f"{file} is not UTF-8")
        except ParseError as cause:
            self.findings.add("query_parse_error", path, f"{file}: {_said(cause)}")
        return None

    def _chosen(
        self, query_file: ast.QueryFile, file: str, path: str, chosen: str | None
    ) -> list[ast.Query]:
        if chosen is None:
            return list(query_file.queries)
        queries = [each for each in query_file.queries if each.name.text == chosen]
        if not queries:
            known = ", ".join(each.name.text for each in query_file.queries) or "none"
            text = f"{file} declares no query '{chosen}'; it has {known}"
            self.findings.add("query_key_mismatch", path, text)
        return queries

    def _add(
        self,
        queries: dict[str, DesiredResource],
        query: ast.Query,
        query_file: ast.QueryFile,
        file: str,
        content: bytes,
        path: str,
        catalog: Catalog | None,
    ) -> None:
        name = query.name.text
        address = query_address(self.graph.id, name)
        if address in queries:
            text = f"query '{name}' is declared in {queries[address].path} and in {file}"
            self.findings.add("duplicate_query_name", path, text)
            return
        queries[address] = DesiredResource(address, digest_of_content(content), file, content)
        for parameter in query.parameters:
            if parameter.type.is_vector:
                text = f"query '{name}': agents cannot supply the vector ${parameter.name}"
                self.findings.add("vector_parameter", path, text)
        if catalog is not None:
            try:
                plan_query(query, catalog, query_file.source)
            except TypeCheckError as cause:
                text = f"{file}: query '{name}': {_said(cause)}"
                self.findings.add("query_typecheck_error", path, text)


def _policy(
    config: ClusterConfig, policy: DeclaredPolicy, findings: Diagnostics
) -> DesiredResource | None:
    if policy.file is None:
        return None
    content = _content(config.folder / policy.file)
    path = f"{policy.path}.file"
    if isinstance(content, str):
        findings.add("policy_file_missing", path, f"{policy.file}: {content}")
        return None
    kind = "server" if policy.applies_to == (CLUSTER_SCOPE,) else "graph"
    fault = policy_fault(content, kind) if policy.applies_to else None
    if fault is not None:
        findings.add("policy_invalid", path, f"{policy.file}: {fault}")
    metadata = {"applies_to": list(policy.applies_to)}
    address = policy_address(policy.name)
    return DesiredResource(address, digest_of_content(content), policy.file, content, metadata)


def _content(file: Path) -> bytes | str:
    """The bytes of a file, or why it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as cause:
        return cause.strerror or str(cause)
    except ValueError as cause:
        return str(cause)


def _said(cause: ParseError | TypeCheckError) -> str:
    return f"{cause.headline} (line {cause.line}, column {cause.column})"
