"""Router: finds the endpoint of a method and a path in a tree of path segments.

Invariant: a path is matched by its percent-encoded segments, so an encoded slash belongs to the
name it stands in. A word of a path comes before a parameter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from omnigraph.server.endpoint import ApiEndpoint
from omnigraph.server.refusals import HttpRefusal

_KEPT_MAX, _KEPT_BYTES = 1_024, 200


@dataclass(slots=True)
class _Branching:
    """A node of the tree of path segments."""

    literal: "dict[str, _Branching]"
    named: "_Branching | None"
    methods: dict[str, ApiEndpoint]
    takes_rest: bool = False  # a branch name may stand with its slashes unencoded
    takes_nothing: bool = False  # an id may be the empty text


class Router:
    """Finds the endpoint of a method and a path."""

    def __init__(self, endpoints: tuple[ApiEndpoint, ...]) -> None:
        self.endpoints = endpoints
        self._root = _Branching({}, None, {})
        self._known: dict[tuple[str, bytes], tuple[ApiEndpoint, dict[str, str]]] = {}
        for endpoint in endpoints:
            self._add(endpoint)

    def _add(self, endpoint: ApiEndpoint) -> None:
        node = self._root
        for part in endpoint.segments:
            if part.startswith("{"):
                node.named = node.named or _Branching({}, None, {})
                node = node.named
                node.takes_nothing |= part == "{id}"
            else:
                node = node.literal.setdefault(part, _Branching({}, None, {}))
        node.methods[endpoint.method] = endpoint
        node.takes_rest |= endpoint.segments[-1] in ("{branch}", "{tag}")

    def find(self, method: str, raw_path: bytes) -> tuple[ApiEndpoint, dict[str, str]]:
        """The endpoint and its path parameters, or 404 or 405. Paths that come often are kept."""
        known = self._known.get((method, raw_path))
        if known is None:
            known = self._find(method, raw_path)
            if len(raw_path) <= _KEPT_BYTES:
                if len(self._known) >= _KEPT_MAX:
                    self._known.clear()
                self._known[method, raw_path] = known
        return known[0], known[1].copy()

    def _find(self, method: str, raw_path: bytes) -> tuple[ApiEndpoint, dict[str, str]]:
        encoded_parts = raw_path.split(b"?", 1)[0].lstrip(b"/").split(b"/")
        parts = [_decoded(part) for part in encoded_parts]
        methods: set[str] = set()
        for node, values in self._walk(self._root, parts, ()):
            endpoint = node.methods.get(method) or _bodiless(method, node)
            if endpoint is not None:
                return endpoint, dict(zip(endpoint.names, values, strict=True))
            methods.update(node.methods, ("HEAD",) if "GET" in node.methods else ())
        if methods:
            allowed = ", ".join(sorted(methods))
            raise HttpRefusal(405, f"{method} is not for this path", {"Allow": allowed})
        raise HttpRefusal(404, "there is no such route")

    def _walk(
        self, node: _Branching, parts: list[str], values: tuple[str, ...]
    ) -> Iterator[tuple[_Branching, tuple[str, ...]]]:
        """Every node that a path leads to; words come before names."""
        if not parts:
            yield node, values
            return
        word, rest = parts[0], parts[1:]
        if word in node.literal:
            yield from self._walk(node.literal[word], rest, values)
        if node.named is not None and (word or node.named.takes_nothing):
            yield from self._walk(node.named, rest, (*values, word))
            if rest and node.named.takes_rest and all(rest):
                yield node.named, (*values, "/".join(parts))


def _bodiless(method: str, node: _Branching) -> ApiEndpoint | None:
    """What HEAD asks for where GET is a method of the path: its answer without the body."""
    return node.methods.get("GET") if method == "HEAD" else None


def _decoded(part: bytes) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise HttpRefusal(400, "the path is not UTF-8") from None
