"""Header fields of a request: a dictionary of lower-case names, decoded when they are asked for.

Invariant: names are compared without regard to case, and a field that is sent twice has two values.
"""

from collections.abc import Iterable
from functools import lru_cache


class RequestHeaders:
    """The header fields of one request."""

    __slots__ = ("_values",)

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[bytes, list[bytes]] = {}
        values = self._values
        for name, value in raw:
            key = name.lower()
            if key in values:
                values[key].append(value)
            else:
                values[key] = [value]

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of a field."""
        values = self._values.get(_key(name))
        return default if values is None else values[0].decode("latin-1")

    def getlist(self, name: str) -> list[str]:
        """Every value of a field."""
        values = self._values.get(_key(name), ())
        return [value.decode("latin-1") for value in values]

    def __contains__(self, name: str) -> bool:
        return _key(name) in self._values


@lru_cache(maxsize=256)
def _key(name: str) -> bytes:
    """A name as requests have it. The names that are asked for are few."""
    return name.lower().encode("latin-1")
