"""`omnigraph serve`, also called `omnigraph-server`: graphs over HTTP until a signal ends it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph import environment
from omnigraph.cli.config import config
from omnigraph.cli.options import exclusive
from omnigraph.cli.scope import scope
from omnigraph.cli.terminal import plain_errors, show
from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    from omnigraph.server.serve_settings import Access, ServerSettings
    from omnigraph.server.served_sets import ServedSet

_BIND = "127.0.0.1:8080"
_SAID = {
    "open": "everybody may read and write, nobody is asked who they are",
    "trusted": "every known actor may do everything (--trust-tokens)",
    "policy": "the policy decides what known actors may do",
    "read_only": "known actors may read and nothing else; --trust-tokens lets them write",
}


class LogForm(StrEnum):
    """Form of the lines on standard error."""

    TEXT = "text"
    JSON = "json"


def serve(
    graphs: Annotated[
        list[str] | None, typer.Argument(metavar="GRAPH...", help="Paths or s3:// addresses.")
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="URI", help="One graph, as an option.")
    ] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--as-id", metavar="ID", help="Id of a graph, else its folder's name."),
    ] = None,
    queries: Annotated[
        list[str] | None,
        typer.Option(
            "--queries", metavar="[ID=]DIR", help="Stored queries: a folder of .gq files."
        ),
    ] = None,
    default_graph: Annotated[
        str | None,
        typer.Option("--default-graph", metavar="ID", help="Graph of the flat, older routes."),
    ] = None,
    bind: Annotated[
        str | None, typer.Option("--bind", metavar="HOST:PORT", help=f"Default {_BIND}.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")] = 1,
    unauthenticated: Annotated[
        bool, typer.Option("--unauthenticated", help="Let everybody in, without tokens.")
    ] = False,
    tokens: Annotated[
        str | None,
        typer.Option(
            "--tokens", metavar="FILE", help='JSON {"actor": "token or sha256:…"}; SIGHUP re-reads.'
        ),
    ] = None,
    trust_tokens: Annotated[
        bool, typer.Option("--trust-tokens", help="Known actors may do everything.")
    ] = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy", metavar="[ID=]FILE", help="Who may do what, of one graph or of all."
        ),
    ] = None,
    oidc_trust: Annotated[
        str | None,
        typer.Option("--oidc-trust", metavar="FILE", help="Issuers whose tokens count (YAML)."),
    ] = None,
    require_all_graphs: Annotated[
        bool, typer.Option("--require-all-graphs", help="Start only if every graph opens.")
    ] = False,
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="FILE", help="Its private key (PEM).")
    ] = None,
    allow_origin: Annotated[
        str | None, typer.Option("--allow-origin", metavar="ORIGIN", help="One origin for CORS.")
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            metavar="NAME",
            help="Name that requests may be sent to, beside loopback; * allows every one.",
        ),
    ] = None,
    ui: Annotated[
        bool, typer.Option("--ui/--no-ui", help="Serve pages for people below /ui/.")
    ] = True,
    mcp: Annotated[
        bool | None,
        typer.Option("--mcp/--no-mcp", help="Agents at /mcp; if installed, by default."),
    ] = None,
    log: Annotated[LogForm, typer.Option("--log", help="Form of the log.")] = LogForm.TEXT,
    query_seconds: Annotated[
        float, typer.Option(min=0.001, help="Deadline of a read; a request may lower it.")
    ] = 30.0,
    drain_seconds: Annotated[
        float, typer.Option(min=0, help="Time to finish requests after SIGTERM.")
    ] = 30.0,
    read_threads: Annotated[int, typer.Option(min=1, help="Reads at once in a worker.")] = 8,
    write_threads: Annotated[int, typer.Option(min=1, help="Writes at once in a worker.")] = 8,
    queue: Annotated[int, typer.Option(min=0, help="Reads, and writes, that may wait.")] = 128,
    answer_bytes_max: Annotated[
        int, typer.Option(min=1, help="Bytes of an answer that is no stream.")
    ] = 256 << 20,
    load_bytes_max: Annotated[int, typer.Option(min=1, help="Bytes of a body of load/ndjson.")] = 1
    << 30,
    coalesce_ms: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=10_000,
            help="Mutations share commits, each waiting so long for others; 0 waits for none.",
        ),
    ] = None,
    upkeep: Annotated[
        str | None,
        typer.Option(
            "--upkeep",
            metavar="SCHEDULE",
            help="Such as '03:20 optimize; sun 04:00 cleanup keep=100'.",
        ),
    ] = None,
    job_source: Annotated[
        list[str] | None,
        typer.Option("--job-source", metavar="BASE", help="Jobs may load from below it."),
    ] = None,
    job_target: Annotated[
        list[str] | None,
        typer.Option("--job-target", metavar="BASE", help="Jobs may export to below it."),
    ] = None,
) -> None:
    """Serve graphs over HTTP until SIGTERM or SIGINT.

    Prints OMNIGRAPH_LISTEN_ADDR=host:port once it listens. Without tokens it starts only with
    --unauthenticated.
    """
    with plain_errors():
        exclusive(unauthenticated=unauthenticated, tokens=tokens)
        from omnigraph.extras import has_mcp, require_mcp, require_server

        require_server()
        if mcp:
            require_mcp()
        from omnigraph.server.host_check import checked_hosts
        from omnigraph.server.job_addresses import checked_base
        from omnigraph.server.policy_arguments import files_by_graph
        from omnigraph.server.serve_settings import (
            ServerLimits,
            ServerSettings,
            address_of,
        )
        from omnigraph.server.supervisor import supervise

        uris = [*(graphs or ()), *([store] if store is not None else ())]
        served = _served(uris, ids or [], queries or [])
        by_id = served.graphs
        if default_graph is not None and default_graph not in by_id:
            raise BadRequest(f"--default-graph '{default_graph}' is not served", "name one that is")
        host, port = address_of(
            bind or environment.BIND.read() or environment.LISTEN_ADDR.read() or _BIND
        )
        actors, file = _tokens(tokens)
        if policy and served.cluster is not None:
            raise BadRequest("a cluster has the policies it applied", "declare it in cluster.yaml")
        policies, server_policy = files_by_graph(policy or [], by_id)
        trusted = _trusted(oidc_trust)
        has_policy = bool(policy) or served.has_policy
        if has_policy and trust_tokens:
            raise BadRequest("--trust-tokens trusts actors that a policy asks about", "choose one")
        if (tls_cert is None) != (tls_key is None):
            raise BadRequest("--tls-cert and --tls-key belong together", "pass both")
        limits = ServerLimits(
            query_seconds=query_seconds,
            drain_seconds=drain_seconds,
            read_threads=read_threads,
            write_threads=write_threads,
            read_queue=queue,
            write_queue=queue,
            answer_bytes=answer_bytes_max,
            spooled_load_bytes=load_bytes_max,
            actor_inflight=environment.ACTOR_INFLIGHT.read(),
            actor_bytes=environment.ACTOR_BYTES.read(),
        )
        settings = ServerSettings(
            graphs=by_id,
            extras=served.extras,
            quarantined=served.quarantined,
            cluster=served.cluster,
            cluster_policy=served.cluster_policy,
            host=host,
            port=port,
            workers=workers,
            access=_access(
                bool(actors) or trusted is not None,
                is_open=unauthenticated,
                is_trusted=trust_tokens,
                has_policy=has_policy,
            ),
            policies=policies,
            server_policy=server_policy,
            oidc_trust=trusted,
            tokens=actors,
            tokens_file=file,
            limits=limits,
            require_all_graphs=require_all_graphs or environment.REQUIRE_ALL_GRAPHS.read(),
            default_graph=default_graph,
            log_json=log is LogForm.JSON,
            allow_origin=allow_origin,
            allowed_hosts=checked_hosts(allowed_host or ()),
            tls_cert=tls_cert,
            tls_key=tls_key,
            mcp=has_mcp() if mcp is None else mcp,
            upkeep=_schedule(upkeep),
            ui=ui,
            coalesce_ms=coalesce_ms,
            job_sources=tuple(map(checked_base, job_source or ())),
            job_targets=tuple(map(checked_base, job_target or ())),
        )
        status = supervise(settings, lambda address, access: _say(settings, address, access))
    raise typer.Exit(status)


def _served(uris: list[str], ids: list[str], folders: list[str]) -> ServedSet:
    """The graphs that are named one by one, or those of a cluster."""
    from omnigraph.server.served_sets import set_of_cluster, set_of_graphs

    cluster = scope().cluster
    if cluster is None and not (uris or ids or folders):
        cluster = environment.CLUSTER.read()
    if cluster is None:
        return set_of_graphs(uris, ids, folders)
    if uris or ids or folders:
        raise typer.BadParameter("--cluster names all that is served: pass no graph, id or queries")
    return set_of_cluster(config().clusters.get(cluster, cluster))


def _tokens(file: str | None) -> tuple[dict[str, str], str | None]:
    """Actors by digest, and the file they are re-read from, if they are in one."""
    from omnigraph.server.bearer import digests, tokens_of_file, tokens_of_text

    secret = environment.SERVER_TOKENS_AWS.read()
    if secret is not None:
        raise BadRequest(
            f"{environment.SERVER_TOKENS_AWS.name} names '{secret}', and this server does not ask "
            "AWS for secrets",
            f"unset it, and have what starts the server pass the secret's text as "
            f"{environment.SERVER_TOKENS.name}, or write it to the file of --tokens",
        )
    named = file or environment.SERVER_TOKENS_FILE.read()
    if named is not None:
        return tokens_of_file(named), named
    text = environment.SERVER_TOKENS.read()
    if text is not None:
        return tokens_of_text(text, environment.SERVER_TOKENS.name), None
    token = environment.SERVER_TOKEN.read()
    if token is not None:
        return digests({"default": token}, environment.SERVER_TOKEN.name), None
    return {}, None


def _trusted(file: str | None) -> str | None:
    """The absolute path of a trust file that can be used."""
    if file is None:
        return None
    import os

    from omnigraph.server.oidc_trust import trust_of_file

    trust_of_file(file)
    return os.path.abspath(file)


def _schedule(text: str | None) -> str:
    """The schedule of upkeep, if it can be read."""
    if text is None:
        return ""
    from omnigraph.server.upkeep_schedule import parse_schedule

    parse_schedule(text)
    return text


def _access(has_tokens: bool, *, is_open: bool, is_trusted: bool, has_policy: bool) -> Access:
    from omnigraph.server.serve_settings import Access

    is_open = is_open or environment.UNAUTHENTICATED.read()
    if has_policy and not has_tokens:
        raise BadRequest(
            "there is a policy, and no token by which it could know an actor", "pass --tokens FILE"
        )
    if has_tokens:
        if is_open:
            raise BadRequest("tokens are set, and nobody would be asked for one", "choose one")
        return Access.TRUSTED if is_trusted else Access.READ_ONLY
    if is_trusted:
        raise BadRequest("--trust-tokens trusts nobody without tokens", "pass --tokens FILE")
    if not is_open:
        raise BadRequest(
            "there are no tokens, so everybody could read and write",
            "pass --tokens FILE, or --unauthenticated if that is meant",
        )
    return Access.OPEN


def _say(settings: ServerSettings, address: str, access: str) -> None:
    """Where the server listens: for programs on standard output, for people on standard error."""
    show(f"OMNIGRAPH_LISTEN_ADDR={address}")
    scheme = "http" if settings.tls_cert is None else "https"
    names = ", ".join(settings.graphs)
    for graph_id, fault in settings.quarantined.items():
        typer.echo(f"not serving {graph_id}: {fault}", err=True)
    access = "policy" if settings.has_policy else access
    typer.echo(f"serving {names} at {scheme}://{address}: {_SAID[access]}", err=True)
    if settings.ui:
        typer.echo(f"pages for people at {scheme}://{address}/ui/", err=True)
