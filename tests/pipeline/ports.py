"""Ports for a cluster that a test starts."""

import socket
import time
from contextlib import suppress


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def wait_until_it_listens(port: int) -> None:
    """Wait for a server, which takes as long as it takes."""
    until = time.monotonic() + 600
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError("the server did not start")
