"""The modules of the package as syntax trees, and what the shape tests count in them."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "omnigraph"

CONTEXT_VARIABLES = {
    "query_limits.py:REQUEST": "limits of the running query, asked for by every operator",
    "exec/values/mint.py:_series": "part of a load whose ids follow from it, for every decoder",
}
"""State that no argument shows: each needs a reason."""

PRONOUNS = re.compile(
    r"(who|whom|whose|what|which|one|ones|those|these|this|that|it|its|they|them|we|you|where"
    r"|somebody|someone|something|anybody|anything|nobody|nothing|whoever|whatever)\b",
    re.IGNORECASE,
)
FAST_PATH = "Fast path of:"


@dataclass(frozen=True)
class Module:
    """A file of the package."""

    path: Path

    @cached_property
    def name(self) -> str:
        """Its path below the package."""
        return self.path.relative_to(PACKAGE).as_posix()

    @cached_property
    def text(self) -> str:
        """Its source."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @property
    def docstring(self) -> str:
        """Its docstring, or nothing."""
        return ast.get_docstring(self.tree) or ""

    def classes(self) -> Iterator[ast.ClassDef]:
        """Every class it defines, inner ones included."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package."""
    return tuple(Module(path) for path in sorted(PACKAGE.rglob("*.py")))


def nameless_docstrings() -> list[str]:
    """Modules without a docstring, or with one whose first sentence begins with a pronoun."""
    said = ((m.name, m.docstring.removeprefix(FAST_PATH).strip()) for m in modules())
    return [name for name, text in said if not text or PRONOUNS.match(text)]


def context_variables() -> list[str]:
    """Context variables that no reason is given for."""
    made = (
        f"{module.name}:{target.id}"
        for module in modules()
        for node in module.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and ast.unparse(node.value.func).endswith("ContextVar")
    )
    return [name for name in made if name not in CONTEXT_VARIABLES]


@dataclass(frozen=True)
class TwoWays:
    """An entry of "Two ways, one answer": a path kept for speed, and what it must agree with."""

    title: str
    paths: tuple[str, ...]
    references: tuple[str, ...]
    falls_back: str
    tests: tuple[str, ...]


@cache
def two_ways() -> tuple[TwoWays, ...]:
    """The entries of docs/invariants.md."""
    page = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
    section = page.partition("\n## Two ways, one answer\n")[2].partition("\n## ")[0]
    items = (" ".join(item.split()) for item in re.split(r"^\d+\. ", section, flags=re.M)[1:])
    return tuple(_entry(item) for item in items)


def _entry(item: str) -> TwoWays:
    title, _, rest = item.partition(" Path: ")
    paths, _, rest = rest.partition(" Reference: ")
    references, _, rest = rest.partition(" Falls back ")
    falls_back, _, tests = rest.partition(" Held equal by ")
    files = re.compile(r"`([\w/]+\.py)`")
    return TwoWays(
        title,
        tuple(files.findall(paths)),
        tuple(files.findall(references)),
        falls_back,
        tuple(re.findall(r"`(test_\w+)`", tests)),
    )


def unpaired_fast_paths() -> list[str]:
    """Fast paths that no entry of the page names, and entries whose module does not say so."""
    marked = {module.name for module in modules() if module.docstring.startswith(FAST_PATH)}
    listed = {path for entry in two_ways() for path in entry.paths}
    missing = {n for entry in two_ways() for n in entry.references if not (PACKAGE / n).exists()}
    return [
        *(f"unlisted {name}" for name in marked - listed),
        *(f"unmarked {name}" for name in listed - marked),
        *(f"no-reference {name}" for name in missing),
    ]


PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md")


def missing_modules() -> list[str]:
    """Modules that a page names and that are not there."""
    pages = sorted(page for pattern in PAGES for page in ROOT.glob(pattern))
    named = {
        f"{page.relative_to(ROOT).as_posix()} {path}"
        for page in pages
        for path in re.findall(r"`([\w/]+\.(?:py|lark))`", page.read_text(encoding="utf-8"))
        if "/" in path and not (PACKAGE / path).exists() and not (ROOT / path).exists()
    }
    return sorted(named)


RULES = {
    "nameless-docstring": nameless_docstrings,
    "context-variable": context_variables,
    "fast-path": unpaired_fast_paths,
    "missing-module": missing_modules,
}


def offences(rule: str) -> list[str]:
    """The offences against a rule."""
    return sorted(RULES[rule]())
