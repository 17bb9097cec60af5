"""Optional dependencies (extras): Spark, the web server, pandas and polars, imported on demand.

Invariant: a dependency that is missing is `NotInstalled` with the command that installs it, never
an `ImportError`. pandas is imported by a program that uses it, never because Arrow looked for it.
"""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from omnigraph.errors import NotInstalled

_SPARK = ("pyspark", "py4j", "pandas")
INSTALL_SPARK = "pip install 'omnigraph[spark]'"
_SERVER = ("starlette", "uvicorn", "httptools", "msgspec", "jinja2")
INSTALL_SERVER = "pip install 'omnigraph[server]'"
INSTALL_DRAW = "pip install 'omnigraph[draw]'"

_MCP = ("mcp", "mcp_types", *_SERVER)
INSTALL_MCP = "pip install 'omnigraph[mcp]'"


def require_posix() -> None:
    """Raise `NotInstalled` unless the system has the file locks that graphs need. Loads nothing."""
    if not _is_installed("fcntl"):
        raise NotInstalled(
            "the lock of POSIX files",
            "import fcntl",
            "Windows is not supported: use its Subsystem for Linux, or ask a server by HTTP",
        )


def has_spark() -> bool:
    """Whether everything that Spark needs of Python is installed. Loads nothing."""
    return all(map(_is_installed, _SPARK))


def require_spark() -> None:
    """Raise `NotInstalled` unless Spark is installed. Loads nothing."""
    missing = [name for name in _SPARK if not _is_installed(name)]
    if missing:
        raise NotInstalled("Spark", f"import {missing[0]}", INSTALL_SPARK)


def require_server() -> None:
    """Raise `NotInstalled` unless the web server is installed. Loads nothing."""
    missing = [name for name in _SERVER if not _is_installed(name)]
    if missing:
        raise NotInstalled("the web server", f"import {missing[0]}", INSTALL_SERVER)


def require_draw() -> None:
    """Raise `NotInstalled` unless the layout library of pictures is installed. Loads nothing."""
    if not _is_installed("rustworkx"):
        raise NotInstalled("the layout of pictures", "import rustworkx", INSTALL_DRAW)


def has_mcp() -> bool:
    """Whether the protocol of agents can be spoken. Loads nothing."""
    return all(map(_is_installed, _MCP))


def require_mcp() -> None:
    """Raise `NotInstalled` unless the protocol of agents is installed. Loads nothing."""
    missing = [name for name in _MCP if not _is_installed(name)]
    if missing:
        raise NotInstalled("MCP", f"import {missing[0]}", INSTALL_MCP)


def optional(name: str) -> ModuleType:
    """A library that results can be turned into, or `NotInstalled`."""
    try:
        return import_module(name)
    except ImportError:
        raise NotInstalled(name, f"import {name}", f"pip install {name}") from None


def _is_installed(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return find_spec(name) is not None
    except ImportError:
        return False


# pandas


@cache
def defer_pandas() -> None:
    """Keep pyarrow from importing pandas until something else imports it.

    The first value that pyarrow converts makes it look for pandas, and importing pandas takes
    longer than a point query. So it is made to look once while it finds none, and to look again
    when the program, or `to_pandas()`, has imported pandas after all.
    """
    if "pandas" in sys.modules:
        return
    arrow: Any = import_module("pyarrow")
    deferral = _PandasDeferral(lambda: arrow.table({"a": arrow.array([0])}).to_pandas())
    sys.meta_path.insert(0, deferral)
    try:
        arrow.table({"a": arrow.array([0])})
    finally:
        deferral.prober = None


class _PandasDeferral:
    """Import hook: hides pandas from one look by one thread, then announces its import."""

    def __init__(self, announce: Callable[[], object]) -> None:
        self.prober: int | None = threading.get_ident()
        self._announce = announce

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if self.prober == threading.get_ident():
            raise ModuleNotFoundError("No module named 'pandas'", name=name)
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._announce_after(spec.loader)
        return spec

    def _announce_after(self, loader: Any) -> None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            with suppress(ValueError):
                sys.meta_path.remove(self)
            with suppress(ImportError):  # a pandas that pyarrow finds too old
                self._announce()

        loader.exec_module = exec_module
