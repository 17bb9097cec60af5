"""Dataclasses (`dataclasses.dataclass`) that are cheap to define: one method is generated, late.

The standard library compiles `__init__`, `__repr__`, `__eq__`, `__hash__`, `__setattr__` and
`__delattr__` for every class, which takes half a millisecond: a process that follows one step of a
graph would spend a third of its start on it. Here only `__init__` is compiled, when the first
object is made or its signature is asked for, and the others are shared functions.

Invariant: a class behaves as the standard library's would. What is not plain (class variables,
ordering, slots or a method that the class has by itself) is left to the standard
library. `fields`, `replace`, `asdict`, pickling, copying and `match` work as they do there.
"""

import dataclasses
from abc import update_abstractmethods
from collections.abc import Callable
from inspect import get_annotations, signature
from operator import attrgetter
from reprlib import recursive_repr
from types import GenericAlias, UnionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls=None, /, *, frozen=False, slots=False, eq=True, kw_only=False, repr=True, **more
    ):
        """Make a class a dataclass."""

        def made(own):
            asked = {"frozen": frozen, "slots": slots, "eq": eq, "kw_only": kw_only, "repr": repr}
            if more or not _is_plain(own, repr=repr):
                return dataclasses.dataclass(**asked, **more)(own)
            return _made(own, **asked)

        return made if cls is None else made(cls)


_ODD = ("ClassVar", "InitVar", "KW_ONLY")
_MISSING = dataclasses.MISSING
_STATED = frozenset(
    f"__{name}__"
    for name in (
        *("init", "repr", "eq", "hash", "setattr", "delattr"),
        *("slots", "getstate", "setstate", "match_args"),
    )
)
"""A class that has one of these by itself is not plain."""


class _Params:
    """What a dataclass that inherits from another asks of it."""

    __slots__ = ("eq", "frozen", "init", "order", "repr", "unsafe_hash")

    def __init__(self, *, eq: bool, frozen: bool, repr: bool) -> None:
        self.eq, self.frozen, self.repr = eq, frozen, repr
        self.init, self.order, self.unsafe_hash = True, False, False


_PLAIN = (type, UnionType, GenericAlias)
"""Annotations that say nothing but a type. Printing the others to look inside takes long."""


def _is_plain(cls: type, *, repr: bool) -> bool:
    for name, kind in get_annotations(cls).items():
        default = cls.__dict__.get(name, _MISSING)
        if isinstance(default, dataclasses.Field):
            default = default.default
        if type(default).__hash__ is None:
            return False
        if kind is dataclasses.InitVar or not (isinstance(kind, _PLAIN) or _is_typed(str(kind))):
            return False
    stated = _STATED if repr else _STATED - {"__repr__"}
    return stated.isdisjoint(cls.__dict__)


def _is_typed(kind: str) -> bool:
    return not any(word in kind for word in _ODD)


def _made(cls: Any, *, frozen: bool, slots: bool, eq: bool, kw_only: bool, repr: bool) -> Any:
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        for field in getattr(base, "__dataclass_fields__", {}).values():
            fields[field.name] = field
    own = _own_fields(cls, kw_only=kw_only)
    fields.update((field.name, field) for field in own)
    if slots:
        cls = _slotted(cls, [field.name for field in own])
    cls.__dataclass_fields__ = fields
    cls.__dataclass_params__ = _Params(eq=eq, frozen=frozen, repr=repr)
    stated = [field for field in fields.values() if field.init and not field.kw_only]
    cls.__init__ = _late_init(cls, list(fields.values()), frozen=frozen)
    cls.__signature__ = _LATE_SIGNATURE
    type.__setattr__(cls, "__match_args__", tuple(field.name for field in stated))
    if repr:
        cls.__repr__ = _repr([field.name for field in fields.values() if field.repr])
    if eq:
        _compared(cls, fields, frozen=frozen)
    if frozen:
        _freeze(cls, frozenset(fields))
        if slots:
            cls.__getstate__, cls.__setstate__ = _state, _restore
    update_abstractmethods(cls)
    return cls


def _own_fields(cls: Any, *, kw_only: bool) -> list[Any]:
    own = []
    for name, kind in get_annotations(cls).items():
        default = cls.__dict__.get(name, _MISSING)
        field: Any = default
        if not isinstance(default, dataclasses.Field):
            field = dataclasses.field(default=default)
        elif field.default is _MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, field.default)
        field.name, field.type = name, kind
        field.kw_only = kw_only if field.kw_only is _MISSING else field.kw_only
        field._field_type = dataclasses._FIELD  # type: ignore[attr-defined]
        own.append(field)
    return own


def _slotted(cls: Any, names: list[str]) -> Any:
    """The class once more, with slots: a class cannot get them later."""
    inherited = {slot for base in cls.__mro__[1:-1] for slot in base.__dict__.get("__slots__", ())}
    content = dict(cls.__dict__)
    for name in (*names, "__dict__", "__weakref__"):
        content.pop(name, None)
    content["__slots__"] = tuple(name for name in names if name not in inherited)
    slotted: Any = type(cls)(cls.__name__, cls.__bases__, content)
    slotted.__qualname__ = cls.__qualname__
    return slotted


def _late_init(cls: Any, fields: list[Any], *, frozen: bool) -> Any:
    """An `__init__` that compiles the real one and makes room for it."""
    _require_order(fields)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        real()(self, *args, **kwargs)

    def real() -> Any:
        init = cls.__init__
        if init is __init__:  # two threads may both come here: they compile the same
            init = cls.__init__ = _init(cls, fields, frozen=frozen)
        return init

    __init__.real = real  # type: ignore[attr-defined]
    return __init__


class _LateSignature:
    """Class attribute `__signature__`: that of the real `__init__`, for who asks."""

    def __get__(self, instance: object, owner: Any) -> Any:
        if instance is not None:
            raise AttributeError("__signature__")
        init = owner.__init__
        whole = signature(init.real() if hasattr(init, "real") else init)
        return whole.replace(parameters=list(whole.parameters.values())[1:])


_LATE_SIGNATURE = _LateSignature()


def _init(cls: Any, fields: list[Any], *, frozen: bool) -> Any:
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": _MISSING}
    body = []
    for field in fields:
        value = _value(field, known, has_slots="__slots__" in cls.__dict__)
        if value is not None:
            name = field.name
            body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    text = f"def __init__({_parameters(fields)}):\n " + "\n ".join(body or ["pass"])
    exec(text, known)
    init = known["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


def _value(field: Any, known: dict[str, Any], *, has_slots: bool) -> str | None:
    """The expression for a field's value; None for a field that `__init__` does not set."""
    name: str = field.name
    if field.default_factory is not _MISSING:
        known[f"_make_{name}"] = field.default_factory
        made = f"_make_{name}()"
        return f"{made} if {name} is _missing else {name}" if field.init else made
    if field.default is not _MISSING:
        known[f"_default_{name}"] = field.default
        if not field.init:
            return f"_default_{name}" if has_slots else None  # else the class has it
    return name if field.init else None


def _require_order(fields: list[Any]) -> None:
    given = [each for each in fields if each.init and not each.kw_only]
    optional = [_default(each) is not None for each in given]
    if optional != sorted(optional):
        late = given[len(optional) - 1 - optional[::-1].index(False)].name
        raise TypeError(f"non-default argument {late!r} follows default argument")


def _parameters(fields: list[Any]) -> str:
    stated = [field for field in fields if field.init]
    given, named = (
        [each for each in stated if each.kw_only is is_named] for is_named in (False, True)
    )
    texts = [f"{each.name}{_default(each) or ''}" for each in (*given, *named)]
    return ", ".join(
        ["self", *texts[: len(given)], *(["*"] if named else []), *texts[len(given) :]]
    )


def _default(field: Any) -> str | None:
    if field.default_factory is not _MISSING:
        return "=_missing"
    return None if field.default is _MISSING else f"=_default_{field.name}"


def _repr(names: list[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({values})"

    return __repr__


def _compared(cls: Any, fields: dict[str, Any], *, frozen: bool) -> None:
    cls.__eq__ = _equal(_values([field.name for field in fields.values() if field.compare]))
    hashed = [
        field.name
        for field in fields.values()
        if (field.compare if field.hash is None else field.hash)
    ]
    cls.__hash__ = _hash(_values(hashed)) if frozen else None


def _values(names: list[str]) -> Callable[[Any], Any]:
    if not names:
        return lambda self: ()
    if len(names) == 1:
        single = attrgetter(names[0])
        return lambda self: (single(self),)
    return attrgetter(*names)


def _equal(values: Callable[[Any], Any]) -> Callable[[Any, object], Any]:
    def __eq__(self: Any, other: object) -> Any:
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    return __eq__


def _hash(values: Callable[[Any], Any]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _freeze(cls: Any, names: frozenset[str]) -> None:
    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
