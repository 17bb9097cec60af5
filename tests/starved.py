"""A write whose disk gives out under it: no room, no inodes, or no permission from one moment on.

The limits are those of a process, so they end with it and need no privileges: a file may not grow
(as on a full disk or beyond a quota), no file may be opened or made (as without inodes or
descriptors), or the folders may not be written to.
"""

import os
import resource
import signal
import stat
import sys

import omnigraph as og
from omnigraph.storage import failpoints
from tests.power_cut_work import INSERT, PAIR, PEOPLE, SCHEMA

FULL, NO_FILES, READ_ONLY = "full", "no files", "read-only"
WAYS = (FULL, NO_FILES, READ_ONLY)
TYPED, DONE = 3, 4
"""How the process ends: with an error of ours, or with the write done."""


def starve(how: str, root: str) -> None:
    """From here on the disk gives nothing more."""
    if how == FULL:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    elif how == NO_FILES:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
    elif os.geteuid() == 0:
        os.setresuid(65534, 65534, 65534)
    else:
        for folder, _, _ in os.walk(root):
            os.chmod(folder, stat.S_IRUSR | stat.S_IXUSR)


def work(uri: str, place: str, how: str, branch: str, durability: str) -> None:
    """One write to three tables that starves at a failpoint."""
    graph = og.open(uri, durability=durability)
    # Load what the first query and write load: the folder of the sources may be out of reach later.
    graph.query(PEOPLE)
    with og.init(f"{uri}.first", SCHEMA, durability="os") as other:
        other.mutate(PAIR, {"a": "a", "b": "b"})
    real = failpoints.hit

    def hit(name: str) -> None:
        if name == place:
            starve(how, uri)
        real(name)

    failpoints.hit = hit
    if not place:
        starve(how, uri)
    try:
        for number in range(12 if place.startswith(("fold", "commit.", "sidecar.c")) else 1):
            graph.mutate(INSERT, {"n": f"fill{number}"}, branch=branch)
        graph.mutate(PAIR, {"a": "x", "b": "y"}, branch=branch)
    except og.OmnigraphError:
        os._exit(TYPED)
    except BaseException as cause:  # noqa: BLE001  the parent sees the code
        sys.stderr.write(f"{type(cause).__name__}: {cause}\n")
        os._exit(1)
    os._exit(DONE)
