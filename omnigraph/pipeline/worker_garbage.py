"""Garbage collector of a Python worker of Spark: what its first task loaded is looked at once.

PySpark collects garbage after every task of a worker that it uses again, and that looks at each
object of each module: 0.1 s a task, which is more than many tasks take.

Invariant: nothing is kept alive by this but cycles that the first task of a process left behind.
"""

import gc
from functools import cache


@cache
def spare_what_is_loaded() -> None:
    """Leave the objects that are there out of later collections, once a process; for the end of a
    task. Elsewhere than in a worker nothing happens."""
    from pyspark import TaskContext  # noqa: PLC0415  a worker has it loaded

    if TaskContext.get() is not None:
        gc.collect()
        gc.freeze()
