"""OpenID Connect: which tokens of an issuer count, and which do not."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

from omnigraph import BadRequest
from omnigraph.server.oidc_trust import trust_of_file
from omnigraph.server.policy_files import ReloadedFiles
from omnigraph.server.request_log import RequestLog
from omnigraph.server.serve_settings import Access
from tests.server.policy_world import policy_text
from tests.server.world import Served, new_graph, served

ISSUER = "https://id.example.com"
KEY = ECKey.generate_key("P-256", {"kid": "one"})
OTHER = ECKey.generate_key("P-256", {"kid": "two"})
TRUST = f"""
version: 1
resource: https://graph.example.com
issuers:
  - issuer: {ISSUER}
    audience: omnigraph
    keys: jwks.json
    actor_claim: email
    actor_prefix: 'act-'
"""


def write_trust(folder: Path, *keys: Any, text: str = TRUST) -> str:
    shown = [key.as_dict(private=False) for key in keys or (KEY,)]
    (folder / "jwks.json").write_text(json.dumps({"keys": shown}))
    (folder / "trust.yaml").write_text(text)
    return str(folder / "trust.yaml")


def signed(key: Any = KEY, header: dict[str, Any] | None = None, **claims: Any) -> str:
    said = {
        "iss": ISSUER,
        "aud": "omnigraph",
        "exp": int(time.time()) + 600,
        "email": "has-read",
        **claims,
    }
    known = {name: value for name, value in said.items() if value is not None}
    top = header or {"alg": "ES256", "kid": key.kid}
    return str(jwt.encode(top, known, key, algorithms=[top["alg"]]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("oidc")
    (folder / "p.yaml").write_text(policy_text())
    with served(
        new_graph(folder),
        access=Access.READ_ONLY,
        policies={"people": str(folder / "p.yaml")},
        oidc_trust=write_trust(folder),
    ) as running:
        yield running


def status(server: Served, token: str) -> int:
    return server.get("/branches", headers={"Authorization": f"Bearer {token}"}).status_code


def test_a_token_of_a_trusted_issuer_names_its_actor(server: Served) -> None:
    assert status(server, signed()) == 200
    headers = {"Authorization": f"Bearer {signed()}"}
    assert server.client.get("/whoami", headers=headers).json()["actor_id"] == "act-has-read"
    assert status(server, signed(email="nothing")) == 403
    assert status(server, signed(aud=["other", "omnigraph"])) == 200
    assert status(server, "ada-token") == 403, "tokens of the server's own still count"


def _unsigned() -> str:
    body = signed().split(".")[1]
    none = "eyJhbGciOiJub25lIn0"
    return f"{none}.{body}."


def _tampered() -> str:
    head, _, signature = signed().split(".")
    body = signed(email="everything").split(".")[1]
    return f"{head}.{body}.{signature}"


def _by_public_key() -> str:
    """Signed with the public key as if it were a shared secret."""
    secret = OctKey.import_key(json.dumps(KEY.as_dict(private=False)))
    return signed(secret, {"alg": "HS256", "kid": "one"})


NOW = int(time.time())
REFUSED = {
    "another key": lambda: signed(OTHER),
    "another key under a known id": lambda: signed(OTHER, {"alg": "ES256", "kid": "one"}),
    "an unknown key id": lambda: signed(KEY, {"alg": "ES256", "kid": "nope"}),
    "no signature": _unsigned,
    "other claims than were signed": _tampered,
    "a shared secret": _by_public_key,
    "another issuer": lambda: signed(iss="https://evil.example.com"),
    "no issuer": lambda: signed(iss=None),
    "another audience": lambda: signed(aud="elsewhere"),
    "no audience": lambda: signed(aud=None),
    "expired": lambda: signed(exp=NOW - 3_600),
    "no expiry": lambda: signed(exp=None),
    "an expiry that is a text": lambda: signed(exp="tomorrow"),
    "not yet": lambda: signed(nbf=NOW + 3_600),
    "no actor": lambda: signed(email=None),
    "a blank actor": lambda: signed(email=" "),
    "an actor with spaces": lambda: signed(email=" has-read"),
    "an actor that is a list": lambda: signed(email=["has-read"]),
    "half a token": lambda: signed()[:-10],
    "no token": lambda: "a.b.c",
    "a very long one": lambda: signed(padding="x" * 20_000),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_token_that_does_not_count_is_401(server: Served, name: str) -> None:
    assert status(server, REFUSED[name]()) == 401


def test_a_client_learns_who_gives_out_tokens(server: Served) -> None:
    document = server.client.get("/.well-known/oauth-protected-resource").json()
    assert document == {
        "resource": "https://graph.example.com",
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
    }
    asked = server.get("/branches").headers["www-authenticate"]
    assert (
        'resource_metadata="https://graph.example.com/.well-known/oauth-protected-resource"'
        in asked
    )


def test_the_names_of_the_engine_come_from_no_issuer(tmp_path: Path) -> None:
    trust = trust_of_file(
        write_trust(tmp_path, text=TRUST.replace("    actor_prefix: 'act-'\n", ""))
    )
    assert trust.actor(signed()) == "has-read"
    assert trust.actor(signed(email="omnigraph:recovery")) is None


def test_keys_are_rotated_while_the_server_runs(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(policy_text())
    with served(
        new_graph(tmp_path),
        access=Access.READ_ONLY,
        policies={"people": str(tmp_path / "p.yaml")},
        oidc_trust=write_trust(tmp_path),
    ) as running:
        files = ReloadedFiles(running.settings, running.app.gate, RequestLog(as_json=False))
        write_trust(tmp_path, KEY, OTHER)
        files.look()
        assert (status(running, signed()), status(running, signed(OTHER))) == (200, 200)
        write_trust(tmp_path, OTHER)
        files.look()
        assert (status(running, signed()), status(running, signed(OTHER))) == (401, 200)
        (tmp_path / "jwks.json").write_text("{")
        files.look()
        assert status(running, signed(OTHER)) == 200, "broken keys change nothing"


@contextmanager
def _signed_in(running: Served, token: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, headers={"Origin": running.url}) as client:
        form = client.get("/ui/sign-in").text
        assert ISSUER in form
        (csrf,) = re.findall(r'name="csrf" value="(\w+)"', form)
        client.post("/ui/sign-in", data={"token": token, "csrf": csrf})
        yield client


def test_a_token_of_an_issuer_signs_in_until_it_expires_or_its_key_goes(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(policy_text())
    page = "/ui/graphs/people"
    with served(
        new_graph(tmp_path),
        access=Access.READ_ONLY,
        policies={"people": str(tmp_path / "p.yaml")},
        oidc_trust=write_trust(tmp_path, KEY, OTHER),
    ) as running:
        files = ReloadedFiles(running.settings, running.app.gate, RequestLog(as_json=False))
        with _signed_in(running, signed()) as first, _signed_in(running, signed(OTHER)) as second:
            assert "act-has-read" in first.get(page).text
            assert second.get(page).status_code == 200
            (cookie,) = (each for each in first.cookies.jar if each.name == "omnigraph_session")
            assert cookie.expires is not None
            assert cookie.expires <= time.time() + 601
            name, until, signature = str(cookie.value).split(".")
            for forged in (f"{name}.{int(until) + 60}.{signature}", f"{name}.{until}.{'0' * 64}"):
                jar = {"omnigraph_session": forged}
                assert httpx.get(f"{running.url}{page}", cookies=jar).status_code == 303
            for wrong in (signed(exp=int(time.time()) - 30), signed(aud="x"), _unsigned(), "a.b.c"):
                with _signed_in(running, wrong) as stranger:
                    assert stranger.get(page).status_code == 303
            write_trust(tmp_path, OTHER)
            files.look()
            assert first.get(page).status_code == 303, "its key is trusted no more"
            assert second.get(page).status_code == 200


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 2",
        "version: 1\nresource: x",
        "version: 1\nresource: x\nissuers: []",
        TRUST + TRUST[TRUST.index("  - issuer") :],
        TRUST.replace("keys: jwks.json", "keys: missing.json"),
        TRUST.replace("audience: omnigraph", "audience: ''"),
        TRUST.replace("audience: omnigraph", "tenant: omnigraph"),
        TRUST + "    algorithms: [HS256]\n",
        TRUST + "    algorithms: [none]\n",
    ],
)
def test_a_trust_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadRequest):
        trust_of_file(write_trust(tmp_path, text=text))


@pytest.mark.parametrize(
    "keys", ["{", "[]", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "AAAA"}]}', '{"keys": [7]}']
)
def test_keys_that_cannot_be_used_are_refused(tmp_path: Path, keys: str) -> None:
    path = write_trust(tmp_path)
    (tmp_path / "jwks.json").write_text(keys)
    with pytest.raises(BadRequest):
        trust_of_file(path)
    private = {"keys": [KEY.as_dict(private=True)]}
    (tmp_path / "jwks.json").write_text(json.dumps(private))
    with pytest.raises(BadRequest, match="not a public one"):
        trust_of_file(path)


def test_one_key_needs_no_id(tmp_path: Path) -> None:
    path = write_trust(tmp_path)
    key = KEY.as_dict(private=False)
    del key["kid"]
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [key]}))
    trust = trust_of_file(path)
    assert trust.actor(signed(KEY, {"alg": "ES256"})) == "act-has-read"
    assert trust.actor(signed(OTHER, {"alg": "ES256"})) is None
