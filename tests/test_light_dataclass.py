"""Dataclasses that are cheap to define behave as those of the standard library."""

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from dataclasses import field
from typing import Any, Generic, TypeVar

import pytest

from omnigraph.light_dataclass import dataclass

T = TypeVar("T")
Make = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Point:
    """At module level, so that it pickles."""

    x: int
    y: tuple[int, ...] = (1,)
    note: str = field(default="n", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Far(Point):
    """With a field more."""

    z: list[int] = field(default_factory=list, hash=False)
    size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.z))


@dataclass(eq=False)
class Failed(Exception):
    """An error with facts."""

    table: str
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.table} has {self.rows}"


def classes(make: Make) -> list[Any]:
    """The same classes, made by one decorator or the other."""

    @make(frozen=True, slots=True)
    class Plain:
        """Frozen, with slots."""

        a: int
        b: str = "b"
        c: dict[str, int] = field(default_factory=dict, compare=False)

    @make
    class Open:
        """Neither."""

        a: int
        b: str = field(default="q", repr=False)

    @make(frozen=True)
    class Loose:
        """Frozen, without slots."""

        a: int = 0
        b: int = field(default=5, init=False)

    @make(slots=True)
    class Boxed(Generic[T]):
        """Of some type."""

        a: T
        b: "T | None" = None

    @make(frozen=True, slots=True)
    class Empty:
        """Nothing."""

    @make(frozen=True, slots=True)
    class Later(Plain):
        """A field more, and another default."""

        b: str = "later"
        d: int = 4

    @make(frozen=True, slots=True)
    class Named:
        """By its name alone."""

        d: int = field(default=3, compare=False, repr=False, kw_only=True)

    @make(frozen=True, slots=True)
    class Text(Named):
        """A field without a default behind one that has its name alone."""

        a: str

    return [Plain, Open, Loose, Boxed, Empty, Later, Named, Text]


GIVEN: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, "x"), {}),
    ((1, "x", {"k": 1}), {}),
    ((1, "x", {"k": 1}, 9), {}),
    ((), {"a": 1}),
    ((), {"a": 1, "d": 2}),
    ((), {"a": 1, "unknown": 2}),
]


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (AttributeError, TypeError, ValueError) as raised:
        return type(raised).__name__


def facts(made: Any) -> list[Any]:
    """Everything that a class is asked for, as far as two classes can have it alike."""
    one = [outcome(lambda g=given, n=named: made(*g, **n)) for given, named in GIVEN]
    values = [value for value in one if not isinstance(value, str)]
    seen: list[Any] = [value if isinstance(value, str) else repr(value) for value in one]
    seen += [left == right for left in values for right in values]
    seen += [outcome(lambda v=value: hash(v)) for value in values]
    # The standard library means to refuse a name that is no field as it refuses a field.
    for name in ("a", "other"):
        seen += [outcome(lambda v=value, n=name: setattr(v, n, 7)) is None for value in values]
        seen += [outcome(lambda v=value, n=name: delattr(v, n)) is None for value in values]
    seen += [outcome(lambda v=value: repr(dataclasses.replace(v, a=3))) for value in values]
    seen += [outcome(lambda v=value: dataclasses.asdict(v)) for value in values]
    seen += [outcome(lambda v=value: repr(copy.copy(v))) for value in values]
    seen += [made.__match_args__, made.__doc__, made.__name__, hasattr(made, "__slots__")]
    seen += [[(each.name, each.init, each.compare) for each in dataclasses.fields(made)]]
    seen += [[each.name for each in inspect.signature(made).parameters.values()]]
    return seen


def test_classes_behave_as_those_of_the_standard_library() -> None:
    for own, other in zip(classes(dataclass), classes(dataclasses.dataclass), strict=True):
        assert facts(own) == facts(other), own.__name__


def test_values_pickle_match_and_inherit() -> None:
    far = Far(1, (2,), z=[3, 4])
    assert pickle.loads(pickle.dumps(far)) == far
    assert copy.deepcopy(far).size == 2
    match far:
        case Far(x, y):
            assert (x, y) == (1, (2,))
    assert repr(far) == "Far(x=1, y=(2,), z=[3, 4], size=2)"
    assert hash(far) == hash(Far(1, (2,), "other", z=[]))
    with pytest.raises(dataclasses.FrozenInstanceError):
        far.x = 3  # type: ignore[misc]
    with pytest.raises(Failed, match="t has 3") as raised:
        raise Failed("t", 3)
    again = outcome(lambda: pickle.loads(pickle.dumps(raised.value)))
    assert isinstance(again, Failed | str)
    assert {raised.value} == {raised.value}


def test_what_is_not_plain_is_left_to_the_standard_library() -> None:
    @dataclass(order=True)
    class Ordered:
        a: int

    @dataclass
    class Own:
        a: int

        def __repr__(self) -> str:
            return "own"

    assert Ordered(1) < Ordered(2)
    assert repr(Own(1)) == "own"
    with pytest.raises(ValueError, match="mutable default"):

        @dataclass
        class Wrong:
            a: list[int] = []  # noqa: RUF012

    with pytest.raises(TypeError, match="non-default argument"):

        @dataclass
        class Disordered:
            a: int = 1
            b: int  # type: ignore[misc]


def test_a_class_compiles_one_method_when_it_is_first_used() -> None:
    compiled: list[object] = []
    sys.setprofile(
        lambda frame, event, called: (
            compiled.append(called)
            if event == "c_call" and called.__name__ == "exec"  # type: ignore[union-attr]
            else None
        )
    )
    try:
        plain = classes(dataclass)[0]
        defined = len(compiled)
        plain(1)
        plain(a=2)
        inspect.signature(plain)
    finally:
        sys.setprofile(None)
    assert (defined, len(compiled)) == (0, 1)


def test_keyword_only_classes_and_those_with_a_repr_of_their_own_are_as_the_standard_ones() -> None:
    def declared(make: Any) -> Any:
        @make(frozen=True, slots=True, kw_only=True)
        class Facts:
            a: int
            b: str | None = None

        @make(frozen=True, slots=True, kw_only=True, repr=False)
        class More(Facts):
            c: tuple[int, ...]

            def __repr__(self) -> str:
                return f"more {self.c}"

        return Facts, More

    seen = []
    for make in (dataclass, dataclasses.dataclass):
        facts, more = declared(make)
        one = more(a=1, c=(2,))
        assert one == more(c=(2,), a=1, b=None)
        assert hash(one) == hash(more(c=(2,), a=1))
        with pytest.raises(TypeError):
            facts(1)
        with pytest.raises(dataclasses.FrozenInstanceError):
            one.a = 2
        fields = [(each.name, each.kw_only) for each in dataclasses.fields(more)]
        seen.append((repr(one), repr(facts(a=3)).rpartition(".")[2], fields, more.__match_args__))
        assert dataclasses.replace(one, a=5).a == 5
    assert seen[0] == seen[1]
