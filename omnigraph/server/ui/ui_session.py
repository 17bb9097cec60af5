"""Sign-in cookies and CSRF tokens: HMAC-signed, valid in every worker, ended by a changed token.

Invariant: a cookie holds no token. Its signature binds the actor, the time and the digest of the
token that was typed in, under a secret that a server makes at its start, so nobody can make one
from a tokens file, and a token that is taken away ends its sessions. For a token of an issuer it
binds the issuer's key instead, and the session ends no later than the token. A write needs the
page's own origin and a token that is bound to the browser and the actor.
"""

import base64
import binascii
import hashlib
import hmac
import os
import time
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from omnigraph.server.access import Gate
from omnigraph.server.bearer import digest_of
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.request_headers import RequestHeaders
from omnigraph.server.serve_settings import Access, ServerSettings

SESSION, BROWSER, FLASH = "omnigraph_session", "omnigraph_browser", "omnigraph_flash"
CSRF_FIELD = "csrf"
_HOURS = 12
_NONCE_BYTES = 18


class UiSessions:
    """Who looks at a page."""

    def __init__(self, settings: ServerSettings, gate: Gate) -> None:
        self._secret = settings.ui_secret.encode()
        self._gate = gate
        self._tokens = gate.tokens
        self.is_open = settings.access is Access.OPEN
        self._flags = "; Path=/; HttpOnly; SameSite=Strict"
        if settings.tls_cert is not None:
            self._flags += "; Secure"

    def actor(self, headers: RequestHeaders) -> str | None:
        """Who a request is from, by its cookie or its token; None where nobody is asked, or 401."""
        if self.is_open:
            return None
        if "authorization" in headers:
            return self._gate.actor(headers)
        actor = self._signed_in(cookies(headers).get(SESSION, ""))
        if actor is None:
            raise HttpRefusal(401, "sign in first")
        return actor

    def sign_in(self, token: str) -> tuple[str, str]:
        """The actor of a token and the cookie that signs it in, or 401."""
        now = int(time.time())
        until = now + _HOURS * 3600
        actor, proof = self._tokens.actor_of(token), digest_of(token)
        if actor is None:
            trust = self._gate.trust
            issued = None if trust is None else trust.session(token)
            if issued is None or issued.until <= now:
                raise HttpRefusal(401, "invalid bearer token")
            actor, proof = issued.actor, issued.signer
            until = min(until, issued.until)
        name = base64.urlsafe_b64encode(actor.encode()).decode()
        value = f"{name}.{until}.{self._signature(actor, until, proof)}"
        return actor, f"{SESSION}={value}; Max-Age={until - now}{self._flags}"

    def sign_out(self) -> str:
        """The cookie that ends a session."""
        return f"{SESSION}=; Max-Age=0{self._flags}"

    def _signed_in(self, value: str) -> str | None:
        name, _, rest = value.partition(".")
        until, _, signature = rest.partition(".")
        try:
            actor = base64.urlsafe_b64decode(name.encode()).decode()
        except (binascii.Error, ValueError):
            return None
        if not until.isascii() or not until.isdigit() or len(until) > 12:
            return None
        given = signature.encode("utf-8", "surrogateescape")
        is_signed = False
        trust = self._gate.trust
        proofs = (*self._tokens.digests_of(actor), *(trust.signers if trust else ()))
        for proof in proofs:
            expected = self._signature(actor, int(until), proof).encode()
            is_signed |= hmac.compare_digest(given, expected)
        return actor if is_signed and int(until) > time.time() else None

    def _signature(self, actor: str, until: int, proof: str) -> str:
        return self._mac("session", actor, str(until), proof)

    def _mac(self, *parts: str) -> str:
        text = "\n".join(parts).encode("utf-8", "surrogateescape")
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()

    def browser(self, headers: RequestHeaders) -> tuple[str, str | None]:
        """What tells a browser from others, and the cookie that makes it so, if it is new."""
        nonce = cookies(headers).get(BROWSER, "")
        if len(nonce) == _NONCE_BYTES * 2 and nonce.isalnum():
            return nonce, None
        nonce = os.urandom(_NONCE_BYTES).hex()
        return nonce, f"{BROWSER}={nonce}; Max-Age=31536000{self._flags}"

    def cookie(self, name: str, value: str, seconds: int) -> str:
        """A cookie for the pages, which ends after some seconds."""
        return f"{name}={value}; Max-Age={seconds}{self._flags}"

    def signature_of(self, *parts: str) -> str:
        """The signature of texts, valid in every worker."""
        return self._mac(*parts)

    def is_signature(self, given: str, *parts: str) -> bool:
        """Whether a signature is that of texts."""
        expected = self._mac(*parts).encode()
        return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected)

    def csrf(self, nonce: str, actor: str | None) -> str:
        """The token that a form of this browser and actor carries."""
        return self._mac("csrf", nonce, actor or "")

    def require_own_form(
        self, headers: RequestHeaders, form: Mapping[str, str], actor: str | None
    ) -> None:
        """Pass for a form that one of our pages sent, else 403."""
        origin = headers.get("origin")
        if origin is None or _host_of(origin) != headers.get("host"):
            raise HttpRefusal(403, "the form does not come from a page of this server")
        nonce = cookies(headers).get(BROWSER, "")
        if not hmac.compare_digest(
            form.get(CSRF_FIELD, "").encode(), self.csrf(nonce, actor).encode()
        ):
            raise HttpRefusal(403, "the form is of another session; load the page again")


def _host_of(origin: str) -> str | None:
    """The host of an origin, with its port; None if it has none."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:  # half of an IPv6 address
        return None


def cookies(headers: RequestHeaders) -> dict[str, str]:
    """The cookies of a request; a header that is malformed has none."""
    jar: SimpleCookie = SimpleCookie()
    try:
        for value in headers.getlist("cookie"):
            jar.load(value)
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in jar.items()}
