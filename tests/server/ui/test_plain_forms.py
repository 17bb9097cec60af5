"""Every form that a page offers, sent as a browser without scripts sends it (UI8)."""

from collections.abc import Iterator

import httpx
import pytest

import omnigraph as og
from omnigraph.server.router import Router
from omnigraph.server.serve_settings import Access
from omnigraph.server.ui.ui_table import PAGES
from tests.server.ui.plain_browser import PlainForm, forms_of
from tests.server.ui.seeded import ADD, SCHEMA, seeded_graph
from tests.server.world import Served, served

G = "/ui/graphs/people"
NOTE, RETURN = "\n a line end before, one after\n", "a carriage\rreturn"
_SIGN_IN = "ui_sign_in_form"
_ROUTER = Router(PAGES)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    uri = str(tmp_path_factory.mktemp("plain") / "people.omni")
    seeded_graph(uri, people=3, more_commits=2)
    with og.open(uri) as graph:
        graph.mutate(
            "query note($t: String, $r: String) { insert Note { title: $r, text: $t } }",
            {"t": NOTE, "r": RETURN},
        )
    with served(uri, access=Access.TRUSTED) as running:
        sign_in(running, "ada-token")
        yield running


def forms(site: Served, path: str, **query: str) -> list[PlainForm]:
    """The forms of a page."""
    answer = site.client.get(path, params=query or None)
    assert answer.status_code == 200, answer.text
    return forms_of(answer.text)


def form(site: Served, path: str, ends: str, **query: str) -> PlainForm:
    """The one form of a page whose address ends so and that writes or plans."""
    fitting = [
        f for f in forms(site, path, **query) if f.method == "post" and f.path.endswith(ends)
    ]
    assert len(fitting) >= 1, (path, ends)
    return fitting[0]


def sent(site: Served, given: PlainForm, **typed: str) -> httpx.Response:
    return given.sent(site.client, site.url, **typed)


def ages(site: Served, branch: str) -> dict[str, int]:
    """The ages of people by name."""
    every = "query q() { match { $p: Person } return { $p.name as name, $p.age as age } }"
    return {row["name"]: row["age"] for row in site.graph.query(every, branch=branch).rows}


def sign_in(site: Served, token: str) -> None:
    """Sign in, by the form of the door."""
    (door,) = (each for each in forms(site, "/ui/sign-in") if each.path == "/ui/sign-in")
    assert sent(site, door, token=token, next=G).status_code == 200


def pages(site: Served) -> list[str]:
    graph = site.graph
    head = graph.snapshot().commit_id
    review = next(each.id for each in graph.reviews.list() if each.state == "open")
    return [
        G,
        f"{G}/commits",
        f"{G}/commits/{head}",
        f"{G}/compare?from=v1&to=main",
        f"{G}/merge?source=review/conflict",
        f"{G}/reviews",
        f"{G}/reviews/{review}",
        f"{G}/query?q=query+q()+%7B+match+%7B+%24p%3A+Person+%7D+return+%7B+%24p.name+%7D+%7D",
        f"{G}/types/node/Person",
        f"{G}/entities/node/Person/Ada",
        f"{G}/schema",
        f"{G}/upkeep",
    ]


def test_forms_that_look_give_a_page_for_each_of_their_buttons(site: Served) -> None:
    asked = set()
    for page in pages(site):
        for each in forms(site, page):
            for button in each.buttons if each.method == "get" else ():
                answer = sent(site, each, **button)
                assert answer.status_code == 200, (page, each, answer.text)
                asked.add(_ROUTER.find("GET", each.path.encode())[0].operation)
    looks = ("commits", "compare", "merge_review", "query", "review", "schema", "type_rows")
    assert asked >= {f"ui_{name}" for name in looks}


def test_every_form_that_writes_does_what_it_says(site: Served) -> None:
    graph, wrote = site.graph, set()

    def write(page: str, ends: str, **typed: str) -> httpx.Response:
        given = form(site, page, ends)
        answer = sent(site, given, **typed)
        assert answer.status_code == 200, (page, given, answer.text)
        wrote.add(_ROUTER.find("POST", given.path.encode())[0].operation)
        return answer

    write(G, "/branches", name="added")
    assert "added" in graph.branches.list()
    head = graph.snapshot().commit_id
    write(f"{G}/commits/{head}", "/branch", name="here")
    assert graph.snapshot("here").commit_id == head
    write(f"{G}/commits/{head}", "/tag", name="tagged")
    assert ("tagged", head) in [(tag.name, tag.commit_id) for tag in graph.tags.list()]
    write(f"{G}/commits/{head}", "/revert")
    assert f"revert/{head[:10].lower()}" in graph.branches.list()

    write(f"{G}/entities/node/Person/Bob?point=added", "/Bob", **{"new.age": "77"})
    assert ages(site, "added")["Bob"] == 77
    write(f"{G}/merge?source=added", "/merge", delete="on")
    assert ages(site, "main")["Bob"] == 77
    assert "added" not in graph.branches.list()
    write(f"{G}/merge?source=review/conflict", "/merge")  # the first choice: the source's

    graph.mutate(ADD, {"n": "Zoe", "a": 1}, branch="here")
    opened = write(f"{G}/reviews", "/reviews", source="here", title="Zoe joins").url.path
    write(opened, "/comments", text="Who is\nZoe?")
    assert graph.reviews.get(opened.rpartition("/")[2]).comments[0].text == "Who is\nZoe?"
    sign_in(site, "bob-token")  # an author cannot approve
    write(opened, "/approve")
    write(opened, "/merge")
    assert ages(site, "main")["Zoe"] == 1
    graph.branches.create("left")
    left = graph.reviews.open("left", title="Nothing", actor="act-ada")
    write(f"{G}/reviews/{left.id}", "/close")
    assert graph.reviews.get(left.id).state == "closed"

    assert "No change" in write(f"{G}/schema", "/schema", schema=SCHEMA).text
    write(G, "/branches/delete")
    write(G, "/sign-out")
    sign_in(site, "ada-token")
    assert wrote == {each.operation for each in PAGES if each.method == "POST"} - {_SIGN_IN}


def test_a_text_with_line_ends_is_not_changed_by_a_form_that_was_not_touched(site: Served) -> None:
    by_text = "query q($t: String) { match { $n: Note  $n.text = $t } return { $n.id as id } }"
    (note,) = site.graph.query(by_text, {"t": NOTE}).rows
    page = f"{G}/entities/node/Note/{note['id']}"
    before = site.graph.snapshot().commit_id
    answer = sent(site, form(site, page, f"/{note['id']}"), branch="main")
    assert (answer.status_code, "nothing" in answer.text.lower()) == (400, True), answer.text
    assert site.graph.snapshot().commit_id == before
