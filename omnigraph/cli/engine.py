"""The engine, loaded the quick way.

pyarrow looks for pandas as soon as it meets a plain value, and loading pandas takes longer than a
point query. A command has no use for it, so pyarrow is made to look while pandas cannot be found.
It asks again when something does convert to pandas, and Spark loads pandas by itself.

Invariant: this is done in the command's own process alone, never in a program that imports us.
"""

from __future__ import annotations

import logging
import sys
import warnings
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

from omnigraph.cli.scope import scope

if TYPE_CHECKING:
    from omnigraph.graph import Graph


def open_graph(uri: str, *, read_only: bool = False) -> Graph:
    """The graph at an address."""
    _prepare()
    from omnigraph.graph import open as open_

    return open_(uri, read_only=read_only)


def init_graph(uri: str, schema: str) -> Graph:
    """A new graph at an address."""
    _prepare()
    from omnigraph.graph import init

    return init(uri, schema)


class _NoPandas(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _warnings() -> logging.Handler:
    """Warnings on standard error, but for those of Spark's bridge: it logs, as nobody in
    particular, the tracebacks of what it raises and we tell, an interrupt for one."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    if not scope().debug:
        handler.addFilter(lambda record: record.name.partition(".")[0] not in ("root", "py4j"))
    return handler


def _prepare() -> None:
    # Spark's launcher forks and at once runs another program, which is safe.
    warnings.filterwarnings("ignore", "lance is not fork-safe", UserWarning)
    if not logging.root.handlers:
        logging.root.addHandler(_warnings())
    if "pandas" in sys.modules or "pyarrow.dataset" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow.dataset  # noqa: F401
    finally:
        sys.meta_path.remove(finder)
