"""Hooks of MkDocs: the README and what pages link to beside `docs/` become part of the site.

Pages are written for a reader of the repository, so a link leads from file to file there. Each
link is turned into the one between the same two files of the site; a link to a file that the site
does not have is left as it is, and the strict build refuses it.
"""

import re
from pathlib import Path
from posixpath import join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
BESIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "Dockerfile")
FOLDERS = ("examples", "bench/results")
FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<fragment>#[^)\s]*)?(?=\))")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """The files beside `docs/`, under the names they have in the site."""
    kept = (p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if is_kept(p))
    for path in [*(ROOT / name for name in BESIDE), *sorted(kept)]:
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, site_name(name), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page whose links lead to files of the site; what stands in code is left alone."""
    pieces = FENCED.split(markdown)
    own = page.file.src_uri

    def in_site(link: re.Match[str]) -> str:
        target = site_name(normpath(join(repository_name(own), "..", link["path"])))
        if files.get_file_from_path(target) is None:
            return link[0]
        return relpath(target, join(own, "..")) + (link["fragment"] or "")

    return "".join(p if n % 2 else LINK.sub(in_site, p) for n, p in enumerate(pieces))


def site_name(path: str) -> str:
    """Where a file of the repository is in the site."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def repository_name(path: str) -> str:
    """Where a page of the site is in the repository."""
    if path == "index.md":
        return "README.md"
    return path if path in BESIDE else f"docs/{path}"


def is_kept(path: Path) -> bool:
    """Whether a file of an example is its source, not what a run of it left."""
    parts = path.relative_to(ROOT).parts
    return path.is_file() and not any(p.endswith((".omni", ".pyc")) or p[:2] == "__" for p in parts)
