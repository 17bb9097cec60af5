"""Work done in a process of its own, so that a failpoint can kill it or others can race it.

Processes come from one fork server that has loaded the engine and used nothing of it, so that each
starts in milliseconds and none inherits one that runs.
"""

import multiprocessing
import multiprocessing.context
import os
from collections.abc import Callable
from typing import Any

from omnigraph import costs

KILLED = -9
# What a child would otherwise load each time anew: late imports of the engine, and whatever the
# test module imports that holds the work.
_LOADED = [
    "pytest",
    "datafusion",
    "pyarrow.compute",
    "pyarrow.dataset",
    "omnigraph.graph",
    "omnigraph.pipeline.load",
    "omnigraph.pipeline.upkeep",
    "omnigraph.plan.compile",
    "tests.storage.conftest",
    "tests.storage.world",
]


class _Process(multiprocessing.context.ForkServerProcess):
    """A child with the thresholds of the process that made it, not those of the fork server."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._thresholds = os.environ.get(costs.VARIABLE, "")

    def run(self) -> None:
        os.environ[costs.VARIABLE] = self._thresholds
        costs.use_environment()
        super().run()


class _Context(multiprocessing.context.ForkServerContext):
    Process = _Process


def context() -> multiprocessing.context.ForkServerContext:
    """The context every child comes from."""
    made = _Context()
    made.set_forkserver_preload(_LOADED)
    return made


def run(work: Callable[..., None], *arguments: Any, timeout_s: float = 90) -> int:
    """Run a function of a test module in a child; its exit code, -9 when it was killed."""
    process = context().Process(target=work, args=arguments)
    process.start()
    process.join(timeout_s)
    if process.is_alive():
        process.kill()
        raise AssertionError("the child did not end")
    assert process.exitcode is not None
    return process.exitcode
