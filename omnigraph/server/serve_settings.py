"""Server settings: graphs, address, limits, tokens and access, as one value for every worker.

Invariant: plain values that pass to a worker process as JSON. Whatever cannot be used is refused
when the settings are made, before a port is opened.
"""

import re
import secrets
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Self

import orjson

from omnigraph.errors import BadRequest

GRAPH_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
RESERVED_IDS = frozenset({"policies", "healthz", "openapi", "graphs"})
MIB = 1 << 20
_ADDRESS = re.compile(r"(?P<host>.*):(?P<port>[0-9]{1,5})")
_PORT_MAX = 65_535
SETTINGS_FILE = "settings.json"


class Access(StrEnum):
    """Who may do what, beside a policy."""

    OPEN = "open"  # nobody is asked who they are
    TRUSTED = "trusted"  # every known actor may do everything
    READ_ONLY = "read_only"  # every known actor may read (DefaultDeny)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of one worker process."""

    query_seconds: float = 30.0
    write_seconds: float = 60.0
    body_seconds: float = 60.0
    send_seconds: float = 60.0
    drain_seconds: float = 30.0
    header_seconds: float = 20.0
    read_threads: int = 8
    read_queue: int = 128
    write_threads: int = 8
    write_queue: int = 128
    streams: int = 8
    job_threads: int = 2
    job_queue: int = 32
    body_bytes: int = MIB
    load_body_bytes: int = 32 * MIB
    blob_body_bytes: int = 256 * MIB
    spooled_load_bytes: int = 1024 * MIB
    answer_bytes: int = 256 * MIB
    actor_inflight: int = 16
    actor_bytes: int = 4 << 30


@dataclass(frozen=True, slots=True)
class GraphExtras:
    """What a graph is served with: texts of stored queries by name, the profile of its embedding
    provider, the bases of external blobs, the text of its policy."""

    queries: dict[str, str] = field(default_factory=dict)
    profile: dict[str, str] | None = None
    blob_bases: tuple[str, ...] = ()
    policy: str | None = None
    checks: tuple[tuple[str, str], ...] = ()  # targets of merges, and the stored read for each
    folder: str | None = None  # where queries and checks are read from, again when they change


NO_EXTRAS = GraphExtras()


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """A whole server. `graphs` are addresses by id."""

    graphs: dict[str, str]
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    access: Access = Access.OPEN
    tokens_file: str | None = None
    tokens: dict[str, str] = field(default_factory=dict)  # digest to actor
    policies: dict[str, str] = field(default_factory=dict)  # graph id to file
    server_policy: str | None = None  # the file that grants graph_list
    oidc_trust: str | None = None  # the file of the issuers that are trusted
    limits: ServerLimits = ServerLimits()
    require_all_graphs: bool = False
    default_graph: str | None = None  # the one the flat routes are about
    log_json: bool = False
    allow_origin: str | None = None
    allowed_hosts: tuple[str, ...] = ()  # names that requests may be sent to, beside loopback
    tls_cert: str | None = None
    tls_key: str | None = None
    job_sources: tuple[str, ...] = ()  # bases that jobs may load from
    job_targets: tuple[str, ...] = ()  # bases that jobs may export to
    upkeep: str = ""  # a schedule: 03:20 optimize; sun 04:00 cleanup keep=100
    mcp: bool = True  # whether agents are served at /mcp
    run_folder: str = ""  # where workers leave their metrics
    cluster: str | None = None  # the storage of the cluster whose graphs these are
    extras: dict[str, GraphExtras] = field(default_factory=dict)  # by the id of the graph
    quarantined: dict[str, str] = field(default_factory=dict)  # graphs that are not served, and why
    cluster_policy: str | None = None  # the text of the policy that grants graph_list
    ui: bool = True
    coalesce_ms: int | None = None  # how long a mutation waits for others to share its commit
    # What cookies of the pages are signed with, in every worker.
    ui_secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    @property
    def has_policy(self) -> bool:
        """Whether a policy, of a file or of the cluster, decides anything."""
        applied = any(each.policy is not None for each in self.extras.values())
        return bool(self.policies or applied or self.server_policy or self.cluster_policy)

    def to_json(self) -> bytes:
        """The settings for a worker."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """The inverse of `to_json`."""
        facts: dict[str, Any] = orjson.loads(data)
        facts["limits"] = ServerLimits(**facts["limits"])
        facts["access"] = Access(facts["access"])
        for name in ("allowed_hosts", "job_sources", "job_targets"):
            facts[name] = tuple(facts[name])
        facts["extras"] = {
            graph_id: GraphExtras(**{**each, "checks": tuple(map(tuple, each["checks"]))})
            for graph_id, each in facts["extras"].items()
        }
        return cls(**facts)


def graph_id_of(uri: str) -> str:
    """The id under which a graph is served: the name of its folder without `.omni`."""
    name = PurePath(uri.rstrip("/")).name.removesuffix(".omni")
    require_graph_id(name, uri)
    return name


def require_graph_id(graph_id: str, uri: str) -> None:
    """Pass for an id that a path can name."""
    if not GRAPH_ID.fullmatch(graph_id) or graph_id in RESERVED_IDS:
        raise BadRequest(
            f"'{graph_id}' is no id for the graph {uri}",
            "pass --as-id with up to 64 letters, digits and hyphens",
        )


def graphs_by_id(uris: list[str], ids: list[str]) -> dict[str, str]:
    """Addresses by id; `ids` name the first of them, the others are named by their folders."""
    if not uris:
        raise BadRequest("there is no graph to serve", "pass its path, or --store URI")
    if len(ids) > len(uris):
        raise BadRequest("--as-id is given more often than a graph", "pass one for each graph")
    graphs: dict[str, str] = {}
    for number, uri in enumerate(uris):
        if uri.startswith(("http://", "https://")):
            raise BadRequest(f"'{uri}' is a server, not a graph", "pass a path or s3://")
        graph_id = ids[number] if number < len(ids) else graph_id_of(uri)
        require_graph_id(graph_id, uri)
        if graph_id in graphs:
            raise BadRequest(f"two graphs have the id '{graph_id}'", "pass --as-id for one of them")
        graphs[graph_id] = uri
    return graphs


def address_of(bind: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address stands in brackets."""
    address = _ADDRESS.fullmatch(bind)
    if address is None or int(address["port"]) > _PORT_MAX:
        raise BadRequest(f"'{bind}' is no address to listen on", "write host:port")
    return address["host"].strip("[]") or "127.0.0.1", int(address["port"])
