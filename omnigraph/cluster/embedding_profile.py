"""Embedding profile: a declared provider of vectors, and the provider that a server makes of it.

Invariant: a profile holds no key, only the name of the variable that does. The variable is read
when a graph is opened to be served, and nowhere else.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from omnigraph import environment
from omnigraph.cluster.yaml_mapping import YamlMapping
from omnigraph.errors import BadRequest
from omnigraph.exec.search.embed import Provider, make_provider

KINDS = ("openai-compatible", "openai", "gemini", "mock")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_INVALID = "invalid_embedding_provider"


def read_profile(declared: YamlMapping) -> dict[str, str]:
    """The profile of a declared provider: its kind, and what is given beside."""
    declared.only(("kind", "provider", "base_url", "model", "api_key"))
    kind = _kind(declared)
    profile = {"kind": kind}
    base_url, model = declared.text("base_url"), declared.text("model")
    if base_url is not None and not _is_address(base_url):
        declared.fault("base_url", "it is no http or https address without credentials", _INVALID)
    for name, value in (("base_url", base_url), ("model", model)):
        if value is not None:
            profile[name] = value.rstrip("/") if name == "base_url" else value
    key = declared.values.get("api_key")
    if key is None:
        if kind != "mock":
            declared.fault(
                "api_key",
                f"a provider of kind {kind} needs one: write ${{NAME}}",
                "embedding_api_key_required",
            )
    elif not isinstance(key, str) or not _REFERENCE.fullmatch(key.strip()):
        declared.fault(
            "api_key",
            "a key does not belong in a file: write ${NAME}, a variable of the server",
            "embedding_api_key_inline",
        )
    else:
        profile["api_key"] = key.strip()
    return profile


def _kind(declared: YamlMapping) -> str:
    given = [declared.values[name] for name in ("kind", "provider") if declared.has(name)]
    if len(given) == 2 and given[0] != given[1]:
        declared.fault("provider", "it is another name of `kind`: give one", _INVALID)
    kind = given[0] if given else KINDS[0]
    if kind not in KINDS:
        declared.fault("kind", f"it is one of {', '.join(KINDS)}", _INVALID)
        return KINDS[0]
    return str(kind)


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc) and "@" not in parts.netloc


def key_of(profile: Mapping[str, str], env: Mapping[str, str] | None = None) -> str | None:
    """The key that a profile refers to, from the environment of this process."""
    reference = _REFERENCE.fullmatch(profile.get("api_key", ""))
    if reference is None:
        return None
    variables = environment.current() if env is None else env
    key = variables.get(reference[1], "").strip()
    if not key:
        raise BadRequest(
            f"the variable {reference[1]} of an embedding provider is not set",
            "set it where the server is started",
        )
    return key


def provider_of(profile: Mapping[str, str], env: Mapping[str, str] | None = None) -> Provider:
    """The provider of a profile, with the key that this process has for it."""
    return make_provider(
        profile["kind"],
        key=key_of(profile, env),
        base_url=profile.get("base_url"),
        model=profile.get("model"),
    )
