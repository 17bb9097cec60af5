"""Applied state of a cluster, as a server reads it once at its start.

Invariant: nothing is read but the ledger and the payloads it names. A problem of the cluster is
`ClusterRefusal`; a problem of one graph is the reason why that graph is not served.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from omnigraph.cluster.blob_policy import server_bases
from omnigraph.cluster.declared import CONFIG_FILE, read_config, storage_fault
from omnigraph.cluster.diagnostics import ClusterRefusal, Diagnostics
from omnigraph.cluster.graph_intents import read_intents
from omnigraph.cluster.ledger import STATE, Ledger, LedgerEntry, read_ledger
from omnigraph.cluster.payloads import read_payload
from omnigraph.cluster.resources import (
    CLUSTER_SCOPE,
    digest_of_description,
    graph_address,
    graph_of,
    graph_path,
    kind_of,
    query_address,
    schema_address,
)
from omnigraph.errors import NotFound
from omnigraph.storage.cluster_objects import ClusterObjects


@dataclass(frozen=True, slots=True)
class ServedGraphState:
    """One graph as it was applied: its address, queries, provider, blob bases and policy."""

    uri: str
    queries: Mapping[str, str] = field(default_factory=dict)  # texts by name
    profile: Mapping[str, str] | None = None
    blob_bases: tuple[str, ...] = ()
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class ServedState:
    """A cluster as it was applied. `quarantined` are the graphs that cannot be served, and why."""

    root: str
    config_digest: str | None
    graphs: Mapping[str, ServedGraphState]
    quarantined: Mapping[str, str]
    server_policy: str | None = None


def cluster_root(cluster: str, options: dict[str, str] | None = None) -> ClusterObjects:
    """The storage of a cluster that is named by the folder of its `cluster.yaml`, or directly."""
    folder = Path(cluster)
    if "://" not in cluster and (folder / CONFIG_FILE).exists():
        findings = Diagnostics()
        config = read_config(folder, findings)
        if config is None:
            first = next(iter(findings))
            raise ClusterRefusal(first.code, first.path, first.message)
        return ClusterObjects(config.storage, options)
    fault = storage_fault(cluster)
    if fault is not None:
        raise ClusterRefusal("invalid_storage_root", cluster, fault)
    return ClusterObjects(cluster, options)


def applied_ledger(objects: ClusterObjects) -> Ledger:
    """The ledger of a cluster that was applied."""
    seen = read_ledger(objects)
    if seen.data is None:
        text = "there is no ledger: run omnigraph cluster import and apply first"
        raise ClusterRefusal("cluster_state_missing", objects.join(STATE), text)
    return seen.ledger


def graph_of_cluster(cluster: str, graph: str | None) -> str:
    """The address of a graph of a cluster; without a name its only one."""
    objects = cluster_root(cluster)
    ledger = applied_ledger(objects)
    known = [str(graph_of(each)) for each in ledger.resources if kind_of(each) == "graph"]
    if graph is None and len(known) == 1:
        graph = known[0]
    if graph is None or graph not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise NotFound("graph", graph or "", f"pass --graph; the cluster has: {listed}")
    return objects.join(graph_path(graph))


def query_texts(objects: ClusterObjects, ledger: Ledger, graph: str) -> dict[str, str]:
    """The texts of a graph's applied queries by name."""
    prefix = query_address(graph, "")
    return {
        address.removeprefix(prefix): _payload(objects, address, digest)
        for address, digest in ledger.queries(graph).items()
    }


def applied_policy(objects: ClusterObjects, ledger: Ledger, scope: str) -> tuple[str, str]:
    """The name and the text of the policy that is applied to a graph's address, or `cluster`."""
    for address, entry in ledger.resources.items():
        if kind_of(address) == "policy" and scope in entry.metadata.get("applies_to", ()):
            return address.partition(".")[2], _payload(objects, address, entry.digest)
    raise NotFound("policy", scope, "bind one with applies_to, then omnigraph cluster apply")


def served_state(cluster: str, options: dict[str, str] | None = None) -> ServedState:
    """What a cluster has applied, checked as far as it can be without opening a graph."""
    objects = cluster_root(cluster, options)
    ledger = applied_ledger(objects)
    graphs = _graphs(ledger)
    if not graphs:
        text = "no graph was applied: declare one and apply"
        raise ClusterRefusal("cluster_empty", objects.join(STATE), text)
    policies = _policies(objects, ledger)
    waiting = {intent.graph: intent for intent in read_intents(objects)}
    served: dict[str, ServedGraphState] = {}
    quarantined: dict[str, str] = {}
    for graph in graphs:
        try:
            if graph in waiting:
                text = f"{waiting[graph].operation} was cut off: apply settles it"
                raise ClusterRefusal("cluster_recovery_pending", graph_address(graph), text)
            profile, bases = _checked_graph(ledger, graph)
        except ClusterRefusal as refusal:
            quarantined[graph] = f"{refusal.code}: {refusal.message}"
            continue
        served[graph] = ServedGraphState(
            objects.join(graph_path(graph)),
            query_texts(objects, ledger, graph),
            profile,
            bases,
            policies.get(graph_address(graph)),
        )
    if not served:
        first = next(iter(quarantined.items()))
        text = f"no graph can be served; {first[0]}: {first[1]}"
        raise ClusterRefusal("cluster_no_healthy_graphs", objects.uri, text)
    server_policy = policies.get(CLUSTER_SCOPE)
    return ServedState(objects.uri, ledger.config_digest, served, quarantined, server_policy)


def _graphs(ledger: Ledger) -> list[str]:
    """Every graph that the ledger has a part of."""
    return sorted({graph for each in ledger.resources if (graph := graph_of(each)) is not None})


def _policies(objects: ClusterObjects, ledger: Ledger) -> dict[str, str]:
    """The texts of policies by the scope they are bound to."""
    by_scope: dict[str, str] = {}
    for address, status in ledger.statuses.items():
        is_lost = kind_of(address) == "policy" and address not in ledger.resources
        if is_lost and status["status"] == "drifted":
            # A graph must not be served without the policy it was applied with.
            text = "its payload is lost: apply writes it again"
            raise ClusterRefusal("catalog_payload_digest_mismatch", address, text)
    for address, entry in ledger.resources.items():
        if kind_of(address) != "policy":
            continue
        scopes = entry.metadata.get("applies_to")
        if not scopes:
            text = "the ledger binds it to nothing: apply binds it again"
            raise ClusterRefusal("policy_bindings_missing", address, text)
        text = _payload(objects, address, entry.digest)
        by_scope.update(dict.fromkeys(scopes, text))
    return by_scope


def _payload(objects: ClusterObjects, address: str, digest: str) -> str:
    try:
        return read_payload(objects, address, digest).decode()
    except ClusterRefusal as refusal:
        if refusal.code != "catalog_payload_mismatch":
            raise
        text = refusal.message
        raise ClusterRefusal("catalog_payload_digest_mismatch", address, text) from None


def _checked_graph(ledger: Ledger, graph: str) -> tuple[Mapping[str, str] | None, tuple[str, ...]]:
    """The provider's profile and the blob bases of a graph, or `ClusterRefusal`."""
    address, schema = graph_address(graph), schema_address(graph)
    entry = ledger.resources.get(address)
    if entry is None or schema not in ledger.resources:
        raise ClusterRefusal("graph_not_applied", address, "it was not applied as a whole: apply")
    profile = _profile(ledger, entry, address)
    if ledger.graph_entry(graph, entry.metadata).digest != entry.digest:
        text = "what the ledger says of it does not fit its digest: apply again"
        raise ClusterRefusal("external_blob_policy_digest_mismatch", address, text)
    return profile, server_bases(entry.metadata.get("external_blob_policy"))


def _profile(ledger: Ledger, entry: LedgerEntry, address: str) -> Mapping[str, str] | None:
    name = entry.metadata.get("embedding_provider")
    if name is None:
        return None
    provider = ledger.resources.get(name)
    if provider is None:
        raise ClusterRefusal("embedding_provider_missing", address, f"{name} was not applied")
    profile: Mapping[str, str] | None = provider.metadata.get("embedding_profile")
    if profile is None:
        text = f"the ledger has no profile of {name}: apply again"
        raise ClusterRefusal("embedding_provider_profile_missing", address, text)
    if digest_of_description(profile) != provider.digest:
        text = f"the profile of {name} does not fit its digest: apply again"
        raise ClusterRefusal("embedding_provider_digest_mismatch", address, text)
    return profile


def enclosing_cluster(uri: str) -> str | None:
    """The cluster whose storage an address lies in: its root, or None."""
    root, slash, rest = uri.rstrip("/").rpartition("/graphs/")
    if not slash or "/" in rest or not root:
        return None
    return root if ClusterObjects(root).read(STATE) is not None else None
