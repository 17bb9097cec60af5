"""External blob policy of a graph: the bases that blobs may be copied from.

Invariant: a policy that exists has absolute, normalised bases, none inside another, without
credentials, query or fragment, and no server may copy from a disk. No bases is no policy: denied.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from omnigraph.cluster.yaml_mapping import YamlMapping
from omnigraph.errors import BadRequest
from omnigraph.storage.external import checked_bases

SERVER_SAFE, EMBEDDED_ONLY = "server_safe", "embedded_only"
_BASE, _POLICY = "invalid_external_blob_base", "invalid_external_blob_policy"


def read_blob_policy(graph: YamlMapping) -> dict[str, Any] | None:
    """The policy that a graph declares, as the ledger keeps it; None when nothing is allowed."""
    value = graph.values.get("external_blobs")
    if value is None:
        return None
    if not isinstance(value, Mapping):
        graph.fault("external_blobs", "write allow: [{base: …, scope: …}]", _POLICY)
        return None
    policy = YamlMapping(value, graph.below("external_blobs"), graph.findings)
    policy.only(("allow",))
    allowed = policy.values.get("allow")
    if allowed is not None and not isinstance(allowed, list):
        policy.fault("allow", "it is no list of {base, scope}", _POLICY)
        return None
    bases = [
        base
        for number, each in enumerate(allowed or ())
        if (base := _base(policy, number, each)) is not None
    ]
    _require_apart(policy, bases)
    return {"mode": "allow", "bases": bases} if bases else None


def _base(policy: YamlMapping, number: int, value: Any) -> dict[str, str] | None:
    key = f"allow[{number}]"
    if not isinstance(value, Mapping):
        policy.fault(key, "write {base: …, scope: …}", _POLICY)
        return None
    entry = YamlMapping(value, policy.below(key), policy.findings)
    entry.only(("base", "scope"))
    base, scope = value.get("base"), value.get("scope")
    if scope not in (SERVER_SAFE, EMBEDDED_ONLY):
        entry.fault("scope", f"it is {SERVER_SAFE} or {EMBEDDED_ONLY}", _POLICY)
        return None
    if not isinstance(base, str):
        entry.fault("base", "it is no address", _BASE)
        return None
    try:
        (checked,) = checked_bases([base])
    except (BadRequest, ValueError):
        entry.fault(
            "base",
            "write file:///folder/ or s3://bucket/prefix/ without credentials, query or dots",
            _BASE,
        )
        return None
    if scope == SERVER_SAFE and checked.startswith("file:"):
        entry.fault("base", "a server may not copy from a disk: use embedded_only", _BASE)
        return None
    return {"uri": checked, "scope": str(scope)}


def _require_apart(policy: YamlMapping, bases: list[dict[str, str]]) -> None:
    ordered = sorted(base["uri"] for base in bases)
    for one, other in pairwise(ordered):
        if other.startswith(one):
            policy.fault("allow", f"the base '{other}' lies inside '{one}': keep one", _BASE)


def server_bases(policy: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The bases of a policy that a server may copy from."""
    bases = (policy or {}).get("bases", ())
    return tuple(base["uri"] for base in bases if base["scope"] == SERVER_SAFE)
