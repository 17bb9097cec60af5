"""What the documents point at exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)\b")


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchor(heading: str) -> str:
    """The anchor a heading gets: lower case, signs dropped, spaces to dashes."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)}


def broken_links(page: Path) -> list[str]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    relative = [link for link in LINK.findall(text) if "://" not in link]
    return [link for link in relative if not leads_somewhere(page, link)]


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, fragment = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not fragment or fragment in anchors(target))


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.M))


def make_commands(page: Path) -> set[str]:
    """Commands as a reader would copy them: alone on a line of a code block, or in backticks."""
    text = page.read_text(encoding="utf-8")
    code = [*FENCED.findall(text), *re.findall(r"`(make [^`]+)`", text)]
    return {target for piece in code for target in MAKE.findall(piece)}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_make_command_is_a_target(page: Path) -> None:
    assert make_commands(page) - make_targets() == set()


def test_the_readme_gives_the_two_commands() -> None:
    assert {"demo", "test"} <= make_commands(ROOT / "README.md")


def test_every_page_is_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in LINK.findall(readme)}
    assert [page_name(p) for p in PAGES if p.name != "README.md" and p not in linked] == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[a](gone.md) [b](#a-heading) [c](#no-heading) [d](page.md)\n")
    assert broken_links(page) == ["gone.md", "#no-heading"]
