"""The documentation site: a strict build of every page, with no link or host that is missing."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])
FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=\"?(?:https?:)?//[^\s>]+")
# A list or a table that a blank line or an indent is missing before is a paragraph of signs.
UNMADE = re.compile(r"<p>(?:(?!</p>).)*?\n(?:- |\d+\. |\|)", re.S)
CODE = re.compile(r"<pre\b.*?</pre>", re.S)


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """`mkdocs build`, as `make docs` calls it."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=quiet, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site_and_the_readme_is_its_first(site: Path) -> None:
    names = [p.relative_to(ROOT).as_posix().removeprefix("docs/") for p in PAGES]
    assert [n for n in names if not (site / n).with_suffix(".html").exists()] == []
    assert "A typed property-graph database" in (site / "index.html").read_text("utf-8")


def test_nothing_of_a_page_is_fetched_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert FETCHED.findall(page.read_text("utf-8")) == [], page.name


def test_lists_and_tables_are_made(site: Path) -> None:
    for page in site.rglob("*.html"):
        body = CODE.sub("", page.read_text("utf-8"))
        assert UNMADE.findall(body) == [], page.name


def test_a_link_that_leads_nowhere_stops_the_build(tmp_path: Path) -> None:
    for name in ("docs", "scripts", "examples", "bench/results"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for path in [*ROOT.glob("*.md"), *(ROOT / n for n in ("LICENSE", "Dockerfile", "mkdocs.yml"))]:
        shutil.copy(path, tmp_path)
    with (tmp_path / "docs" / "ui.md").open("a") as page:
        page.write("\n[a](gone.md) [b](branches.md#no-such-heading) [c](../examples/gone.py)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    for link in ("'gone.md'", "'#no-such-heading'", "'../examples/gone.py'"):
        assert link in done.stderr
