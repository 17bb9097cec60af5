"""OpenID Connect: bearer tokens that issuers signed (JWT), verified offline with their keys (JWKS).

Invariant: nothing is fetched: issuers, audiences and keys are those of a file. A token counts if a
trusted issuer signed it with an asymmetric key, for this audience, and it has not expired; its
actor is one claim, with the issuer's prefix before it.
"""

import os
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from omnigraph.errors import BadRequest, NotInstalled, OmnigraphError, PolicyInvalid
from omnigraph.policy.document_members import Members, plain_text, read_document, require_version
from omnigraph.storage.protocol.intent import noted

_ALGORITHMS = frozenset(
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
)
_ISSUER = ("issuer", "audience", "keys", "actor_claim", "actor_prefix", "algorithms")
_KEY_TYPES = ("RSA", "EC", "OKP")
_LEEWAY_S = 60
_TOKEN_CHARS = 16_384


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    """An issuer, what its tokens must be for, and which claim of them names the actor."""

    issuer: str
    audience: str
    keys: Any
    key_ids: frozenset[str]
    algorithms: tuple[str, ...]
    actor_claim: str = "sub"
    actor_prefix: str = ""

    @property
    def signers(self) -> tuple[str, ...]:
        """Each key with what is made of its tokens, as texts that change when that does."""
        rules = (self.issuer, self.audience, self.actor_claim, self.actor_prefix)
        return tuple("\n".join((*rules, key.thumbprint())) for key in self.keys.keys)

    def signer(self, key_id: Any) -> str:
        """That of `signers` whose key has an id."""
        keys = [key.kid for key in self.keys.keys]
        return self.signers[keys.index(key_id) if key_id in keys else 0]

    def actor(self, text: str, key_id: Any) -> str | None:
        """The actor of a token that this issuer is said to have signed, if it has."""
        jose = _jose()
        if key_id not in self.key_ids and not (key_id is None and len(self.key_ids) == 1):
            return None
        try:
            token = jose.jwt.decode(text, self.keys, algorithms=list(self.algorithms))
            jose.jwt.JWTClaimsRegistry(
                leeway=_LEEWAY_S,
                iss={"essential": True, "value": self.issuer},
                aud={"essential": True, "value": self.audience},
                exp={"essential": True},
            ).validate(token.claims)
        except (jose.errors.JoseError, ValueError, TypeError, KeyError):
            return None
        name = token.claims.get(self.actor_claim)
        if not isinstance(name, str) or not name.strip() or name != name.strip():
            return None
        try:
            noted(f"{self.actor_prefix}{name}")
        except OmnigraphError:  # a name of the engine's own, or no text
            return None
        return f"{self.actor_prefix}{name}"


class IssuedSession(NamedTuple):
    """An actor whom an issuer named, by which key, until when in seconds."""

    actor: str
    signer: str
    until: int


@dataclass(frozen=True, slots=True)
class OidcTrust:
    """The issuers that are trusted, and the address that this server is known by."""

    resource: str | None = None
    issuers: Mapping[str, TrustedIssuer] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def actor(self, token: str) -> str | None:
        """The actor of a token; None for one that counts for nothing."""
        header, claims = _unverified(token)
        issuer = self.issuers.get(str(claims.get("iss")))
        return None if issuer is None else issuer.actor(token, header.get("kid"))

    def session(self, token: str) -> "IssuedSession | None":
        """What a token signs in to; None for one that counts for nothing."""
        actor = self.actor(token)
        if actor is None:
            return None
        header, claims = _unverified(token)  # verified by now
        signer = self.issuers[str(claims["iss"])].signer(header.get("kid"))
        return IssuedSession(actor, signer, int(claims["exp"]))

    @property
    def signers(self) -> tuple[str, ...]:
        """The keys that are trusted, as texts that change with what is made of their tokens."""
        return tuple(text for issuer in self.issuers.values() for text in issuer.signers)

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of a protected resource (RFC 9728)."""
        return {
            "resource": self.resource,
            "authorization_servers": list(self.issuers),
            "bearer_methods_supported": ["header"],
        }


def _unverified(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Header and claims of what looks like a JWT, which prove nothing yet."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > _TOKEN_CHARS:
        return {}, {}
    try:
        header, claims = (
            orjson.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in parts[:2]
        )
    except ValueError:
        return {}, {}
    if not isinstance(header, dict) or not isinstance(claims, dict):
        return {}, {}
    return header, claims


def trust_of_file(path: str) -> OidcTrust:
    """What a file says whom to trust, or `BadRequest`."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as cause:
        raise BadRequest(f"cannot read the trust file {path}: {cause}") from None
    try:
        document = Members.of(read_document(text, path), path, ("version", "resource", "issuers"))
        require_version(document)
        resource = document.text("resource", "blank")
        issuers = [
            _issuer(each, f"{path}.issuers[{number}]", os.path.dirname(os.path.abspath(path)))
            for number, each in enumerate(document.items("issuers"))
        ]
    except PolicyInvalid as cause:
        raise BadRequest(f"{cause.where}: {cause.text}", cause.hint) from None
    by_name = {issuer.issuer: issuer for issuer, _ in issuers}
    if not by_name or len(by_name) != len(issuers):
        raise BadRequest(f"{path} names no issuer, or one twice", "list each issuer once")
    return OidcTrust(resource, by_name, (path, *(keys for _, keys in issuers)))


def _issuer(value: Any, where: str, folder: str) -> tuple[TrustedIssuer, str]:
    members = Members.of(value, where, _ISSUER)
    path = os.path.join(folder, members.text("keys", "blank"))
    keys, key_ids = _keys(path)
    given = [
        plain_text(each, f"{where}.algorithms", "blank") for each in members.items("algorithms")
    ]
    unknown = sorted(set(given) - _ALGORITHMS)
    if unknown:
        raise BadRequest(f"{where}: '{unknown[0]}' is not accepted", "use RS256, ES256 or EdDSA")
    prefix = members.values.get("actor_prefix")
    issuer = TrustedIssuer(
        members.text("issuer", "blank"),
        members.text("audience", "blank"),
        keys,
        key_ids,
        tuple(given) or ("RS256", "ES256", "EdDSA"),
        members.optional_text("actor_claim") or "sub",
        "" if prefix is None else plain_text(prefix, f"{where}.actor_prefix", "blank"),
    )
    return issuer, path


def _keys(path: str) -> tuple[Any, frozenset[str]]:
    """The public keys of a JWKS file, and their ids."""
    try:
        document = orjson.loads(Path(path).read_bytes())
        keys = document["keys"]
        for key in keys:
            if key["kty"] not in _KEY_TYPES or "d" in key:
                raise BadRequest(f"{path}: a key is not a public one", "give RSA, EC or OKP keys")
        if not keys or (len(keys) > 1 and len({key["kid"] for key in keys}) != len(keys)):
            raise BadRequest(f"{path}: several keys need a kid each", "add them")
        named = [{"kid": "", **key} for key in keys]
        return _jose().jwk.KeySet.import_key_set({"keys": named}), frozenset(
            k["kid"] for k in named
        )
    except OSError as cause:
        raise BadRequest(f"cannot read the keys {path}: {cause.strerror}") from None
    except (ValueError, TypeError, KeyError) as cause:
        raise BadRequest(f"{path} is no JSON Web Key Set ({cause})") from None


class _Jose:
    """The parts of joserfc that are used."""

    def __init__(self) -> None:
        from joserfc import errors, jwk, jwt  # noqa: PLC0415  only for servers that trust issuers

        self.errors, self.jwk, self.jwt = errors, jwk, jwt


def _jose() -> _Jose:
    try:
        return _Jose()
    except ImportError:
        raise NotInstalled("OpenID Connect", "import joserfc", "pip install joserfc") from None
