"""The program as a process that starts at once.

Nearly all the time of a short command goes into loading what it needs. One process has loaded it,
and used nothing of it, and forks another for each call: with the caller's arguments, folder,
environment, standard streams and, in the end, status. What only a new interpreter shows (which
modules are loaded, how long that takes, closed streams, signals) is tested with `PROGRAM`.
"""

import atexit
import functools
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CALLER = """\
import json, os, socket, sys
call = {{"words": sys.argv[1:], "folder": os.getcwd(), "env": dict(os.environ)}}
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
    door.connect({door!r})
    socket.send_fds(door, [json.dumps(call).encode()], [0, 1, 2])
    status = int(door.recv(64))
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@functools.cache
def program() -> str:
    """An executable that does what `omnigraph` does, in a process of its own."""
    folder = tempfile.TemporaryDirectory(prefix="omnigraph-warm-")
    door, caller = Path(folder.name, "door"), Path(folder.name, "omnigraph")
    script = Path(folder.name, "call.py")
    script.write_text(_CALLER.format(door=str(door)))
    caller.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS {script} "$@"\n')
    caller.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.warm_server", str(door)],
        cwd=ROOT,
        stdin=subprocess.PIPE,  # its end tells the server that nobody calls any more
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    server.stdout.close()
    atexit.register(folder.cleanup)
    atexit.register(server.wait)
    assert server.stdin is not None
    atexit.register(server.stdin.close)
    return str(caller)
