"""What keeps values under keys: LRUs, cached functions, and mappings that are asked before filled.

A mapping counts where it begins empty, as an attribute or a global, and a key is both looked up in
it and stored there. A key that is less than what determines its value gives a wrong answer, so each
is listed in `docs/invariants.md`, is of one operation, or is no cache.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.shape.modules import Module, modules

_BOUNDED = {"Lru", "Cache"}
_FUNCTIONS = {"cache", "lru_cache"}
_MAPPINGS = {
    "dict",
    "set",
    "OrderedDict",
    "defaultdict",
    "Counter",
    "WeakKeyDictionary",
    "WeakValueDictionary",
}
_STORES = {"setdefault", "add", "update"}
_MAY_HAVE = re.compile(
    rf"= \{{\}}|({'|'.join(_MAPPINGS)})(\[.*\])?\(\)|default_factory|Lru|Cache\(|functools"
)
_HOME = ("lru.py", "exec/memory/cache.py")  # what the others are made of


@dataclass
class _Uses:
    """Names of mappings of one scope: those that begin empty, those asked and those filled. An
    attribute of `self` has the name of its class before it."""

    empty: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)

    def memos(self) -> set[str]:
        """Those that are all three, also where another class of the module asks or fills them."""
        return {
            name
            for name in self.empty
            for names in [{name, f"?.{name.rpartition('.')[2]}"}]
            if names & self.asked and names & self.stored
        }


def caches() -> set[str]:
    """The name of each cache of the package: its module, and its class and attribute, its global
    or its function."""
    return {
        f"{module.name}:{name}"
        for module in modules()
        if module.name not in _HOME and _MAY_HAVE.search(module.text)
        for name in {*called(module), *uses(module.tree).memos()}
    }


# LRUs and cached functions


def called(module: Module) -> Iterator[str]:
    is_imported = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "functools"
        and any(each.name in _FUNCTIONS for each in node.names)
        for node in ast.walk(module.tree)
    )
    yield from _made_in(module.tree, (), is_imported)


def _made_in(node: ast.AST, path: tuple[str, ...], has_functions: bool) -> Iterator[str]:
    decorators = getattr(node, "decorator_list", [])
    for child in ast.iter_child_nodes(node):
        inner = path
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (*path, child.name)
            if has_functions and any(_name(d) in _FUNCTIONS for d in child.decorator_list):
                yield ".".join(inner)
        value = child.value if isinstance(child, ast.Assign | ast.AnnAssign) else None
        if value is not None and any(_made(each) in _BOUNDED for each in ast.walk(value)):
            assert isinstance(child, ast.Assign | ast.AnnAssign)
            own = _own(_target(child))
            owner = path[:1] if own is not None else path
            yield ".".join((*owner, own or ast.unparse(_target(child))))
            continue
        made = _made(child)
        is_function = has_functions and made in _FUNCTIONS and child not in decorators
        if made in _BOUNDED or is_function:
            yield ".".join(path)
        yield from _made_in(child, inner, has_functions)


def _made(node: ast.AST) -> str:
    """The name of what is constructed or called; nothing for a method."""
    if not isinstance(node, ast.Call):
        return ""
    is_method = isinstance(node.func, ast.Attribute) and _name(node.func.value) != "functools"
    return "" if is_method else _name(node)


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _name(node.func)
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# Mappings


def uses(tree: ast.Module) -> _Uses:
    uses = _Uses()
    _walk(tree, "", uses, is_body=True)
    return uses


def _walk(node: ast.AST, owner: str, uses: _Uses, *, is_body: bool) -> None:
    for child in ast.iter_child_nodes(node):
        _note(child, owner, uses, is_body=is_body)
        if isinstance(child, ast.ClassDef):
            _walk(child, child.name, uses, is_body=True)
        else:
            _walk(child, owner, uses, is_body=False)


def _note(node: ast.AST, owner: str, uses: _Uses, *, is_body: bool) -> None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "get":
            uses.asked.add(_subject(node.func.value, owner))
        elif node.func.attr in _STORES:
            uses.stored.add(_subject(node.func.value, owner))
    elif isinstance(node, ast.Compare):
        if any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            uses.asked.update(_subject(each, owner) for each in node.comparators)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        uses.stored.add(_subject(node.value, owner))
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        target = _target(node)
        name = _subject(target, owner)
        if is_body and owner and isinstance(target, ast.Name):
            name = f"{owner}.{target.id}"  # a field
        if not _is_empty(node.value):
            uses.stored.add(name)
        elif is_body or _own(target) is not None:
            uses.empty.add(name)


def _subject(node: ast.AST, owner: str) -> str:
    """What an expression names: an attribute of `self` or of another value, or a variable."""
    own = _own(node)
    if own is not None:
        return f"{owner}.{own}"
    return f"?.{node.attr}" if isinstance(node, ast.Attribute) else _name(node)


def _target(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> ast.expr:
    return node.targets[0] if isinstance(node, ast.Assign) else node.target


def _own(node: ast.AST) -> str | None:
    """The attribute of `self`, if it is one."""
    is_own = isinstance(node, ast.Attribute) and _name(node.value) == "self"
    return node.attr if is_own and isinstance(node, ast.Attribute) else None


def _is_empty(value: ast.expr | None) -> bool:
    """Whether a value is a new mapping or set without entries."""
    if isinstance(value, ast.Dict):
        return not value.keys
    if not isinstance(value, ast.Call):
        return False
    if _name(value) == "field":
        factories = [each.value for each in value.keywords if each.arg == "default_factory"]
        return any(_name(each) in _MAPPINGS for each in factories)
    return _name(value) in _MAPPINGS and (not value.args or _name(value) == "defaultdict")
