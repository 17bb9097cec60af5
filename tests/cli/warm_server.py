"""The process that `tests.cli.warm` starts: it has loaded the program, and forks for each call."""

import gc
import importlib
import io
import json
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import redirect_stdout, suppress
from typing import Any, NoReturn

from omnigraph import costs
from omnigraph.cli import engine
from omnigraph.cli.app import main
from omnigraph.storage import failpoints

_LOADED = (
    "omnigraph.graph",  # first: it keeps the others from loading pandas
    "datafusion",
    "omnigraph.catalog.accept",
    "omnigraph.exec.upkeep.cleanup",
    "omnigraph.pipeline.load",
    "omnigraph.pipeline.upkeep",
    "omnigraph.plan.compile",
    "omnigraph.plan.lint",
    "omnigraph.plan.explain",
)


def serve(path: str) -> None:
    """Fork for every call, until whoever started this is gone."""
    engine._prepare()
    for name in _LOADED:
        importlib.import_module(name)
    sys.argv = ["omnigraph", "version"]
    with redirect_stdout(io.StringIO()), suppress(SystemExit):
        main()  # the first call of all builds what the others find
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(path)
        door.listen(64)
        os.write(1, b"ready\n")
        while door in select.select([door, 0], [], [])[0]:
            call, _ = door.accept()
            if os.fork() == 0:
                door.close()
                _answer(call)
            call.close()


def _answer(door: socket.socket) -> NoReturn:
    """Fork once more, so that somebody waits for the one who works."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    text, streams, _, _ = socket.recv_fds(door, 1 << 20, 3)
    worker = os.fork()
    if worker == 0:
        door.close()
        _work(json.loads(text), streams)
    for stream in streams:
        os.close(stream)
    _, status = os.waitpid(worker, 0)
    door.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _work(call: dict[str, Any], streams: list[int]) -> NoReturn:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["env"])
    costs.use_environment()
    failpoints._arm_from_environment(os.environ.get("OMNIGRAPH_FAILPOINTS", ""))
    sys.argv = ["omnigraph", *call["words"]]
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    status: Any = 0
    try:
        main()
    except SystemExit as end:
        status = end.code
    except BaseException:  # noqa: BLE001  # an interpreter would print it too
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(status or 0))


if __name__ == "__main__":
    serve(sys.argv[1])
