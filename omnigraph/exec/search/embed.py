"""Embedding providers: text to vectors over HTTP (OpenAI, Gemini), or an offline mock.

Invariant: a vector returned here has the dimension that was asked for, is finite, not zero,
and of length 1. A key is sent to the configured address alone: redirects are not followed, and no
error text holds it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from omnigraph import environment
from omnigraph.deferred import deferred
from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    from omnigraph.exec.search.embed_http import Client, Patience
else:
    Client = deferred("omnigraph.exec.search.embed_http", "Client")
    Patience = deferred("omnigraph.exec.search.embed_http", "Patience")

Vector = list[float]


class Purpose(StrEnum):
    """Task type of an embedding: query or document. Some models distinguish them."""

    QUERY = "RETRIEVAL_QUERY"
    DOCUMENT = "RETRIEVAL_DOCUMENT"


class Provider(Protocol):
    """Turns texts into vectors."""

    @property
    def model(self) -> str:
        """The model's name, compared as it is written."""
        ...

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> list[Vector]:
        """One vector a text, in order."""
        ...


def selected_provider(
    own: Provider | None, env: Mapping[str, str] | None = None
) -> Callable[[], Provider] | None:
    """Return a call that makes the provider for reads, writes and files: the graph's `own`, else
    the one that the environment names. None if neither names one: a key alone names none, so that
    no text and no key leaves the machine."""
    if own is not None:
        return lambda: own
    if environment.EMBED_MOCK.read(env) or environment.EMBED_PROVIDER.read(env) is not None:
        return cache(lambda: _provider_from_env(env))
    return None


def require_provider(own: Provider | None, env: Mapping[str, str] | None = None) -> Provider:
    """Return the selected provider. Raises `BadRequest` if none is named."""
    make = selected_provider(own, env)
    if make is None:
        raise BadRequest(
            "no embedding provider is named, so no text is sent anywhere",
            f"set {environment.EMBED_PROVIDER.name}, call graph.embed_with, or give a vector",
        )
    return make()


def provider_name(provider: Provider) -> str:
    """Return the name of a provider for records: its kind, or its class if it has none."""
    return str(getattr(provider, "kind", type(provider).__name__))


def embed_query(provider: Provider, text: str, dimension: int) -> list[float]:
    """Return the vector of a query."""
    return provider.embed([text], dimension, Purpose.QUERY)[0]


# Providers


@dataclass(frozen=True, slots=True)
class OpenAI:
    """The protocol of OpenAI, which many services speak."""

    model: str
    client: Client
    kind: str = "openai"

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> list[Vector]:
        body = {"model": self.model, "input": list(texts), "dimensions": dimension}
        answer = self.client.post("/embeddings", body)
        data = _member(answer, "data", list, self.client)
        if len(data) != len(texts):
            raise self.client.failed(f"answered {len(data)} vectors for {len(texts)} texts")
        ordered: dict[int, Any] = {}
        for position, item in enumerate(data):
            vector = _member(item, "embedding", list, self.client)
            ordered[item.get("index", position)] = vector
        if sorted(ordered) != list(range(len(texts))):
            raise self.client.failed("answered vectors whose indexes are not those of the texts")
        return [_checked(ordered[n], dimension, self.client) for n in range(len(texts))]


@dataclass(frozen=True, slots=True)
class Gemini:
    """The protocol of Google's Gemini: one text a request."""

    model: str
    client: Client
    kind: str = "gemini"

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> list[Vector]:
        return [self._one(text, dimension, purpose) for text in texts]

    def _one(self, text: str, dimension: int, purpose: Purpose) -> Vector:
        body = {
            "model": f"models/{self.model}",
            "content": {"parts": [{"text": text}]},
            "taskType": purpose.value,
            "outputDimensionality": dimension,
        }
        answer = self.client.post(f"/models/{self.model}:embedContent", body)
        embedding = _member(answer, "embedding", dict, self.client)
        return _checked(_member(embedding, "values", list, self.client), dimension, self.client)


@dataclass(frozen=True, slots=True)
class Mock:
    """The same vector for the same text, always and everywhere; near texts are not near."""

    model: str = "mock"
    kind: str = "mock"

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> list[Vector]:
        return [mock_vector(text, dimension) for text in texts]


_FNV_OFFSET, _FNV_PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def mock_vector(text: str, dimension: int) -> Vector:
    """FNV-1a of the text drives an xorshift generator. Every step is in 32-bit floats."""
    state = _FNV_OFFSET
    for byte in text.encode("utf-8", "surrogatepass"):
        state = ((state ^ byte) * _FNV_PRIME) & _MASK
    components = []
    for _ in range(dimension):
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        share = np.float32(float(state) / float(_MASK))
        components.append(share * np.float32(2) - np.float32(1))
    square = np.float32(0)
    for component in components:
        square = square + component * component
    length = np.sqrt(square)
    return [float(component / length) for component in components]


def _member(answer: Any, name: str, kind: type, client: Client) -> Any:
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind):
        raise client.failed(f"answered JSON without `{name}`")
    return value


def _checked(vector: list[Any], dimension: int, client: Client) -> Vector:
    if len(vector) != dimension:
        raise client.failed(f"answered {len(vector)} components where {dimension} were asked for")
    if not all(type(number) in (int, float) for number in vector):
        raise client.failed("answered a vector with a component that is no number")
    length = math.hypot(*vector)
    if not math.isfinite(length) or length == 0:
        raise client.failed("answered a vector that is zero or not finite")
    return [number / length for number in vector]


# Configuration


@dataclass(frozen=True, slots=True)
class _ProviderKind:
    base_url: str
    model: str
    key_variable: environment.TextVariable
    key_header: str
    key_prefix: str = ""


_BEARER = ("Authorization", "Bearer ")
_KINDS = {
    "openai-compatible": _ProviderKind(
        "https://openrouter.ai/api/v1",
        "openai/text-embedding-3-large",
        environment.OPENROUTER_KEY,
        *_BEARER,
    ),
    "openai": _ProviderKind(
        "https://api.openai.com/v1", "text-embedding-3-large", environment.OPENAI_KEY, *_BEARER
    ),
    "gemini": _ProviderKind(
        "https://generativelanguage.googleapis.com/v1beta",
        "gemini-embedding-2",
        environment.GEMINI_KEY,
        "x-goog-api-key",
    ),
}


def _provider_from_env(env: Mapping[str, str] | None) -> Provider:
    forced = environment.EMBED_MOCK.read(env)
    kind = "mock" if forced else environment.EMBED_PROVIDER.read(env)
    assert kind is not None, "the caller has looked"
    return make_provider(
        kind,
        key=_KINDS[kind].key_variable.read(env) if kind in _KINDS else None,
        base_url=environment.EMBED_BASE_URL.read(env),
        model=environment.EMBED_MODEL.read(env),
        patience=Patience.from_environment(env),
    )


def make_provider(
    kind: str,
    *,
    key: str | None = None,
    base_url: str | None = None,
    model: str | None = None,
    patience: "Patience | None" = None,
) -> Provider:
    """A provider of one of the kinds, with that kind's defaults."""
    if kind == "mock":
        return Mock(model or "mock")
    known = _KINDS.get(kind)
    if known is None:
        listed = ", ".join([*_KINDS, "mock"])
        raise BadRequest(f"unknown embedding provider '{kind}'", f"use one of {listed}")
    if not key:
        raise BadRequest(
            f"the embedding provider '{kind}' has no key",
            f"set {known.key_variable.name}, or {environment.EMBED_PROVIDER.name}=mock "
            "to work offline",
        )
    client = Client(
        base_url=(base_url or known.base_url).rstrip("/"),
        key_header=known.key_header,
        key=known.key_prefix + key,
        patience=patience or Patience(),
    )
    make = Gemini if kind == "gemini" else OpenAI
    return make(model or known.model, client, kind)
