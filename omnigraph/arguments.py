"""Argument validation of the public API: types are checked against the annotations of a method.

Invariant: a value of another type than the method declares is `BadRequest` that names the argument,
before anything is opened or written, never an exception from deep inside.
"""

import inspect
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from types import NoneType, UnionType
from typing import IO, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from omnigraph.deferred import Deferred
from omnigraph.errors import BadRequest
from omnigraph.light_dataclass import dataclass

P = ParamSpec("P")
R = TypeVar("R")

_WORDS = {
    str: "a text",
    bytes: "bytes",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    os.PathLike: "a path",
    Mapping: "a mapping",
    dict: "a dict",
    NoneType: "None",
}

_MEANT = {
    "node": ("type",),
    "label": ("type",),
    "type_name": ("type",),
    "from": ("from_branch", "from_"),
    "from_": ("from_branch",),
    "base": ("from_branch", "from_"),
    "into": ("branch",),
    "at": ("snapshot",),
    "parameters": ("params",),
    "author": ("actor",),
}
"""Arguments that people look for under other names."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """The types that an argument may have, and those of its items, if it has any."""

    types: tuple[type, ...]
    items: type | None = None
    is_callable: bool = False
    attribute: str = ""  # of a stream or a session, whose classes are many
    words: str = ""
    plain: frozenset[type] = frozenset()  # classes of which every value fits

    def fits(self, value: object) -> bool:
        """Whether a value may be passed."""
        if isinstance(value, bool):
            return bool in self.types
        if isinstance(value, self.types):
            return self._items_fit(value)
        if int in self.types and hasattr(type(value), "__index__"):
            return True
        if self.is_callable and callable(value):
            return True
        return bool(self.attribute) and callable(getattr(value, self.attribute, None))

    def _items_fit(self, value: object) -> bool:
        if self.items is None or value is None:
            return True
        if isinstance(value, Mapping):
            return all(isinstance(key, str) and isinstance(value[key], self.items) for key in value)
        if isinstance(value, str | bytes):
            return str in self.types and isinstance(value, str)
        if isinstance(value, list | tuple | set | frozenset):
            return all(isinstance(item, self.items) for item in value)
        return True  # an iterator is read once, by its user


def checked(call: Callable[P, R]) -> Callable[P, R]:
    """A function that refuses arguments of other types than it declares."""
    known: list[tuple[tuple[str, ...], dict[str, _Kind]]] = []
    takes_any = bool(call.__code__.co_flags & inspect.CO_VARKEYWORDS)

    @wraps(call)
    def door(*args: P.args, **kwargs: P.kwargs) -> R:
        if not known:
            known.append(_kinds(call))  # at the first call: annotations may be deferred imports
        names, kinds = known[0]
        for name, value in zip(names, args, strict=False):
            kind = kinds.get(name)
            if kind is not None and type(value) not in kind.plain and not kind.fits(value):
                raise _wrong(name, value, kind)
        for name, value in kwargs.items():
            kind = kinds.get(name)
            if kind is None:
                if name not in names and not takes_any:
                    raise _unknown(call, name, names)
            elif type(value) not in kind.plain and not kind.fits(value):
                raise _wrong(name, value, kind)
        return call(*args, **kwargs)

    return door


def _unknown(call: Callable[..., object], name: str, names: tuple[str, ...]) -> TypeError:
    """The error of a keyword that a function does not have, in the class that Python gives it."""
    own = [each for each in names if each != "self"]
    meant = next((each for each in _MEANT.get(name, ()) if each in own), None)
    hint = ", ".join(f"{each}=" for each in own) if meant is None else f"{meant}="
    if meant == "type" and "edge" in own:
        hint = "type= for nodes, edge= for edges"
    return TypeError(f"{call.__name__}() has no argument '{name}'; write {hint}")


def _kinds(call: Callable[..., object]) -> tuple[tuple[str, ...], dict[str, _Kind]]:
    """The names of a function's parameters, and the kind of each that has one."""
    parameters = inspect.signature(call).parameters
    kinds = {name: _kind(name, each.annotation) for name, each in parameters.items()}
    return tuple(parameters), {name: kind for name, kind in kinds.items() if kind is not None}


def as_given(text: str | None) -> Any:
    """A text from outside for an argument that takes a few texts: the method refuses others."""
    return text


def require_address(uri: str | os.PathLike[str]) -> None:
    """Pass for the address of a graph that can be looked for."""
    text = os.fspath(uri)
    try:
        if text and "://" not in text:
            os.stat(text)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # whoever opens it says more
    except (OSError, ValueError) as cause:  # too long, a NUL, half a sign
        raise BadRequest(f"{text[:60]!r} is no address of a graph ({cause.args[-1]})") from cause
    if not text or "\0" in text:
        raise BadRequest(f"{text!r} is no address of a graph", "give a path, file:// or s3://")


def _wrong(name: str, value: object, kind: _Kind) -> BadRequest:
    hint = "pass another value"
    if name == "id" and isinstance(value, list | tuple):
        array = json.dumps([str(each) for each in value], ensure_ascii=False)
        hint = f"the id of a key of several properties is the text of an array: {array!r}"
    return BadRequest(f"{name} is {kind.words}, not {_described(value)}", hint)


def _described(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__} {repr(value)[:60]}"


def _kind(name: str, annotation: Any) -> _Kind | None:
    """The kind of a parameter; None where anything may be passed."""
    if name == "params":
        return None  # binding them to a query says more
    if name == "spark":
        return _Kind((NoneType,), attribute="createDataFrame", words="a Spark session or None")
    if isinstance(annotation, Deferred):
        annotation = annotation.resolved
    if annotation in (inspect.Parameter.empty, Any) or isinstance(annotation, str):
        return None
    members = (
        get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    )
    types: list[Any] = []
    items: type | None = None
    is_callable, attribute = False, ""
    words = []
    for member in members:
        origin = get_origin(member) or member
        if origin in (Any, object) or isinstance(member, str | TypeVar):
            return None
        if origin is Literal:
            types.append(str)  # the method says which texts there are
            words.append(_WORDS[str])
        elif origin is Callable:
            is_callable = True
            words.append("a function")
        elif origin is IO:
            attribute = "write"
            words.append("a stream")
        elif isinstance(member, Deferred):
            types.append(member)  # asked last, so that it is imported for a value of its own
            words.append(f"a {repr(member).rpartition('.')[2]}")
        else:
            types.append(origin)
            args = get_args(member)
            if origin in (Collection, Iterable, Mapping, dict) and args[-1] is str:
                items = str
            words.append(_words(origin, items))
    known = tuple(sorted(types, key=lambda each: isinstance(each, Deferred)))
    plain = frozenset(known) if items is None else frozenset(known) & {str, NoneType}
    return _Kind(known, items, is_callable, attribute, " or ".join(words), plain)


def _words(origin: Any, items: type | None) -> str:
    if origin in (Collection, Iterable):
        return "a list of texts" if items is str else "a list"
    return _WORDS.get(origin, f"a {getattr(origin, '__name__', origin)}")
