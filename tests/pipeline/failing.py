"""A load whose tasks fail twice, once by an error and once by dying, before they succeed.

Run as a program with the path of a graph and of a file, it loads the file on Spark and prints what
was loaded. It has a session of its own: one that tries tasks again. The task is a function of the
program itself, so it reaches the workers by value.
"""

import json
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

from pyspark import TaskContext

import omnigraph as og
from omnigraph.pipeline import executors
from omnigraph.pipeline.session import session


def failing_task(work: Callable[[Any], Any], item: bytes) -> bytes:
    """Do the work, files and all, and lose the result on the first two attempts."""
    done = pickle.dumps(work(pickle.loads(item)))
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    if attempt == 0:
        raise OSError("the result is lost")
    if attempt == 1:
        os._exit(1)
    return done


if __name__ == "__main__":
    spark = session(master="local[2,4]")
    executors.pickled_task = failing_task
    done = og.open(sys.argv[1]).load(sys.argv[2], "append", engine="spark")
    sys.stdout.write(json.dumps({"nodes": done.nodes, "edges": done.edges}))
    sys.stdout.flush()
    spark.stop()
