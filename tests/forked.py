"""Work done in a process of its own, so that a failpoint can kill it or others can race it.

Processes come from one fork server that has loaded the engine and used nothing of it, so that each
starts in milliseconds and none inherits one that runs.
"""

import multiprocessing
import multiprocessing.context
from collections.abc import Callable
from typing import Any

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


def context() -> multiprocessing.context.ForkServerContext:
    """The context every child comes from."""
    made = multiprocessing.get_context("forkserver")
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
