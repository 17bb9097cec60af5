"""Notices that a server alone writes, forms that keep what was typed, and deletions that ask."""

import json
import re
from collections.abc import Iterator
from html import unescape

import httpx
import pytest

from omnigraph.server.serve_settings import Access
from tests.server.ui.plain_browser import PlainForm, forms_of
from tests.server.ui.seeded import ADD, MOVE, seeded_graph
from tests.server.ui.test_pages import G, look, send
from tests.server.world import Served, served

NOTICE = re.compile(r'<p class="notice" role="status">([^<]*)</p>')
PROBLEM = re.compile(r'<pre class="problem" role="alert">([^<]*)</pre>')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    uri = str(tmp_path_factory.mktemp("drafts") / "people.omni")
    seeded_graph(uri, people=12, more_commits=3)
    with served(uri) as running:
        yield running


def notices(page: str) -> list[str]:
    return [unescape(text) for text in NOTICE.findall(page)]


def form(page: str, path: str) -> PlainForm:
    (found,) = [each for each in forms_of(page) if each.path == path and each.method == "post"]
    return found


# ---- notices


@pytest.mark.parametrize(
    "path",
    ["", "/commits", "/compare", "/merge", "/reviews", "/query", "/schema", "/upkeep",
     "/types/node/Person", "/entities/node/Person/Ada"],
)  # fmt: skip
def test_an_address_writes_no_notice(site: Served, path: str) -> None:
    page = look(site, f"{G}{path}", notice="You have won a prize")
    assert "You have won a prize" not in page
    assert notices(page) == []


def test_a_notice_is_shown_once(site: Served) -> None:
    done = send(site, f"{G}/branches", look(site, G), name="told/once")
    assert notices(done.text) == ["created branch told/once"]
    assert "notice" not in str(done.url)
    assert notices(site.client.get(done.url).text) == []
    assert notices(look(site, G)) == []


def test_a_notice_that_the_server_did_not_sign_is_not_shown(site: Served) -> None:
    page = look(site, G)
    token = re.search(r'name="csrf" value="([0-9a-f]+)"', page)
    assert token is not None
    made = site.client.post(
        f"{G}/branches",
        data={"csrf": token[1], "name": "told/signed"},
        headers={"Origin": site.url},
    )
    assert made.status_code == 303
    (cookie,) = made.headers.get_list("set-cookie")
    assert "HttpOnly; SameSite=Strict" in cookie
    value = cookie.partition("=")[2].partition(";")[0]
    text, until, signature = value.split(".")
    forged = (
        f"{'WW91IHdvbg=='}.{until}.{signature}",
        f"{text}.{int(until) + 60}.{signature}",
        f"{text}.{until}",
        "x.y.z",
        "é",
    )
    for wrong in forged:
        assert notices(_with_cookies(site, f"omnigraph_flash={wrong}; {_browser(site)}").text) == []
    other = _with_cookies(site, f"omnigraph_flash={value}")
    assert notices(other.text) == [], "another browser"
    shown = _with_cookies(site, f"omnigraph_flash={value}; {_browser(site)}")
    assert notices(shown.text) == ["created branch told/signed"]
    assert "omnigraph_flash=; Max-Age=0" in shown.headers["set-cookie"]


def _with_cookies(site: Served, cookies: str) -> httpx.Response:
    return httpx.get(site.url + G, headers={"Cookie": cookies.encode()})


def _browser(site: Served) -> str:
    return f"omnigraph_browser={site.client.cookies['omnigraph_browser']}"


def test_a_notice_is_of_its_actor(site: Served) -> None:
    with served(site.graph.uri, access=Access.TRUSTED) as other:
        client = other.client
        page = client.get("/ui/sign-in").text
        for token in ("ada-token", "bob-token"):
            signed = form(page, "/ui/sign-in").sent(client, other.url, token=token, next=G)
            assert signed.status_code == 200
            if token == "ada-token":
                assert notices(signed.text) == []
                csrf = re.search(r'name="csrf" value="([0-9a-f]+)"', signed.text)
                assert csrf is not None
                made = client.post(
                    f"{G}/branches",
                    data={"csrf": csrf[1], "name": "by/ada"},
                    headers={"Origin": other.url},
                )
                assert made.status_code == 303
                page = client.get("/ui/sign-in").text
        assert notices(client.get(G).text) == []


# ---- what was typed


def test_a_refused_branch_name_is_kept(site: Served) -> None:
    page = look(site, G)
    refused = form(page, f"{G}/branches").sent(
        site.client, site.url, name="empty", **{"from": "review/conflict"}
    )
    assert refused.status_code == 409
    kept = form(refused.text, f"{G}/branches").values
    assert (kept["name"], kept["from"]) == (["empty"], ["review/conflict"])


def test_a_refused_edit_is_kept(site: Served) -> None:
    address = f"{G}/entities/node/Person/Bob"
    typed = {"new.age": "151", "new.city": "Narvik", "new.role": "lead", "message": "moves <north>"}
    for where in ({"branch": "main"}, {"branch": "", "new_branch": "edit/typed-in"}):
        site.graph.mutate(MOVE, {"n": "Bob", "c": "Rome"})
        page = look(site, address)
        refused = form(page, address).sent(site.client, site.url, **typed, **where)
        assert refused.status_code == 400
        kept = form(refused.text, address).values
        for name, text in (typed | where).items():
            assert kept[name] == [text], name
        assert kept["old.age"] == form(page, address).values["old.age"]
        again = form(refused.text, address).sent(site.client, site.url, **{"new.age": "51"})
        assert "changed on branch" in again.text
        point = where["branch"] or "edit/typed-in"
        image = site.graph.entity("node", "Person", "Bob", snapshot=point).image
        assert image.properties["city"] == "Narvik"
        assert image.properties["age"] == 51
        site.graph.mutate('query back() { update Person set { age: 30 } where name = "Bob" }')


def test_a_field_that_nobody_touched_shows_what_is_there_now(site: Served) -> None:
    address = f"{G}/entities/node/Person/Dee"
    page = look(site, address)
    site.graph.mutate(MOVE, {"n": "Dee", "c": "Lima"})
    refused = form(page, address).sent(site.client, site.url, branch="main", **{"new.age": "no"})
    kept = form(refused.text, address).values
    assert (kept["new.city"], kept["old.city"], kept["new.age"]) == (["Lima"], ["Lima"], ["no"])


def test_refused_forms_of_a_commit_are_kept(site: Served) -> None:
    commit = site.graph.commits.list()[0].id
    address = f"{G}/commits/{commit}"
    page = look(site, address)
    for verb, other, typed in (
        ("branch", "tag", {"name": "empty"}),
        ("tag", "branch", {"name": "v1"}),
        ("revert", "tag", {"branch": "", "new_branch": "empty", "message": "not this"}),
    ):
        refused = form(page, f"{address}/{verb}").sent(site.client, site.url, **typed)
        assert refused.status_code in (400, 409), verb
        kept = form(refused.text, f"{address}/{verb}").values
        assert {name: kept[name] for name in typed} == {n: [t] for n, t in typed.items()}
        if verb != "revert":
            assert form(refused.text, f"{address}/{other}").values["name"] == [""]
    empty = form(page, f"{address}/branch").sent(site.client, site.url, name=" ")
    assert empty.status_code == 400
    assert form(empty.text, f"{address}/branch")


def test_refused_decisions_of_a_merge_are_kept(site: Served) -> None:
    page = look(site, f"{G}/merge", source="review/conflict")
    typed = {"take.1": "values", "value.1.city": "Tromsø", "message": "as agreed", "delete": "on"}
    named = json.dumps(["node", "Person", "Cy"])
    stale = {"target_commit": site.graph.commits.list()[-1].id, "conflict.1": named}
    refused = form(page, f"{G}/merge").sent(site.client, site.url, **typed, **stale)
    assert refused.status_code == 412
    kept = form(refused.text, f"{G}/merge").values
    assert {name: kept[name] for name in typed} == {n: [t] for n, t in typed.items()}
    review = next(each for each in site.graph.reviews.list() if each.source == "review/conflict")
    address = f"{G}/reviews/{review.id}"
    page = look(site, address)
    refused = form(page, f"{address}/merge").sent(site.client, site.url, **typed, **stale)
    assert refused.status_code == 412
    kept = form(refused.text, f"{address}/merge").values
    assert {name: kept[name] for name in typed} == {n: [t] for n, t in typed.items()}


def test_a_refused_text_is_not_read_as_markup(site: Served) -> None:
    bad = '"><script>alert(1)</script>'
    address = f"{G}/entities/node/Person/Bob"
    page = look(site, address)
    refused = form(page, address).sent(
        site.client, site.url, branch="main", message=bad, **{"new.age": bad}
    )
    assert refused.status_code == 400
    assert bad not in refused.text
    assert form(refused.text, address).values["message"] == [bad]


# ---- deleting a branch


def test_a_branch_with_commits_of_its_own_is_deleted_by_its_name(site: Served) -> None:
    site.graph.branches.create("own/work")
    for name in ("Ina", "Jon"):
        site.graph.mutate(ADD, {"n": name, "a": 1}, branch="own/work")
    page = look(site, G)
    path = f"{G}/branches/delete"
    asked = send(site, path, page, name="own/work")
    assert asked.status_code == 409
    assert "2 commits</strong> of this branch are on no other branch" in asked.text
    confirm = next(each for each in forms_of(asked.text) if "confirm" in each.values)
    for typed in ("", "own", "OWN/WORK"):
        again = confirm.sent(site.client, site.url, confirm=typed)
        assert again.status_code == 409
        assert PROBLEM.findall(again.text)
        kept = next(each for each in forms_of(again.text) if "confirm" in each.values)
        assert kept.values["confirm"] == [typed]
    site.graph.mutate(ADD, {"n": "Kim", "a": 1}, branch="own/work")
    moved = confirm.sent(site.client, site.url, confirm="own/work")
    assert moved.status_code == 409
    assert "3 commits" in moved.text
    confirm = next(each for each in forms_of(moved.text) if "confirm" in each.values)
    gone = confirm.sent(site.client, site.url, confirm="own/work")
    assert notices(gone.text) == ["deleted branch own/work"]
    assert "own/work" not in site.graph.branches.list()


def test_a_branch_whose_commits_another_has_is_deleted_at_once(site: Served) -> None:
    site.graph.branches.create("merged/work")
    site.graph.mutate(ADD, {"n": "Lea", "a": 1}, branch="merged/work")
    site.graph.branches.create("release")
    site.graph.branches.merge("merged/work", "release")
    gone = send(site, f"{G}/branches/delete", look(site, G), name="merged/work")
    assert notices(gone.text) == ["deleted branch merged/work"]
    assert send(site, f"{G}/branches/delete", look(site, G), name="release").status_code == 409
