"""A driver that dies in a stage of its load on Spark.

Run as a program with a graph, a file, a mode and a stage or a failpoint, it kills itself there.
"""

import os
import signal
import sys
from typing import Any

import omnigraph as og
from omnigraph.pipeline.session import session
from omnigraph.storage import failpoints

if __name__ == "__main__":
    uri, file, mode, place = sys.argv[1:]
    graph = og.open(uri)

    def tell(progress: Any) -> None:
        if progress.stage == place:
            os.kill(os.getpid(), signal.SIGKILL)

    if place in failpoints.COMMIT:
        failpoints.arm(place, "kill", 1)
    graph.load(file, mode, engine="spark", spark=session(master="local[2]"), progress=tell)
