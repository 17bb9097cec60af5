"""Deferred imports (lazy loading): names of modules that most processes never need.

    if TYPE_CHECKING:
        from omnigraph.exec.merge.run import run_merge
    else:
        run_merge = deferred("omnigraph.exec.merge.run", "run_merge")

Loading every room takes three times as long as loading Arrow and Lance, and a process that asks one
question needs a third of them.

Invariant: a deferred name is used as the name itself is, called or asked for an attribute; its
module is imported by the first use. A test resolves every one of them. A module that the disk does
not give is a `StorageFailed`, and the next use tries again.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from time import monotonic
from typing import Any, Union

from omnigraph.errors import StorageFailed


class Deferred:
    """A name of a module that is not imported yet."""

    __slots__ = ("_module", "_name", "_value")

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    @property
    def resolved(self) -> Any:
        """What the name stands for."""
        try:
            return self._value
        except AttributeError:
            self._value: Any = self._imported()
        return self._value

    def _imported(self) -> Any:
        try:
            with uncollected():
                home = import_module(self._module)
                if not hasattr(home, self._name):  # a module of that package
                    import_module(f"{self._module}.{self._name}")
        except OSError as cause:  # no descriptor is left, or the disk does not answer
            raise StorageFailed(f"imported {self._module}", str(cause)) from cause
        return getattr(home, self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            value = self._value
        except AttributeError:
            value = self.resolved
        return value(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_value":
            raise AttributeError(name)
        return getattr(self.resolved, name)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, self.resolved)

    def __or__(self, other: Any) -> Any:
        return Union[self, other]  # noqa: UP007  a union of what is no type yet

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def __repr__(self) -> str:
        return f"{self._module}.{self._name}"


def deferred(module: str, name: str) -> Any:
    """A name of a module, imported by its first use."""
    return Deferred(module, name)


@contextmanager
def uncollected() -> Iterator[None]:
    """Import modules without garbage collections. Modules make objects that stay: a collection
    among them frees nothing and takes a quarter of the time that loading them takes. At the end
    they count as old, so the next collection of young objects does not walk them either."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if gc.get_freeze_count() == 0:  # else a program froze objects of its own
                gc.freeze()
                gc.unfreeze()
            gc.enable()


_PAUSE_MAX_S = 5.0
_pauses_lock = Lock()
_pauses = 0
_paused_at = 0.0


@contextmanager
def uncollected_trees() -> Iterator[None]:
    """Pause garbage collection while a thread makes many objects without cycles.

    Pauses of several threads overlap; one that would begin more than 5 s after the first of them
    is left out, so that collections run again.
    """
    global _pauses, _paused_at
    with _pauses_lock:
        if not _pauses:
            joins = gc.isenabled()
            _paused_at = monotonic()
        else:
            joins = monotonic() - _paused_at < _PAUSE_MAX_S
        if joins:
            _pauses += 1
            gc.disable()
    try:
        yield
    finally:
        if joins:
            with _pauses_lock:
                _pauses -= 1
                if not _pauses:
                    gc.enable()
