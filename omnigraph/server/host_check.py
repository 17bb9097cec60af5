"""Host and Origin checks: protection of servers on loopback against DNS rebinding.

A page of any site can have its own name resolve to 127.0.0.1, and is then of the same origin as a
server there. Its requests name that site in `Host`, which a browser always sends.

Invariant: a server that listens on loopback answers a request only if `Host`, and in a write
`Origin`, name loopback, the bound address or an allowed host. Where actors have tokens this holds
for the pages, which have sessions; a token in a header is no session that a browser would send by
itself.
"""

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Self
from urllib.parse import urlsplit

from omnigraph.errors import BadRequest
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.request_headers import RequestHeaders
from omnigraph.server.serve_settings import Access, ServerSettings

EVERY = "*"
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class HostCheck:
    """Hosts that requests may name. None: every one."""

    hosts: frozenset[str] | None
    is_open: bool  # whether actors are asked for no token
    origin: str | None = None  # of pages of another site that may send requests

    @classmethod
    def of(cls, settings: ServerSettings) -> Self:
        """Return the check of a server. Without allowed hosts it is made on loopback alone."""
        named = settings.allowed_hosts
        is_off = EVERY in named or not (named or is_loopback_address(settings.host))
        hosts = None if is_off else frozenset({settings.host.lower(), *map(str.lower, named)})
        return cls(hosts, settings.access is Access.OPEN, settings.allow_origin)

    def require(self, method: str, path: str, headers: RequestHeaders) -> None:
        """Pass for a request to a host that is allowed, from a page of one. Raises `HttpRefusal`
        with 421."""
        if self.hosts is None or not (self.is_open or _is_page(path)):
            return
        for value in headers.getlist("host"):
            if not self._allows(hostname(value)):
                raise _refused("Host", value)
        # Forms of pages (`UiSessions.require_own_form`) and agents, whose protocol asks for 403,
        # have checks of their own.
        if method not in _READS and not _is_page(path) and path != "/mcp":
            for value in headers.getlist("origin"):
                if value != self.origin and not self._allows(origin_hostname(value)):
                    raise _refused("Origin", value)

    def allows_origin(self, origin: str) -> bool:
        """Return whether pages of an origin may speak to agents' tools."""
        if origin == self.origin:
            return True
        name = origin_hostname(origin)
        return name is not None and (is_loopback(name) or name in (self.hosts or ()))

    def _allows(self, name: str | None) -> bool:
        return name is not None and (is_loopback(name) or name in (self.hosts or ()))


def hostname(authority: str) -> str | None:
    """Return the host of `host:port` in lower case, without brackets and a final dot; None if it is
    none."""
    try:
        parts = urlsplit(f"//{authority.strip()}")
        _ = parts.port  # raises for what is no port
    except ValueError:
        return None
    if parts.path or parts.query or parts.fragment or "@" in authority or not parts.hostname:
        return None
    return parts.hostname.removesuffix(".") or None


def origin_hostname(origin: str) -> str | None:
    """Return the host of an origin; None if it has none."""
    scheme, separator, authority = origin.partition("://")
    return hostname(authority) if separator and scheme in ("http", "https") else None


def is_loopback(name: str) -> bool:
    """Return whether a host always means this machine: a name that no server of names is asked for,
    or an address."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def is_loopback_address(host: str) -> bool:
    """Return whether a server that binds a host can be reached from its own machine alone."""
    if is_loopback(host.lower()):
        return True
    try:
        ip_address(host)
    except ValueError:
        return all(map(is_loopback, _resolved(host)))
    return False


def checked_hosts(names: Iterable[str]) -> tuple[str, ...]:
    """Return allowed hosts as they are compared. Raises `BadRequest` for what is no host."""
    hosts = []
    for name in names:
        host = name if name == EVERY else hostname(name)
        if host is None or (host != EVERY and _has_port(name)):
            raise BadRequest(
                f"invalid --allowed-host '{name[:_SHOWN]}': expected a name or an address",
                "leave out scheme, port and path",
            )
        hosts.append(host)
    return tuple(hosts)


def _has_port(name: str) -> bool:
    return urlsplit(f"//{name}").port is not None


def _resolved(host: str) -> list[str]:
    """Return the addresses of a name; one that has none is not taken for loopback."""
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return [host]
    return [str(address[0]) for *_, address in found] or [host]


def _is_page(path: str) -> bool:
    return path in ("/", "/ui") or path.startswith("/ui/")


def _refused(header: str, value: str) -> HttpRefusal:
    shown = value[:_SHOWN] + "…" * (len(value) > _SHOWN)
    name = hostname(value) if header == "Host" else origin_hostname(value)
    option = "NAME" if name is None else name[:_SHOWN]
    return HttpRefusal(
        421,
        f"{header} '{shown}' is not served here; start the server with --allowed-host {option} if "
        "it is one of its names",
    )
