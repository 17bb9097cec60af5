"""The modules of the package as syntax trees, and what the shape tests count in them."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "omnigraph"

LINES_MAX, METHODS_MAX = 500, 20
LONG_FILES = {
    "errors.py": "the tree of errors is read as one page",
    "language/query/ast.py": "one tree, a class a kind of node",
    "language/query/parser.py": "one method a rule of the grammar",
    "language/schema/parser.py": "one method a rule of the grammar",
}
BIG_CLASSES = {
    "graph/door.py:Graph": "the one door has a method a verb",
    "language/query/expression_builder.py:ExpressionBuilder": "one method a rule of the grammar",
    "language/query/parser.py:_QueryBuilder": "one method a rule of the grammar",
    "language/schema/parser.py:_SchemaBuilder": "one method a rule of the grammar",
}

SAME_NAME_MODULES = {
    "__init__": "the docstring of a room",
    "ast": "language: one a language",
    "parser": "language: one a language",
    "format": "language: one a language",
    "literals": "language: one a language",
    "run": "exec: one a verb, the folder is the verb",
    "backup": "exec: of a graph; cli: its command",
    "check": "plan: types of a query; exec/upkeep: a graph on disk",
    "cleanup": "storage: of one table; exec: of a graph; cli: its command",
    "columns": "exec/values: of a type; storage/lance: Lance's own",
    "diff": "exec/changes: of rows; cli: its command",
    "embed": "exec/search: vectors of texts; cli: its command",
    "export": "exec/changes: one process; pipeline: which engine",
    "history": "storage: of commits; cli: its commands",
    "profile": "exec: of a query; cli: its table",
    "progress": "exec: the figures; cli: the bar",
    "queries": "storage/manifest: of its rows; cli: its commands",
    "reader": "language: of text; storage/lance: of a table",
    "repair": "storage: of one table; exec: of a graph",
    "schema": "graph: its view; cli: its commands",
    "scope": "plan: of variables; cli: of a command",
    "spark": "the module a Spark program imports; cli: its command",
    "staging": "exec/mutate: pending rows; storage/lance: files of a version",
    "upkeep": "pipeline: which engine; cli: its commands",
}
"""Module names that may repeat, because the folder tells the difference."""

PAIRED = ("language/query/ast.py", "language/schema/ast.py", "plan/ir.py")
"""Trees whose nodes may be called as what they become."""
SAME_NAME_CLASSES: dict[str, str] = {}

RETIRED = frozenset(
    ["told", "found", "place", "places", "held", "wanted", "some", "at", "there", "met", "came"]
)
PUBLIC = {
    ("graph/schema.py", "at"): "graph.schema.at is public",
    ("remote/remote_schema.py", "at"): "graph.schema.at is public",
    ("errors.py", "at"): "SourceError.at is public",
    ("errors.py", "found"): "UnsupportedVersion.found is public",
}

CONTEXT_VARIABLES = {
    "exec/limits.py:_WATCH": "limits of the running query, asked for by every operator",
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


def long_files() -> list[str]:
    """Files that are longer than a file may be."""
    lengths = {module.name: len(module.text.splitlines()) for module in modules()}
    return [n for n, lines in lengths.items() if lines > LINES_MAX and n not in LONG_FILES]


def big_classes() -> list[str]:
    """Classes with more methods than a class may have."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    counts = {
        f"{module.name}:{owner.name}": sum(isinstance(node, functions) for node in owner.body)
        for module in modules()
        for owner in module.classes()
    }
    return [n for n, count in counts.items() if count > METHODS_MAX and n not in BIG_CLASSES]


def repeated_modules() -> list[str]:
    """Modules that are called as another one."""
    homes = defaultdict(list)
    for module in modules():
        homes[module.path.stem].append(module.name)
    names = (name for name in homes if name not in SAME_NAME_MODULES)
    return sorted(home for name in names if len(homes[name]) > 1 for home in homes[name])


def repeated_classes() -> list[str]:
    """Classes that are called as another one outside the trees of the languages and of plans."""
    homes = defaultdict(list)
    for module in modules():
        for owner in module.classes() if module.name not in PAIRED else ():
            homes[owner.name].append(f"{module.name}:{owner.name}")
    names = (name for name in homes if name not in SAME_NAME_CLASSES)
    return sorted(home for name in names if len(homes[name]) > 1 for home in homes[name])


def defined_names(tree: ast.AST) -> Iterator[str]:
    """Every name that a module gives to anything: variables, arguments, attributes, functions,
    classes, aliases, captures."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(ctx=ast.Store(), id=name) | ast.Attribute(ctx=ast.Store(), attr=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


def retired_names() -> list[str]:
    """Words without one meaning, used as names."""
    found = set()
    for module in modules():
        names = {module.path.stem, *defined_names(module.tree)}
        found |= {
            f"{module.name} {name}"
            for name in names
            if name.strip("_").lower() in RETIRED and (module.name, name) not in PUBLIC
        }
    return sorted(found)


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


def stale_exceptions() -> list[str]:
    """Module names that are excepted although they do not repeat."""
    stems = [module.path.stem for module in modules()]
    return [name for name in SAME_NAME_MODULES if stems.count(name) < 2]


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
    "long-file": long_files,
    "big-class": big_classes,
    "repeated-module": repeated_modules,
    "repeated-class": repeated_classes,
    "retired-name": retired_names,
    "nameless-docstring": nameless_docstrings,
    "context-variable": context_variables,
    "fast-path": unpaired_fast_paths,
    "stale-exception": stale_exceptions,
    "missing-module": missing_modules,
}


def offences(rule: str) -> list[str]:
    """The offences against a rule."""
    return sorted(RULES[rule]())
