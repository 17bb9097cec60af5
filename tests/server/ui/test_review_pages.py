"""The pages of reviews: what they show, what they do, what they refuse (SV17, UI3)."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from html import unescape
from pathlib import Path

import httpx
import pytest

from omnigraph.server.bearer import digest_of
from omnigraph.server.serve_settings import Access
from omnigraph.server.served_sets import extras_of_folder
from tests.server.ui.test_sign_in import csrf, sign_in
from tests.server.world import ADD, AGE, Served, new_graph, served

G = "/ui/graphs/people"
POLICY = """
version: 1
groups: { people: [ada, bob, cid], guests: [eve], lookers: [flo] }
protected_branches: [main]
rules:
  - id: all
    allow:
      actors: { group: people }
      actions: [read, change, branch_create, branch_delete, branch_merge, review, invoke_query]
  - id: look
    allow: { actors: { group: lookers }, actions: [read] }
  - id: guests-read
    allow: { actors: { group: guests }, actions: [read] }
  - id: guests-elsewhere
    allow:
      actors: { group: guests }
      actions: [branch_merge, review]
      target_branch_scope: unprotected
required_approvals: { main: 1 }
"""
OLD = "query old() { match { $p: Person  $p.age > 99 } return { $p.name as name } }"
ACTORS = ("ada", "bob", "cid", "eve", "flo")

Browser = Callable[[str], httpx.Client]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Served]:
    """A server whose policy demands an approval, with a check of merges into main."""
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / "checks.gq").write_text(OLD)
    (folder / "checks.yaml").write_text("version: 1\nchecks: [{target: main, query: old}]\n")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    with served(
        new_graph(tmp_path),
        access=Access.READ_ONLY,
        tokens={digest_of(f"{actor}-token"): actor for actor in ACTORS},
        policies={"people": str(policy)},
        extras={"people": extras_of_folder(str(folder))},
    ) as running:
        running.graph.branches.create("work")
        running.graph.mutate(ADD, {"n": "Dee", "a": 40}, branch="work")
        yield running


@pytest.fixture
def browser(site: Served) -> Iterator[Browser]:
    """Browsers in which somebody has signed in."""
    with ExitStack() as stack:

        def signed_in(actor: str) -> httpx.Client:
            client = httpx.Client(
                base_url=site.url,
                timeout=60,
                headers={"Origin": site.url},
            )
            stack.enter_context(client)
            assert sign_in(client, f"{actor}-token").status_code == 303
            return client

        yield signed_in


def send(client: httpx.Client, path: str, page: str, **fields: str) -> httpx.Response:
    """Send a form of a page."""
    return client.post(path, data={"csrf": csrf(page), **fields}, follow_redirects=True)


def seen(client: httpx.Client, path: str, status: int = 200) -> str:
    """A page as people read it: without markup of values."""
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    return unescape(answer.text)


def heads(page: str) -> dict[str, str]:
    """The commits that a page names in its forms."""
    return dict(re.findall(r'name="(\w+_commit)" value="(\w+)"', page))


def opened(site: Served, source: str = "work", target: str = "main") -> str:
    return site.graph.reviews.open(source, target, title="Dee joins", actor="ada").id


def test_SV17_a_review_on_its_pages_from_its_opening_to_its_merge(
    site: Served, browser: Browser
) -> None:
    ada, bob, cid = browser("ada"), browser("bob"), browser("cid")
    compared = seen(ada, f"{G}/compare?from=main&to=work")
    assert f'{G}/reviews?source=work&target=main">Open a review' in compared
    assert "Open a review" in seen(ada, f"{G}/merge?source=work")
    form = seen(ada, f"{G}/reviews?source=work&target=main")
    assert "<option selected>work</option>" in form
    fields = {"source": "work", "target": "main", "title": "Dee joins", "text": "at last"}
    done = send(ada, f"{G}/reviews", form, **fields)
    (review,) = site.graph.reviews.list()
    path = f"{G}/reviews/{review.id}"
    assert done.url.path == path
    assert (review.author, review.title, review.text) == ("ada", "Dee joins", "at last")

    own = seen(ada, path)
    assert ">Approve" not in own
    assert "somebody else approves it" in own
    assert "needs 1 and has 0" in own
    assert "Would merge: <strong>fast forward" in own
    assert 'title="added">+1<' in own
    assert "Merge into main</button>" not in own
    early = send(ada, f"{path}/merge", own, by="entity", **heads(own))
    assert early.status_code == 403
    assert "needs 1 approval(s) and has 0" in unescape(early.text)

    page = seen(bob, path)
    about = {"kind": "node", "type": "Person", "id": "Dee"}
    said = send(bob, f"{path}/comments", page, text="Her?\nReally?", **about)
    assert "Her?\nReally?" in said.text
    assert f'href="{G}/entities/node/Person/Dee?point=work"' in said.text
    half = send(bob, f"{path}/comments", page, text="Kept", kind="node")
    assert half.status_code == 400
    assert ">\nKept</textarea>" in half.text
    assert send(bob, f"{path}/approve", page).status_code == 400
    site.graph.mutate(ADD, {"n": "Old<b>", "a": 120}, branch="work")
    late = send(bob, f"{path}/approve", page, source_commit=heads(page)["source_commit"])
    assert late.status_code == 412
    assert site.graph.reviews.get(review.id).approvals == ()

    page = seen(bob, path)
    assert "Fails 1 check" in page
    assert '{"name": "Old<b>"}' in page
    assert "Fails 1 check" in seen(cid, f"{G}/merge?source=work")
    assert "Old<b>" not in bob.get(path).text
    assert "Merge into main</button>" not in page
    page = send(bob, f"{path}/approve", page, **heads(page)).text
    assert "You have approved it as it is now" in page
    site.graph.mutate('query d() { delete Person where name = "Old<b>" }', branch="work")
    page = seen(bob, path)
    assert "lapsed: work moved" in page
    news = page.partition("New since bob approved")[2].partition("What it would do")[0]
    assert "delete" in news
    assert "Dee" not in news
    page = send(bob, f"{path}/approve", page, source_commit=heads(page)["source_commit"]).text
    assert "lapsed" not in page
    assert "It has the 1 that a merge into main needs" in page

    page = seen(cid, path)
    merged = send(cid, f"{path}/merge", page, by="entity", delete="on", **heads(page))
    assert "merged work into main: fast forward; deleted work" in merged.text
    review = site.graph.reviews.get(review.id)
    assert (review.state, review.ended_by) == ("merged", "cid")
    assert site.graph.commits.get("main").message == "Dee joins"
    assert "Approve" not in merged.text.partition("</header>")[2].replace("Approvals", "")
    assert f'href="{G}/commits/{review.commit_id}"' in merged.text
    assert f'href="{G}/entities/node/Person/Dee?point=main"' in merged.text
    assert send(bob, f"{path}/close", page).status_code == 403, "a form of another browser"
    assert send(cid, f"{path}/close", page).status_code == 409


def test_a_conflict_is_resolved_on_the_page_of_its_review(site: Served, browser: Browser) -> None:
    graph = site.graph
    graph.branches.create("moved")
    graph.mutate(AGE, {"n": "Bob", "a": 30}, branch="moved")
    graph.mutate(AGE, {"n": "Bob", "a": 31}, branch="work")
    review = opened(site, "moved", "work")
    path = f"{G}/reviews/{review}"
    cid = browser("cid")
    page = seen(cid, path)
    assert "1 conflict" in page
    undecided = send(cid, f"{path}/merge", page, by="entity", **heads(page))
    assert undecided.status_code == 409
    answer = {"take.1": "values", "conflict.1": '["node", "Person", "Bob"]', "value.1.age": "32"}
    stale = heads(page) | {"target_commit": graph.commits.get("main").id}
    assert send(cid, f"{path}/merge", page, **answer, **stale).status_code == 412
    assert (
        "merged moved into work" in send(cid, f"{path}/merge", page, **answer, **heads(page)).text
    )
    assert graph.entity("node", "Person", "Bob", branch="work").image.properties["age"] == 32
    assert graph.reviews.get(review).state == "merged"


def test_a_stored_query_is_taken_into_the_editor(site: Served, browser: Browser) -> None:
    cid, flo = browser("cid"), browser("flo")
    page = seen(cid, f"{G}/query")
    assert ">old()</option>" in page
    taken = seen(cid, f"{G}/query?stored=old")
    assert "query old() {" in taken
    assert "rows from" in taken
    for before, replaced in (("", 0), ("ol", 2), ("query o", 7), ("query a() { } query ", 6)):
        words = cid.get(f"{G}/suggest", params={"q": before}).json()["words"]
        assert words[0]["text"] == "old", before
        assert words[0]["insert"].startswith("query old()")
        assert words[0]["insert"].endswith("}\n")
        assert words[0]["replaces"] == replaced
    for before in ("x", "query a() { match { o", "query a() { "):
        words = cid.get(f"{G}/suggest", params={"q": before}).json()["words"]
        assert "old" not in [each["text"] for each in words], before
    assert cid.get(f"{G}/query?stored=nope").status_code == 404
    assert "Stored query" not in seen(flo, f"{G}/query")
    assert flo.get(f"{G}/query?stored=old").status_code == 404
    words = flo.get(f"{G}/suggest", params={"q": "ol"}).json()["words"]
    assert "old" not in [each["text"] for each in words]


def test_UI3_what_is_forbidden_of_a_review_is_not_offered_and_is_refused(
    site: Served, browser: Browser
) -> None:
    review = opened(site)
    path = f"{G}/reviews/{review}"
    for actor in ("flo", "eve"):  # one may only look; one may review, and not into main
        client = browser(actor)
        page = seen(client, path)
        for offer in ("<button>Comment", ">Approve ", "Close without", "Merge into main</button>"):
            assert offer not in page, (actor, offer)
        assert "shown to those who may merge" in page
        form = csrf(client.get("/ui/sign-in").text)
        for verb, fields in (
            ("/comments", {"text": "x"}),
            ("/approve", {"source_commit": site.graph.commits.get("work").id}),
            ("/close", {}),
            ("/merge", {"source_commit": "x", "target_commit": "x"}),
        ):
            refused = client.post(f"{path}{verb}", data={"csrf": form, **fields})
            assert refused.status_code == 403, (actor, verb, refused.text)
        fields = {"csrf": form, "source": "work", "target": "main", "title": "t"}
        assert client.post(f"{G}/reviews", data=fields).status_code == 403
    assert "Open a review" not in seen(browser("flo"), f"{G}/reviews")
    assert "Open a review" not in seen(browser("flo"), f"{G}/compare?from=main&to=work")
    stored = site.graph.reviews.get(review)
    assert (stored.state, stored.comments, stored.approvals) == ("open", (), ())
    ada = browser("ada")
    own = seen(ada, path)
    refused = send(ada, f"{path}/approve", own, source_commit=heads(own)["source_commit"])
    assert refused.status_code == 403
    assert "cannot approve it" in refused.text
    for data in ({"csrf": ""}, {"csrf": "0" * 64}):
        assert ada.post(f"{path}/close", data=data).status_code == 403
    assert (
        ada.post(
            f"{path}/close",
            data={"csrf": csrf(own)},
            headers={"Origin": "https://elsewhere.example"},
        ).status_code
        == 403
    )
    assert site.graph.reviews.get(review).state == "open"


def test_reviews_are_listed_by_state_and_paged_without_loss(site: Served, browser: Browser) -> None:
    ids = [opened(site) for _ in range(53)]
    for review in ids[:2]:
        site.graph.reviews.close(review, actor="bob")
    bob = browser("bob")
    listed: list[str] = []
    address: str | None = f"{G}/reviews"
    while address is not None:
        page = seen(bob, address)
        listed += re.findall(r'<th scope="row"><a href="[^"]*/reviews/(\w+)"', page)
        more = re.findall(r'href="([^"]*page_token[^"]*)"', page)
        address = more[0] if more else None
    assert listed == ids[:1:-1]
    assert seen(bob, f"{G}/reviews?state=closed").count("/reviews/01") == 2
    assert "No review is merged" in seen(bob, f"{G}/reviews?state=merged")
    assert "More reviews" in seen(bob, f"{G}/reviews?state=all")
    seen(bob, f"{G}/reviews?state=odd", 400)
    seen(bob, f"{G}/reviews/{ids[0]}?before=0", 400)
    for number in range(102):
        site.graph.reviews.comment(ids[5], f"word {number};", actor="bob")
    page = seen(bob, f"{G}/reviews/{ids[5]}")
    assert "word 1;" not in page
    (earlier,) = re.findall(r'href="([^"]*before=[^"]*)"', page)
    page = seen(bob, earlier)
    assert [w for w in range(102) if f"word {w};" in page] == [0, 1]


def test_reviews_that_cannot_be_opened_or_found_say_why(site: Served, browser: Browser) -> None:
    bob = browser("bob")
    page = seen(bob, f"{G}/reviews")
    for fields, status, why in (
        ({"source": "gone", "title": "kept"}, 404, "gone"),
        ({"source": "main", "title": "kept"}, 400, "into itself"),
        ({"source": "work", "title": " ", "text": "kept"}, 400, "title of the review is missing"),
        ({"title": "kept"}, 400, "branch to take from is missing"),
    ):
        refused = send(bob, f"{G}/reviews", page, target="main", **fields)
        assert refused.status_code == status, refused.text
        assert why in unescape(refused.text)
        assert "kept" in refused.text
    seen(bob, f"{G}/reviews/01ARZ3NDEKTSV4RRFFQ69G5FAV", 404)
    assert send(bob, f"{G}/reviews/nobody/close", page).status_code == 404
    review = opened(site)
    site.graph.branches.delete("work")
    page = seen(bob, f"{G}/reviews/{review}")
    assert "work is not there any more" in page
    assert "Merge into" not in page
    assert "closed this review" in send(bob, f"{G}/reviews/{review}/close", page).text
    assert "Closed by bob" in seen(bob, f"{G}/reviews/{review}")


def test_a_schema_change_is_on_the_pages_that_compare_merge_review_and_list_it(
    site: Served, browser: Browser
) -> None:
    step = "add node type 'Place'"
    wider = site.graph.schema.text + "\nnode Place { name: String @key }\n"
    site.graph.branches.create("wider")
    first = opened(site, "wider")
    site.graph.reviews.approve(first, actor="bob")
    site.graph.schema.apply(wider, branch="wider")
    ada = browser("ada")
    compared = seen(ada, f"{G}/compare?from=main&to=wider")
    assert step in compared
    assert "Nothing differs" not in compared
    assert step in seen(ada, f"{G}/merge?source=wider")
    review = seen(ada, f"{G}/reviews/{first}")
    assert review.count(step) == 2  # since the approval, and in all
    assert "nothing in it changed" not in review
    head = site.graph.commits.get("wider").id
    assert step in seen(ada, f"{G}/commits/{head}")
    assert step in seen(ada, f"{G}/commits?branch=wider")
