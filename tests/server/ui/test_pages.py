"""Every page as HTML: status, headers, links that resolve, filters, writes (UI0 to UI8)."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from omnigraph.errors import StorageFailed
from omnigraph.graph.views import BranchesView
from omnigraph.server.upkeep_schedule import UpkeepClock, parse_schedule
from tests.server.ui.seeded import seeded_graph
from tests.server.world import Served, new_graph, served

G = "/ui/graphs/people"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A served graph with a history."""
    uri = str(tmp_path_factory.mktemp("ui") / "people.omni")
    seeded_graph(uri)
    with served(uri) as running:
        yield running


def look(site: Served, path: str, status: int = 200, **query: object) -> str:
    """The HTML of a page."""
    answer = site.client.get(path, params=query or None)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text


def send(site: Served, path: str, page: str, **fields: str) -> httpx.Response:
    """Send a form of a page, as its browser does."""
    token = re.search(r'name="csrf" value="([0-9a-f]+)"', page)
    assert token is not None
    return site.client.post(
        path, data={"csrf": token[1], **fields}, headers={"Origin": site.url}, follow_redirects=True
    )


def test_UI0_a_browser_is_led_to_the_pages_and_a_program_to_the_document(site: Served) -> None:
    browser = site.client.get("/", headers={"Accept": "text/html"})
    assert (browser.status_code, browser.headers["location"]) == (303, "/ui/")
    program = site.client.get("/")
    assert (program.status_code, program.headers["location"]) == (303, "/openapi.json")
    bare = site.client.get("/ui")
    assert (bare.status_code, bare.headers["location"]) == (303, "/ui/")
    assert site.client.get("/ui/").headers["location"] == G
    assert "people" in look(site, "/ui/", all=1)


def test_UI8_every_link_of_a_seeded_graph_resolves(site: Served) -> None:
    seen: set[str] = set()
    waiting = [f"{G}", "/ui/?all=1"]
    shapes: dict[str, int] = {}
    while waiting:
        address = waiting.pop()
        path = urlsplit(address).path
        shape = re.sub(
            r"(commits|reviews|entities/\w+/\w+|pictures/\w+/\w+)/[^/?]+", r"\1/*", address
        )
        shape = re.sub(r"\?.*", lambda m: "&".join(sorted(set(re.findall(r"\w+=", m[0])))), shape)
        if address in seen or shapes.get(shape, 0) == 2 or shape.count("=") > 3:
            continue
        shapes[shape] = shapes.get(shape, 0) + 1
        seen.add(address)
        answer = site.client.get(address, headers={"Accept": "text/html"}, follow_redirects=True)
        assert answer.status_code == 200, f"{address}: {answer.status_code} {answer.text[:300]}"
        if not answer.headers["content-type"].startswith("text/html") or path.endswith("/blob"):
            continue
        for raw in re.findall(r'(?:href|src)="([^"]*)"', answer.text):
            link = urljoin(address, unescape(raw))
            assert link.startswith("/ui/"), f"{address} links to {raw}"
            waiting.append(link.partition("#")[0])
    assert len(seen) > 60
    assert any(re.search(r"/reviews/\w{26}$", address) for address in seen)


def test_UI3_pages_carry_their_security_headers(site: Served) -> None:
    for path in (G, f"{G}/query", "/ui/static/pages.js", f"{G}/commits/none"):
        headers = site.client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    page = look(site, G)
    assert "<script>" not in page
    assert " style=" not in page
    assert not re.search(r" on\w+=", page)


def test_the_overview_has_branches_types_and_distances(site: Served) -> None:
    page = look(site, G)
    assert "review/conflict" in page
    assert "2 ahead, 1 behind" in page
    assert ">WorksAt</a>" in page
    assert ">v1</a>" in page


def test_commits_are_paged_and_filtered(site: Served) -> None:
    page = look(site, f"{G}/commits")
    assert page.count('class="entry"') == 50
    older = unescape(re.findall(r'href="([^"]*page_token[^"]*)"', page)[0])
    rest = look(site, older)
    shown = re.findall(r"/commits/(\w{26})", page) + re.findall(r"/commits/(\w{26})", rest)
    every = {commit.id for commit in site.graph.commits.list(all_branches=True)}
    assert set(shown) == every
    assert look(site, f"{G}/commits", actor="act-dee").count('class="entry"') == 1
    assert "Cy goes to Paris" in look(site, f"{G}/commits", actor="act-dee")
    assert look(site, f"{G}/commits", type="Company").count('class="entry"') == 1
    assert look(site, f"{G}/commits", since="2999-01-01").count('class="entry"') == 0
    assert look(site, f"{G}/commits", branch="review/move").count('class="entry"') == 50
    look(site, f"{G}/commits", 400, since="soon")


def test_a_commit_shows_before_and_after(site: Served) -> None:
    (commit,) = [c for c in site.graph.commits.list() if c.message == "Cy goes to Paris"]
    page = look(site, f"{G}/commits/{commit.id}")
    assert "act-dee" in page
    assert '<td class="removed">null</td>' in page
    assert '<td class="added">Paris</td>' in page
    assert (
        "person"
        not in look(site, f"{G}/commits/{commit.id}", kind="edge")
        .lower()
        .partition('class="changes"')[2]
        .partition("</ol>")[0]
    )
    first = site.graph.commits.list()[-1]
    look(site, f"{G}/commits/{first.id}")


def test_branches_tags_and_reverts_are_made_from_a_commit(site: Served) -> None:
    (commit,) = [c for c in site.graph.commits.list() if c.message == "Bob moves to Rome"]
    path = f"{G}/commits/{commit.id}"
    page = look(site, path)
    assert send(site, f"{path}/branch", page, name="from/here").status_code == 200
    assert "from/here" in site.graph.branches.list()
    assert send(site, f"{path}/tag", page, name="moved").status_code == 200
    assert site.graph.tags.get("moved").commit_id == commit.id
    done = send(site, f"{path}/revert", page, branch="", new_branch="revert/rome")
    assert "reverted on revert/rome" in done.text
    assert (
        site.graph.entity("node", "Person", "Bob", branch="revert/rome").image.properties["city"]
        is None
    )
    assert site.graph.entity("node", "Person", "Bob").image.properties["city"] == "Rome"
    again = send(site, f"{path}/branch", page, name="from/here")
    assert again.status_code == 409
    assert "from/here" in again.text


def test_a_branch_is_created_and_deleted_on_the_overview(site: Served) -> None:
    page = look(site, G)
    made = send(site, f"{G}/branches", page, name="short/lived", **{"from": "main"})
    assert "created branch short/lived" in made.text
    gone = send(site, f"{G}/branches/delete", page, name="short/lived")
    assert "deleted branch short/lived" in gone.text
    assert "short/lived" not in site.graph.branches.list()
    refused = send(site, f"{G}/branches/delete", page, name="main")
    assert refused.status_code == 400


def test_a_compare_lists_filters_and_draws(site: Served) -> None:
    page = look(site, f"{G}/compare", **{"from": "main", "to": "review/conflict"})
    assert "Oslo" in page
    assert "Paris" in page
    assert re.findall(r'title="(\w+)">([^<]*)<', page) == [
        ("added", "+0"),
        ("changed", "~2"),
        ("removed", "−0"),
    ]
    assert "Merge review/conflict into main" in page
    drawn = look(
        site, f"{G}/compare", **{"from": "main", "to": "review/conflict", "view": "picture"}
    )
    assert 'class="dot t1 changed"' in drawn
    only = look(site, f"{G}/compare", **{"from": "main~3", "to": "main", "type": "Knows"})
    assert 'added">Paris' not in only
    assert "Nothing differs" in look(site, f"{G}/compare", **{"from": "main", "to": "main"})
    look(site, f"{G}/compare", 404, **{"from": "nowhere"})


def test_a_conflict_is_shown_side_by_side_resolved_and_merged(site: Served) -> None:
    site.graph.branches.create("review/again", from_="review/conflict")
    page = look(site, f"{G}/merge", source="review/again")
    assert "1 conflict" in page
    assert 'name="value.1.city" value="Oslo"' in page
    assert "2024-01-03T10:00:00.000Z" in page
    assert "Oslo" in page
    assert "Paris" in page
    heads = dict(re.findall(r'name="(\w+_commit)" value="(\w+)"', page))
    fields = {"source": "review/again", "target": "main", "by": "entity", **heads}
    refused = send(site, f"{G}/merge", page, **fields)
    assert refused.status_code == 409
    named = '["node", "Person", "Cy"]'
    stale = fields | {"target_commit": site.graph.commits.list()[-1].id}
    moved = send(site, f"{G}/merge", page, **stale, **{"take.1": "source", "conflict.1": named})
    assert moved.status_code == 412
    answers = {"take.1": "values", "conflict.1": named, "value.1.age": "old"}
    assert send(site, f"{G}/merge", page, **fields, **answers).status_code == 400
    done = send(
        site,
        f"{G}/merge",
        page,
        **fields,
        **{"take.1": "values", "conflict.1": named, "value.1.city": "Tromsø", "delete": "on"},
        message="settled",
    )
    assert "merged review/again into main" in done.text
    assert site.graph.entity("node", "Person", "Cy").image.properties["city"] == "Tromsø"
    assert "review/again" not in site.graph.branches.list()


def test_a_merge_without_conflicts_shows_what_would_change(site: Served) -> None:
    site.graph.branches.create("review/plain")
    site.graph.mutate(
        'query m() { update Person set { city: "Kyiv" } where name = "Gus" }', branch="review/plain"
    )
    site.graph.mutate('query d() { delete Person where name = "Guest 0" }', branch="review/plain")
    for by in ("entity", "property"):
        page = look(site, f"{G}/merge", source="review/plain", by=by)
        assert "What would change on main" in page
        assert '<span class="changed" title="changed">~1</span>' in page
        assert ("Kyiv" in page) == (by == "entity")
    assert site.graph.entity("node", "Person", "Gus").image.properties["city"] is None
    done = send(site, f"{G}/merge", page, source="review/plain", target="main")
    assert "merged review/plain into main" in done.text
    assert "has everything" in look(site, f"{G}/merge", source="review/plain")


def test_a_query_is_a_link_with_its_parameters(site: Served) -> None:
    text = (
        "query older($n: I32) { match { $p: Person  $p.age > $n } return { $p, $p.age as age } "
        "order { age desc } limit 5 }"
    )
    asks = look(site, f"{G}/query", q=text)
    assert 'name="p.n"' in asks
    assert "<tbody>" not in asks
    page = look(site, f"{G}/query", q=text, **{"p.n": "30"})
    assert page.count("<tr>") == 6
    for view in ("chart", "picture", "explain"):
        assert "5 rows" in look(site, f"{G}/query", q=text, view=view, **{"p.n": "30"})
    rows = site.client.get(f"{G}/query", params={"q": text, "p.n": "30", "view": "json"}).json()
    assert len(rows["rows"]) == 5
    csv = site.client.get(f"{G}/query", params={"q": text, "p.n": "30", "view": "csv"})
    assert csv.text.splitlines()[0] == "p,age"
    past = look(site, f"{G}/query", q=text, point="main~1", **{"p.n": "30"})
    assert page.count("<tr>") == past.count("<tr>")
    wrong = look(site, f"{G}/query", 400, q="query x() { match { $p: Person } return { $p.agee } }")
    assert "age" in wrong
    writes = look(site, f"{G}/query", 400, q='query x() { delete Person where name = "Ada" }')
    assert "this page reads" in writes


def test_the_editor_is_told_faults_and_completions(site: Served) -> None:
    wrong = {"q": "query x() {\n match { $p: Person } return { $p.agee } }"}
    (fault,) = site.client.get(f"{G}/check", params=wrong).json()["faults"]
    assert fault["line"] == 2
    words = site.client.get(f"{G}/suggest", params={"q": "query x() { match { $p: Pe"}).json()
    assert words["typed"] == "Pe"
    assert "Person" in [word["text"] for word in words["words"]]


def test_SV16_the_upkeep_page_shows_the_schedule_and_its_jobs(tmp_path: Path) -> None:
    schedule = "03:20 optimize; sun 04:00 cleanup keep=100"
    with served(new_graph(tmp_path), upkeep=schedule) as running:
        page = look(running, f"{G}/upkeep")
        assert "<code>03:20 optimize</code>" in page
        assert "<code>sun 04:00 cleanup keep=100</code>" in page
        assert page.count("next ") == 2
        clock = UpkeepClock(parse_schedule(schedule), running.app.jobs.start)
        assert clock.look(running.graphs.opened(), datetime.now() + timedelta(days=1)) >= 1
        page = look(running, f"{G}/upkeep")
        assert '<th scope="row">optimize</th>' in page


def test_rows_of_a_type_are_paged_without_loss(site: Served) -> None:
    ids: list[str] = []
    address: str | None = f"{G}/types/node/Person"
    while address is not None:
        page = look(site, address)
        ids += re.findall(
            r'<th scope="row"><a href="[^"]*/entities/node/Person/[^"]*">([^<]*)<', page
        )
        links = re.findall(r'href="([^"]*page_token[^"]*)"', page)
        address = unescape(links[0]) if links else None
    assert len(ids) == len(set(ids)) == site.graph.page("node", "Person").total
    few = look(site, f"{G}/types/node/Person", where="age > 68")
    assert "Person " in few
    assert look(site, f"{G}/types/node/Person", where='$it.name = "Ada"').count('scope="row"') == 1
    assert look(site, f"{G}/types/edge/Knows", where="$it.since > 2019").count('scope="row"') == 50
    look(site, f"{G}/types/node/Person", 400, where="nonsense <<")
    look(site, f"{G}/types/node/Nobody", 404)
    chosen = look(site, f"{G}/types/node/Person", column="age")
    assert '<th scope="col">age</th>' in chosen
    assert '<th scope="col">city</th>' not in chosen


def test_an_entity_is_edited_on_a_branch_that_the_page_makes(site: Served) -> None:
    path = f"{G}/entities/node/Person/Dee"
    page = look(site, path)
    assert '<option value="">a new branch</option>' in page
    assert re.search(r'<select name="branch">\s*<option value="">a new branch', page)
    done = send(
        site,
        f"{path}?point=main",
        page,
        branch="",
        new_branch="edit/dee",
        point="main",
        **{
            "old.city": "",
            "new.city": "Lima",
            "old.role": "",
            "new.role": "lead",
            "old.age": "23",
            "new.age": "23",
            "old.tags": '["a", "b"]',
            "new.tags": '["c"]',
        },
        message="Dee moves",
    )
    assert "changed on branch edit/dee" in done.text
    changed = site.graph.entity("node", "Person", "Dee", branch="edit/dee").image.properties
    assert (changed["city"], changed["role"], changed["tags"]) == ("Lima", "lead", ["c"])
    assert site.graph.entity("node", "Person", "Dee").image.properties["city"] is None
    assert len(site.graph.commits.list("edit/dee")) == len(site.graph.commits.list()) + 1
    wrong = send(site, path, page, branch="edit/dee", **{"old.age": "23", "new.age": "999"})
    assert wrong.status_code == 400
    assert "nothing was written" in wrong.text
    none = send(site, path, page, branch="", new_branch="", **{"new.age": "1"})
    assert none.status_code == 400


def test_a_neighbourhood_grows_fifty_at_a_time_and_keeps_its_points(site: Served) -> None:
    path = f"{G}/entities/node/Person/Ada"
    page = look(site, path)
    assert "12 of 77 shown" in page
    more = [unescape(a) for a in re.findall(r'data-stay href="([^"]*)"', page) if "Knows" in a]
    wider = look(site, more[0])
    assert "62 of 77 shown" in wider
    assert "15 left" in wider
    links = [unescape(a) for a in re.findall(r'data-stay href="([^"]*)"', wider)]
    whole = look(site, next(a for a in links if "112" in a))
    assert "77 of 77 shown" in whole
    spot = r'data-key="Person:Bob"><title>[^<]*</title><circle cx="([^"]*)" cy="([^"]*)"'
    assert re.findall(spot, page) == re.findall(spot, look(site, path))
    hidden = look(site, path, hide="Person:Bob")
    assert 'data-key="Person:Bob"' not in hidden
    svg = site.client.get(f"{G}/pictures/svg/Person/Ada")
    assert svg.headers["content-type"] == "image/svg+xml"
    assert "<style>" in svg.text
    document = site.client.get(f"{G}/pictures/json/Person/Ada").json()
    assert {"type": "Company", "id": "Acme", "label": "Acme"} in document["nodes"]
    pinned = look(site, path, pin='["Person:Bob", 400, 300]')
    assert re.findall(spot, pinned) == [("400", "300")]
    look(site, path, 400, x="[1]")


def test_blobs_are_shown_when_they_are_pictures_and_kept_apart(site: Served) -> None:
    query = {"entity": "node", "type": "Person", "id": "Ada", "property": "photo"}
    image = site.client.get(f"{G}/blob", params=query)
    assert image.headers["content-type"] == "image/png"
    assert "sandbox" in image.headers["content-security-policy"]
    site.graph.put_blob("node", "Person", "Bob", "photo", b"<script>alert(1)</script>")
    text = site.client.get(f"{G}/blob", params=query | {"id": "Bob"})
    assert text.headers["content-type"] == "application/octet-stream"
    assert text.headers["content-disposition"] == "attachment"


def test_a_schema_is_drawn_and_a_new_one_planned(site: Served) -> None:
    page = look(site, f"{G}/schema")
    assert ">Company</text>" in page
    wider = site.graph.schema.text.replace("age: I32?", "age: I32?\n  nick: String?")
    planned = send(site, f"{G}/schema", page, schema=wider, branch="main")
    assert planned.status_code == 200
    assert "nick" in planned.text.partition("The plan")[2]
    broken = send(site, f"{G}/schema", page, schema="node {", branch="main")
    assert broken.status_code == 400
    assert "nick" not in site.graph.schema.text


def test_upkeep_shows_tables_indexes_and_counters(site: Served) -> None:
    page = look(site, f"{G}/upkeep")
    assert "Person.city" in page
    assert "phase_c.published" in page or "Storage calls" in page
    assert "Nothing was removed" in look(site, f"{G}/upkeep", cleanup=3)


def test_UI7_new_commits_come_as_events(site: Served) -> None:
    with site.client.stream("GET", f"{G}/events") as events:
        lines = events.iter_lines()
        assert next(lines).startswith("retry")
        site.graph.mutate('query a() { insert Company { name: "New" } }', message="elsewhere")
        site.graph.mutate('query a() { insert Company { name: "Newer" } }')
        counts = []
        for line in lines:
            if line.startswith("data: "):
                counts.append(line.removeprefix("data: "))
                if counts[-1] == '{"new":2}':
                    break
        assert counts


def test_the_pages_can_be_left_out(tmp_path: Path) -> None:
    uri = str(tmp_path / "people.omni")
    seeded_graph(uri, 1, 0)
    with served(uri, ui=False) as site:
        assert site.client.get(G).status_code == 404
        home = site.client.get("/", headers={"Accept": "text/html"})
        assert (home.status_code, home.headers["location"]) == (303, "/openapi.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x", '["Person","Ada","Knows","out",Infinity]'),
        ("x", "[" * 3_000),
        ("sel", "[" * 3_000),
        ("pin", f'["Person:Ada",{"9" * 400},1]'),
        ("pin", '["Person:Ada",NaN,1]'),
        ("pin", '["Person:Ada",1,1e400]'),
        ("pin", '["Person:Ada",1,1e300]'),
    ],
    ids=["endless", "deep step", "deep choice", "long", "nan", "infinite", "far"],
)
def test_an_address_of_a_picture_that_cannot_be_read_is_400(
    site: Served, name: str, value: str
) -> None:
    kind, person = "node", site.graph.page("node", "Person", limit=1).entities[0].id
    said = look(site, f"{G}/entities/{kind}/Person/{person}", 400, **{name: value})
    assert "the address of the picture cannot be read" in said


@pytest.mark.parametrize(
    ("fields", "status"),
    [({"new.age": "old", "old.age": "1"}, 400), ({"new.age": "3000", "old.age": "1"}, 400)],
    ids=["no value", "beyond its range"],
)
def test_UI6_a_branch_for_an_edit_that_is_refused_is_not_left(
    site: Served, fields: dict[str, str], status: int
) -> None:
    person = site.graph.page("node", "Person", limit=1).entities[0].id
    path = f"{G}/entities/node/Person/{person}"
    refused = send(site, path, look(site, path), new_branch="edit/refused", **fields)
    assert refused.status_code == status
    assert "nothing was written" in refused.text
    assert "edit/refused" not in site.graph.branches.list()


def test_a_form_that_is_refused_has_the_status_of_the_api(site: Served) -> None:
    page = look(site, G)
    assert send(site, f"{G}/branches", page, name="x", **{"from": "nope"}).status_code == 404
    assert send(site, f"{G}/branches", page, name="main").status_code == 400
    assert send(site, f"{G}/branches", page, name="taken").status_code == 200
    assert send(site, f"{G}/branches", page, name="taken").status_code == 409
    site.graph.branches.delete("taken")


def test_SV6_a_form_at_which_the_server_fails_names_no_path(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise StorageFailed("read", "/somewhere/secret")

    page = look(site, G)
    monkeypatch.setattr(BranchesView, "create", broken)
    answer = send(site, f"{G}/branches", page, name="x")
    assert answer.status_code == 500
    assert "/somewhere" not in answer.text
