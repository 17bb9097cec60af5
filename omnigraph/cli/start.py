"""Process entry point: runs the command, then ends without taking the interpreter down.

Invariant: from the first import on an interrupt is one word and a status. The process ends as soon
as its result is written: a query that was given up may still be at work in a thread, and taking the
interpreter down under it would end in an abort.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn

INTERRUPTED = 130
INTERRUPTED_WORD = b"interrupted\n"


def server_program() -> NoReturn:
    """Run `omnigraph serve` under its other name, `omnigraph-server`."""
    sys.argv[1:1] = ["serve"]
    program()


def program() -> NoReturn:
    """Run the command, and end the process with its status."""
    try:
        from omnigraph.cli.app import main

        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        status = INTERRUPTED
    if status == INTERRUPTED:  # also where Typer was the one to hear it
        os.write(2, INTERRUPTED_WORD)
    _end(status)


def _end(status: int) -> NoReturn:
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except BaseException:  # noqa: BLE001  # reported already, or interrupted once more
        pass
    os._exit(status)
