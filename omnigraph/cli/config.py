"""User configuration: `config.yaml` in `~/.omnigraph`, or in `OMNIGRAPH_HOME`.

Invariant: a missing file is an empty one, an unknown key is a warning, and a value that
cannot be used is refused with the file's name, never guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from omnigraph import environment
from omnigraph.cli.terminal import warn
from omnigraph.errors import BadRequest, NotFound
from omnigraph.yaml_document import YamlFault, read_yaml

FORMATS = ("table", "kv", "csv", "jsonl", "json")
LAYOUTS = ("truncate", "wrap")
WIDTH_MIN = 8
_SCOPES = ("server", "cluster", "store")


@dataclass(frozen=True, slots=True)
class GraphProfile:
    """A named target: exactly one of a server, a cluster or a store."""

    name: str
    server: str | None = None
    cluster: str | None = None
    store: str | None = None
    default_graph: str | None = None

    @property
    def kind(self) -> str | None:
        """`server`, `cluster` or `store`: the one it names."""
        return next((scope for scope in _SCOPES if getattr(self, scope) is not None), None)

    @property
    def target(self) -> str | None:
        """The server, cluster or store."""
        return None if self.kind is None else str(getattr(self, self.kind))

    def fault(self, config: Config) -> str | None:
        """Why it cannot be used, if it cannot."""
        named = [scope for scope in _SCOPES if getattr(self, scope) is not None]
        if len(named) != 1:
            return "name exactly one of server, cluster and store"
        if (
            self.server is not None
            and "://" not in self.server
            and self.server not in config.servers
        ):
            return f"server '{self.server}' is not configured"
        if self.cluster is not None and self.cluster not in config.clusters:
            return f"cluster '{self.cluster}' is not configured"
        return None


@dataclass(frozen=True, slots=True)
class AliasSettings:
    """A short name of a stored query of a server, with its arguments and defaults."""

    server: str
    query: str
    graph: str | None = None
    args: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of `config.yaml`."""

    path: Path
    actor: str | None = None
    output: str = "table"
    column_width: int = 80
    layout: str = "truncate"
    retries: int | None = None
    defaults: GraphProfile = GraphProfile("(defaults)")
    servers: Mapping[str, str] = field(default_factory=dict)  # name to URL
    clusters: Mapping[str, str] = field(default_factory=dict)  # name to root
    profiles: Mapping[str, GraphProfile] = field(default_factory=dict)
    aliases: Mapping[str, AliasSettings] = field(default_factory=dict)

    def profile(self, name: str) -> GraphProfile:
        """A profile that can be used."""
        profile = self.profiles.get(name)
        if profile is None:
            known = ", ".join(self.profiles) or "none"
            raise NotFound("profile", name, f"{self.path} has: {known}")
        fault = profile.fault(self)
        if fault is not None:
            raise BadRequest(f"profile '{name}': {fault}", f"correct it in {self.path}")
        return profile


def home() -> Path:
    """The folder of the user's settings."""
    named = environment.HOME.read()
    return Path(named) if named else Path.home() / ".omnigraph"


def config() -> Config:
    """The settings; read once, unless they change."""
    path = home() / "config.yaml"
    try:
        facts = path.stat()
    except FileNotFoundError:
        return Config(path)
    except OSError as cause:
        raise BadRequest(f"cannot read {path}: {cause.strerror}", "correct or remove it") from None
    # Two writes within a tick of the clock have the same time.
    return _read(path, (facts.st_mtime_ns, facts.st_size, facts.st_ino))


@lru_cache(maxsize=4)
def _read(path: Path, written: tuple[int, int, int]) -> Config:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise BadRequest(f"cannot read {path}: {cause}", "correct or remove it") from None
    try:
        document = read_yaml(text)
    except YamlFault as cause:
        raise BadRequest(f"{path} is not YAML: {cause}", "correct or remove it") from None
    return _ConfigReader(path).config({} if document is None else document)


@dataclass(frozen=True, slots=True)
class _ConfigReader:
    """Walks the document and knows which file to blame."""

    path: Path

    def config(self, document: Any) -> Config:
        top = self.members(
            document,
            "the file",
            ("operator", "servers", "defaults", "clusters", "profiles", "aliases"),
        )
        defaults = self.members(
            top.get("defaults"),
            "defaults",
            (
                "output",
                "table_max_column_width",
                "table_cell_layout",
                "retries",
                *_SCOPES,
                "default_graph",
            ),
        )
        if "server" in defaults and "store" in defaults:
            raise self.bad("defaults names both a server and a store")
        operator = self.members(top.get("operator"), "operator", ("actor",))
        return Config(
            path=self.path,
            actor=self.text(operator, "operator", "actor"),
            output=self.choice(defaults, "output", FORMATS, "table"),
            column_width=self.width(defaults),
            layout=self.choice(defaults, "table_cell_layout", LAYOUTS, "truncate"),
            retries=self.retries(defaults),
            defaults=self.profile("(defaults)", defaults),
            servers=self.named(top.get("servers"), "servers", "url"),
            clusters=self.named(top.get("clusters"), "clusters", "root"),
            profiles=self.profiles(top.get("profiles")),
            aliases=self.aliases(top.get("aliases")),
        )

    def aliases(self, section: Any) -> dict[str, AliasSettings]:
        words = ("server", "graph", "query", "args", "params", "format")
        aliases = {}
        for name, one in self.members(section, "aliases", None).items():
            what = f"aliases.{name}"
            inside = self.members(one, what, words)
            server, query = (self.text(inside, what, key) for key in ("server", "query"))
            if server is None or query is None:
                raise self.bad(f"{what} needs a server and a query")
            args, params = inside.get("args") or [], inside.get("params") or {}
            if not isinstance(args, list) or not all(isinstance(each, str) for each in args):
                raise self.bad(f"args in {what} must be a list of names")
            shape = inside.get("format")
            if shape is not None and shape not in FORMATS:
                raise self.bad(f"format in {what} is '{shape}', not one of {', '.join(FORMATS)}")
            aliases[name] = AliasSettings(
                server,
                query,
                self.text(inside, what, "graph"),
                tuple(args),
                self.members(params, f"{what}.params", None),
                shape,
            )
        return aliases

    def profiles(self, section: Any) -> dict[str, GraphProfile]:
        every = self.members(section, "profiles", None)
        return {
            name: self.profile(
                name, self.members(one, f"profiles.{name}", (*_SCOPES, "default_graph"))
            )
            for name, one in every.items()
        }

    def profile(self, name: str, section: Mapping[str, Any]) -> GraphProfile:
        texts = {key: self.text(section, name, key) for key in (*_SCOPES, "default_graph")}
        return GraphProfile(name, **texts)

    def named(self, section: Any, what: str, key: str) -> dict[str, str]:
        """Names to their one address."""
        names: dict[str, str] = {}
        for name, one in self.members(section, what, None).items():
            inside = self.members(one, f"{what}.{name}", (key,))
            address = self.text(inside, f"{what}.{name}", key)
            if address is None:
                raise self.bad(f"{what}.{name} has no {key}")
            names[name] = address
        return names

    def members(self, section: Any, what: str, known: tuple[str, ...] | None) -> dict[str, Any]:
        if section is None:
            return {}
        if not isinstance(section, dict):
            raise self.bad(f"{what} must hold keys and values")
        members = {str(key): value for key, value in section.items()}
        if known is not None:
            for key in members:
                if key not in known:
                    warn(f"{self.path}: unknown key '{key}' in {what}")
        return members

    def text(self, section: Mapping[str, Any], what: str, key: str) -> str | None:
        value = section.get(key)
        if value is not None and not isinstance(value, str):
            raise self.bad(f"{key} in {what} must be a text")
        return value

    def choice(
        self, section: Mapping[str, Any], key: str, known: tuple[str, ...], default: str
    ) -> str:
        value = section.get(key, default)
        if value not in known:
            raise self.bad(f"defaults.{key} is '{value}', not one of {', '.join(known)}")
        return str(value)

    def width(self, section: Mapping[str, Any]) -> int:
        value = section.get("table_max_column_width", 80)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.bad("defaults.table_max_column_width must be a whole number above 0")
        return max(value, WIDTH_MIN)

    def retries(self, section: Mapping[str, Any]) -> int | None:
        value = section.get("retries")
        if value is not None and (
            not isinstance(value, int) or isinstance(value, bool) or value < 0
        ):
            raise self.bad("defaults.retries must be a whole number from 0")
        return value

    def bad(self, text: str) -> BadRequest:
        return BadRequest(f"{self.path}: {text}", "correct or remove it")
