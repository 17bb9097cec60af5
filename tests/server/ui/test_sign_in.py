"""Sign-in, cookies, CSRF, what may not be done, and escaping (UI3)."""

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.server.bearer import digest_of
from omnigraph.server.serve_settings import Access
from tests.server.ui.seeded import seeded_graph
from tests.server.world import Served, new_graph, served

G = "/ui/graphs/people"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that trusts its actors."""
    with served(
        new_graph(tmp_path_factory.mktemp("ui")), access=Access.TRUSTED, tls_cert=None
    ) as running:
        yield running


@pytest.fixture
def browser(site: Served) -> Iterator[httpx.Client]:
    """A browser that nobody has signed in."""
    with httpx.Client(base_url=site.url, timeout=60, headers={"Origin": site.url}) as client:
        yield client


def csrf(text: str) -> str:
    token = re.search(r'name="csrf" value="([0-9a-f]+)"', text)
    assert token is not None
    return token[1]


def sign_in(browser: httpx.Client, token: str = "ada-token", after: str = G) -> httpx.Response:
    page = browser.get("/ui/sign-in", params={"next": after})
    return browser.post(
        "/ui/sign-in", data={"csrf": csrf(page.text), "token": token, "next": after}
    )


def test_UI3_a_token_becomes_a_cookie_that_holds_no_token(browser: httpx.Client) -> None:
    asked = browser.get(G)
    assert asked.status_code == 303
    assert asked.headers["location"] == "/ui/sign-in?next=%2Fui%2Fgraphs%2Fpeople"
    done = sign_in(browser)
    assert (done.status_code, done.headers["location"]) == (303, G)
    cookie = done.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "ada-token" not in cookie
    assert digest_of("ada-token") not in cookie
    page = browser.get(G)
    assert page.status_code == 200
    assert "act-ada" in page.text
    left = browser.post("/ui/sign-out", data={"csrf": csrf(page.text)})
    assert left.status_code == 303
    assert browser.get(G).status_code == 303


def test_UI3_a_wrong_token_and_a_changed_cookie_are_nobody(browser: httpx.Client) -> None:
    assert sign_in(browser, "wrong").status_code == 401
    sign_in(browser)
    name, value = next((n, v) for n, v in browser.cookies.items() if n == "omnigraph_session")
    who, until, signature = value.strip('"').split(".")
    for forged in (
        f"{who}.{until}.{'0' * 64}",
        f"{who}.{int(until) + 1}.{signature}",
        f"YWN0LWJvYg==.{until}.{signature}",
        f"{who}.{until}.",
        "",
        "a.b.c",
    ):
        with httpx.Client(base_url=browser.base_url) as other:
            answer = other.get(G, headers={"Cookie": f"{name}={forged}"})
        assert answer.status_code == 303, forged


def test_UI3_a_token_that_is_taken_away_ends_its_sessions(
    site: Served, browser: httpx.Client
) -> None:
    sign_in(browser)
    assert browser.get(G).status_code == 200
    bob = {digest_of("bob-token"): "act-bob"}
    site.app.tokens.replace({digest_of("another"): "act-ada", **bob})
    assert browser.get(G).status_code == 303
    both = {digest_of("another"): "act-ada", digest_of("ada-token"): "act-ada"}
    site.app.tokens.replace({**both, **bob})
    assert browser.get(G).status_code == 200


def test_UI3_sign_in_leads_nowhere_else(browser: httpx.Client) -> None:
    for address in ("https://elsewhere.example/", "//elsewhere.example", "/ui/\\elsewhere", ""):
        assert sign_in(browser, after=address).headers["location"] == "/ui/"


def test_UI3_a_write_needs_its_own_origin_and_token(site: Served, browser: httpx.Client) -> None:
    sign_in(browser)
    page = browser.get(G)
    form = {"csrf": csrf(page.text), "name": "forged"}
    path = f"{G}/branches"
    for origin in ("https://elsewhere.example", "null", "http://["):
        assert browser.post(path, data=form, headers={"Origin": origin}).status_code == 403
    del browser.headers["Origin"]
    assert browser.post(path, data=form).status_code == 403
    browser.headers["Origin"] = site.url
    assert browser.post(path, data={"name": "forged"}).status_code == 403
    assert browser.post(path, data=form | {"csrf": "0" * 64}).status_code == 403
    with httpx.Client(base_url=site.url, headers={"Origin": site.url}) as other:
        sign_in(other, "bob-token")
        theirs = csrf(other.get(G).text)
    assert browser.post(path, data=form | {"csrf": theirs}).status_code == 403
    assert browser.post(path, json=form).status_code == 415
    assert "forged" not in site.graph.branches.list()
    assert browser.post(path, data=form).status_code == 303
    assert "forged" in site.graph.branches.list()


def test_UI3_what_is_forbidden_is_not_offered_and_is_refused(tmp_path: Path) -> None:
    with (
        served(new_graph(tmp_path), access=Access.READ_ONLY) as site,
        httpx.Client(base_url=site.url, headers={"Origin": site.url}) as browser,
    ):
        sign_in(browser)
        page = browser.get(G)
        assert page.status_code == 200
        assert "Create branch" not in page.text
        entity = browser.get(f"{G}/entities/node/Person/Ada").text
        assert ">Save</button>" not in entity
        asked = browser.post(f"{G}/branches", data={"csrf": csrf(page.text), "name": "x"})
        assert asked.status_code == 403
        assert "x" not in site.graph.branches.list()


BAD = "<script>alert('x')</script>\"'&{{7*7}}"


def test_UI3_markup_is_escaped_wherever_a_value_can_appear(tmp_path: Path) -> None:
    uri = str(tmp_path / "people.omni")
    schema = (
        "node Thing { name: String @key  text: String? }\n"
        "edge Near: Thing -> Thing { why: String? }\n"
    )
    with og.init(uri, schema=schema) as graph:
        add = "query a($n: String, $t: String) { insert Thing { name: $n, text: $t } }"
        graph.mutate(add, {"n": BAD, "t": BAD}, actor=BAD, message=BAD, metadata={"k": BAD})
        graph.mutate(add, {"n": "B", "t": BAD}, actor=BAD)
        near = (
            "query n($a: String, $b: String, $w: String) "
            "{ insert Near { from: $a, to: $b, why: $w } }"
        )
        graph.mutate(near, {"a": BAD, "b": "B", "w": BAD}, message=BAD)
        change = 'query c($t: String) { update Thing set { text: $t } where name = "B" }'
        graph.branches.create("side")
        graph.mutate(change, {"t": f"1{BAD}"}, branch="side", actor=BAD, message=BAD)
        graph.mutate(change, {"t": f"2{BAD}"}, message=BAD)
        review = graph.reviews.open("side", title=BAD, text=BAD, actor=BAD).id
        graph.reviews.comment(review, BAD, entity=("node", "Thing", BAD), actor=BAD)
        graph.reviews.comment(review, BAD, entity=("edge", BAD, BAD))
        graph.reviews.approve(review, actor=f"2{BAD}")
        graph.mutate(change, {"t": f"3{BAD}"}, branch="side")
        ended = graph.reviews.open("side", title=BAD, actor=BAD).id
        graph.reviews.close(ended, actor=BAD)
    text = (
        "query q($p: String) { match { $x: Thing } "
        f'return {{ $x, $x.text as t, "{BAD[:20]}" as lit }} }}'
    )
    bad = BAD.replace("/", "%2F").replace("?", "%3F").replace("{", "%7B").replace("&", "%26")
    with served(uri) as site:
        pages: list[tuple[str, dict[str, str]]] = [
            (G, {}),
            (f"{G}", {"notice": BAD}),
            (f"{G}/commits", {}),
            (f"{G}/commits", {"actor": BAD}),
            (f"{G}/commits", {"type": BAD}),
            (f"{G}/commits", {"since": BAD}),
            (f"{G}/commits", {"branch": BAD}),
            (f"{G}/commits/{bad}", {}),
            (f"{G}/compare", {"from": "main", "to": "side"}),
            (f"{G}/compare", {"from": "main~3", "to": "main", "view": "picture"}),
            (f"{G}/compare", {"from": BAD}),
            (f"{G}/merge", {"source": "side"}),
            (f"{G}/merge", {"source": BAD}),
            (f"{G}/reviews", {}),
            (f"{G}/reviews", {"source": BAD, "target": BAD, "state": "all"}),
            (f"{G}/reviews", {"state": BAD}),
            (f"{G}/reviews/{review}", {"kind": BAD, "type": BAD, "id": BAD}),
            (f"{G}/reviews/{review}", {"by": BAD}),
            (f"{G}/reviews/{ended}", {"notice": BAD}),
            (f"{G}/reviews/{bad}", {}),
            (f"{G}/query", {"q": text, "p.p": BAD}),
            (f"{G}/query", {"q": text, "p.p": BAD, "view": "picture"}),
            (f"{G}/query", {"q": text, "p.p": BAD, "view": "chart"}),
            (f"{G}/query", {"q": BAD}),
            (f"{G}/query", {"point": BAD}),
            (f"{G}/types/node/Thing", {}),
            (f"{G}/types/node/Thing", {"where": BAD}),
            (f"{G}/types/edge/Near", {}),
            (f"{G}/types/node/{bad}", {}),
            (f"{G}/entities/node/Thing/{bad}", {}),
            (f"{G}/entities/node/Thing/{bad}", {"hide": BAD}),
            (f"{G}/entities/node/Thing/B", {}),
            (f"{G}/entities/node/Thing/{bad}x", {}),
            (f"{G}/schema", {"point": BAD}),
            (f"{G}/upkeep", {}),
            ("/ui/sign-in", {"next": BAD}),
            (f"/ui/graphs/{bad}", {}),
        ]
        pages += [(f"{G}/commits/{c.id}", {}) for c in site.graph.commits.list("side")]
        seen = site.client.get(f"{G}/reviews/{review}").text
        for name in ("", f"/{review}/comments", f"/{review}/merge"):
            form = {"source": BAD, "title": BAD, "text": BAD, "kind": BAD, "type": BAD, "by": BAD}
            sent = site.client.post(
                f"{G}/reviews{name}",
                data={"csrf": csrf(seen), **form},
                headers={"Origin": site.url},
            )
            assert sent.status_code in (400, 404), sent.text
            assert "<script>alert" not in sent.text
            assert escape(BAD) in sent.text.replace("&#34;", "&quot;").replace("&#39;", "&#x27;")
        shown = 0
        for path, query in pages:
            answer = site.client.get(path, params=query)
            assert answer.headers["content-type"].startswith("text/html"), path
            assert "<script>alert" not in answer.text, (path, query)
            assert "49" not in re.sub(r"[0-9A-Z]{26}|[0-9a-f]{64}|[0-9.]+", "", answer.text)
            assert not re.search(r'="[^"<>]*<script', answer.text), path
            shown += escape("<script>alert") in answer.text
        assert shown > 20
        svg = site.client.get(f"{G}/pictures/svg/Thing/{bad}").text
        assert "<script>alert" not in svg


def test_a_graph_that_many_look_at_lists_itself(tmp_path: Path) -> None:
    uris = []
    for name in ("one", "two"):
        uri = str(tmp_path / f"{name}.omni")
        seeded_graph(uri, 1, 0)
        uris.append(uri)
    with served(uris) as site:
        page = site.client.get("/ui/").text
        assert "/ui/graphs/one" in page
        assert "/ui/graphs/two" in page


def test_the_list_of_graphs_tells_nothing_of_one_that_may_not_be_read(tmp_path: Path) -> None:
    uris = [new_graph(tmp_path, name) for name in ("mine", "theirs")]
    with og.open(uris[1]) as graph:
        graph.mutate('query q() { insert Person { name: "Zed" } }', message="a secret plan")
    allow = "{ id: r, allow: { actors: { group: all }, actions: [%s] } }"
    policy = "version: 1\ngroups: { all: [%s] }\nrules: [%s]\n"
    files = {}
    for name, actor, action in (
        ("mine", "act-ada", "read"),
        ("theirs", "act-bob", "read"),
        ("server", "act-ada", "graph_list"),
    ):
        files[name] = tmp_path / f"{name}.yaml"
        files[name].write_text(policy % (actor, allow % action))
    with (
        served(
            uris,
            access=Access.READ_ONLY,
            policies={name: str(files[name]) for name in ("mine", "theirs")},
            server_policy=str(files["server"]),
        ) as site,
        httpx.Client(base_url=site.url, headers={"Origin": site.url}) as browser,
    ):
        sign_in(browser)
        page = browser.get("/ui/")
    assert page.status_code == 200
    assert "/ui/graphs/mine" in page.text
    assert "theirs" in page.text
    assert "you may not read it" in page.text
    assert "a secret plan" not in page.text


def test_whoever_may_change_a_branch_may_revert_on_it(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "version: 1\ngroups: { editors: [act-ada] }\nrules:\n"
        "  - id: r\n    allow: { actors: { group: editors }, actions: [read, change] }\n"
    )
    with (
        served(
            new_graph(tmp_path), access=Access.READ_ONLY, policies={"people": str(file)}
        ) as site,
        httpx.Client(base_url=site.url, headers={"Origin": site.url}) as browser,
    ):
        sign_in(browser)
        path = f"{G}/commits/{site.graph.snapshot().commit_id}"
        page = browser.get(path).text
        assert "Revert on" in page
        done = browser.post(f"{path}/revert", data={"csrf": csrf(page), "branch": "main"})
        assert done.status_code == 303, done.text
        forked = browser.post(f"{path}/revert", data={"csrf": csrf(page), "new_branch": "x"})
        assert forked.status_code == 403
