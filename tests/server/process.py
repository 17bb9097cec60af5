"""The server as a process: started as a user starts it, watched and ended."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

PROGRAM = (sys.executable, "-c", "from omnigraph.cli.start import program; program()", "serve")
_ADDRESS = re.compile(r"OMNIGRAPH_LISTEN_ADDR=(\S+)")


class ServerProcess:
    """A running `omnigraph serve`."""

    def __init__(
        self, *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, "--bind", "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = _ADDRESS.match(line)
        if match is None:
            self.process.wait(60)
            self._reader.join(10)
            raise AssertionError(f"it did not start: {line}{''.join(self.log)}")
        host, port = match[1].split(":")
        self.address = (host, int(port))
        self.url = f"http://{match[1]}"

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def client(self, **options: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, **options)  # type: ignore[arg-type]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it; its status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(60)
        self._reader.join(10)
        return status

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            finally:
                self.process.kill()
        self._reader.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def until(holds: object, seconds: float = 60) -> None:
    """Wait for something to hold."""
    deadline = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it never held"
        time.sleep(0.05)
