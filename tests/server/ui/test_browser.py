"""The pages in a real browser: one walk from sign-in to a merge, axe-core clean, no console error.

Screenshots are kept in the folder that `OMNIGRAPH_SCREENSHOTS` names, else in the test's own.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.server.serve_settings import Access
from omnigraph.server.served_sets import extras_of_folder
from tests.server.ui.seeded import ADD, seeded_graph
from tests.server.world import Served, served

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium: apt-get install chromium, then run this again"
)
G = "/ui/graphs/people"
WIDE, NARROW = {"width": 1200, "height": 800}, {"width": 390, "height": 760}
STORED = """
query friends($n: String) @description("Whom somebody knows") {
  match { $p: Person { name: $n }  $p knows $f }
  return { $f, $f.age as age }
}
"""
_RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that trusts its actors."""
    folder = tmp_path_factory.mktemp("browser")
    uri = str(folder / "people.omni")
    seeded_graph(uri, more_commits=8)
    (folder / "queries").mkdir()
    (folder / "queries" / "stored.gq").write_text(STORED)
    extras = {"people": extras_of_folder(str(folder / "queries"))}
    with served(uri, access=Access.TRUSTED, extras=extras) as running:
        yield running


class Walk:
    """A page of a browser that watches what the browser says."""

    def __init__(self, page: Any, site: Served, folder: Path, axe: Any) -> None:
        self.page, self.site, self.folder, self.axe = page, site, folder, axe
        self.said: list[str] = []
        self.faults: list[tuple[Any, ...]] = []
        self.hosts: set[str] = set()
        page.set_default_timeout(60_000)
        page.on("console", lambda m: self.said.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda cause: self.said.append(str(cause)))
        page.on("request", lambda r: self.hosts.add(re.sub(r"^(\w+://[^/]*).*", r"\1", r.url)))
        page.on("dialog", lambda dialog: dialog.accept())

    def open(self, path: str) -> None:
        self.page.goto(self.site.url + path)

    def keep(self, name: str) -> None:
        """Look at the page with axe, and keep how it looks: light and dark."""
        faults = self.axe.run(self.page, options=_RULES).response["violations"]
        listed = [(f["id"], [n["html"][:160] for n in f["nodes"]][:3]) for f in faults]
        self.faults += [(name, *each) for each in listed]
        self.page.screenshot(path=self.folder / f"{name}.png")

    def keep_all(self, name: str) -> None:
        self.keep(name)
        self.page.emulate_media(color_scheme="dark")
        self.keep(f"{name}-dark")
        self.page.set_viewport_size(NARROW)
        self.page.emulate_media(color_scheme="light")
        self.page.screenshot(path=self.folder / f"{name}-narrow.png")
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= NARROW["width"], f"{name} is wider than a phone: {wide}"
        self.page.set_viewport_size(WIDE)


@pytest.fixture
def walk(site: Served, tmp_path: Path) -> Iterator[Walk]:
    """A browser at the server's door."""
    sync_api = pytest.importorskip("playwright.sync_api")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    folder = Path(os.environ.get("OMNIGRAPH_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield Walk(browser.new_page(viewport=WIDE, color_scheme="light"), site, folder, axe)
        finally:
            browser.close()


def test_UI8_a_person_signs_in_branches_edits_resolves_merges_and_asks(
    walk: Walk, site: Served
) -> None:
    page = walk.page
    walk.open(G)
    walk.keep("sign-in")
    page.get_by_label("Token").fill("ada-token")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"**{G}")
    walk.keep_all("overview")
    # A branch.
    page.get_by_label("New branch").fill("review/dee")
    page.get_by_role("button", name="Create branch").click()
    page.get_by_text("created branch review/dee").wait_for()
    # Said once; a refused name stays in its field; work of its own is deleted by its name.
    page.reload()
    page.get_by_label("New branch").wait_for()
    assert page.locator(".notice").count() == 0
    site.graph.branches.create("own/work")
    site.graph.mutate(ADD, {"n": "Own", "a": 1}, branch="own/work")
    page.get_by_label("New branch").fill("own/work")
    page.get_by_role("button", name="Create branch").click()
    page.locator(".problem").wait_for()
    assert page.get_by_label("New branch").input_value() == "own/work"
    page.get_by_role("button", name="Delete branch own/work").click()
    page.get_by_text("1 commit", exact=True).wait_for()
    walk.keep_all("delete-branch")
    page.get_by_label("Type the name of the branch").fill("own/work")
    page.get_by_role("button", name="Delete branch and its commits").click()
    page.get_by_text("deleted branch own/work").wait_for()
    assert all("409" in said for said in walk.said), walk.said  # the two refusals
    walk.said.clear()
    # An edit, on that branch.
    walk.open(f"{G}/entities/node/Person/Cy?point=review/dee")
    page.get_by_label("city").fill("Lima")
    page.get_by_label("on branch").select_option("review/dee")
    page.get_by_role("button", name="Save").click()
    page.get_by_text("changed on branch review/dee").wait_for()
    assert site.graph.entity("node", "Person", "Cy").image.properties["city"] == "Paris"
    walk.keep_all("entity")
    # Expanding a node in its picture, in place.
    walk.open(f"{G}/entities/node/Person/Ada")
    page.get_by_role("link", name="Expand 50 more").first.click()
    page.get_by_text("62 of 77 shown").or_(page.get_by_text("62 of 78 shown")).first.wait_for()
    assert "x=" in page.url
    page.evaluate("document.getElementById('neighbourhood').scrollIntoView()")
    walk.keep("neighbourhood")
    page.go_back()
    page.get_by_text("12 of 7").first.wait_for()
    # The difference.
    walk.open(f"{G}/compare?from=main&to=review/dee")
    walk.keep_all("compare")
    page.get_by_role("link", name="Picture").click()
    page.locator(".dot.changed").first.wait_for()
    walk.keep("compare-picture")
    # A conflict: main moves the same person elsewhere, and the page of main says so.
    walk.open(f"{G}/commits")
    site.graph.mutate(
        'query m() { update Person set { city: "Rome" } where name = "Cy" }', actor="act-bob"
    )
    page.get_by_text("1 new commit").wait_for()
    page.get_by_role("link", name="Show", exact=True).click()
    walk.keep_all("commits")
    walk.open(f"{G}/merge?source=review/dee")
    page.get_by_text("1 conflict", exact=False).first.wait_for()
    walk.keep_all("merge")
    page.get_by_label("Value of city for Cy").fill("Tromsø")
    page.get_by_label("Message").fill("settled")
    page.get_by_role("button", name="Merge into main").click()
    page.get_by_text("merged review/dee into main").wait_for()
    assert site.graph.entity("node", "Person", "Cy").image.properties["city"] == "Tromsø"
    walk.keep_all("commit")
    # A review that somebody else opened.
    walk.open(f"{G}/reviews")
    walk.keep_all("reviews")
    page.get_by_role("link", name="Cy moves").click()
    page.get_by_label("Comment", exact=True).fill("Why Oslo?")
    page.get_by_role("button", name="Comment", exact=True).click()
    page.get_by_text("commented", exact=True).wait_for()
    page.get_by_role("button", name="Approve review/conflict").click()
    page.get_by_text("You have approved it as it is now").wait_for()
    walk.keep_all("review")
    # A question.
    walk.open(f"{G}/query")
    text = page.get_by_label("Text", exact=True)
    text.fill("query q() { match { $p: Person } return { $p, $p.agee as n } limit 9 }")
    page.get_by_text("has no property 'agee'").wait_for()
    text.fill("")
    text.press_sequentially("frie")
    page.get_by_role("option", name="Whom somebody knows").wait_for()
    text.press("Tab")
    assert text.input_value().startswith("query friends($n: String)")
    page.get_by_role("button", name="Run").click()
    page.get_by_label("n String").fill("Ada")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("cell", name="Bob").wait_for()
    walk.keep_all("stored-query")
    text.fill(
        "query q() { match { $p: Person  $p knows $f } return { $p, $f, $p.age as n } limit 9 }"
    )
    page.get_by_role("button", name="Run").click()
    page.get_by_text("9 rows").wait_for()
    walk.keep_all("query")
    page.get_by_role("link", name="picture").click()
    page.locator("svg .node").first.wait_for()
    walk.keep("query-picture")
    for name, path in (
        ("type", "types/node/Person"),
        ("schema", "schema"),
        ("upkeep", "upkeep"),
    ):
        walk.open(f"{G}/{path}")
        walk.keep_all(name)
    # Dark by choice, kept for the next page.
    page.get_by_role("button", name="Change between light and dark").click()
    walk.open(G)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert walk.faults == [], "axe-core"
    assert walk.said == []
    assert walk.hosts <= {site.url, "blob:null"}, walk.hosts
