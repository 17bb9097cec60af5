"""Supervisor process: binds the socket, starts worker processes and restarts those that die.

Invariant: it never loads the engine. The socket is bound before the first worker starts and stays
open while one is restarted, so that a connection waits instead of being refused. SIGTERM and SIGINT
drain the workers and end with status 0; SIGHUP is handed on.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from omnigraph import environment
from omnigraph.errors import BadRequest
from omnigraph.server.serve_settings import SETTINGS_FILE, ServerSettings

_BACKLOG = 1024
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_GRACE_S = 10.0
_SOON_S = 2.0
_DELAYS_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
_MEMORY_SHARE = 0.5
# Arrow's own allocator keeps what threads have freed: under mixed load a worker grew twice as fast.
_ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
_CGROUP_FILES = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


@dataclass
class _Child:
    """One slot of the supervisor, and the process in it."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    ready: int | None = None  # where it says that it listens
    started: float = 0.0
    failures: int = 0
    start_after: float = 0.0
    reload_when_ready: bool = False  # SIGHUP would end a worker that has no handler for it yet


class Supervisor:
    """Keeps the workers of one server running."""

    def __init__(self, settings: ServerSettings, say: Callable[[str, str], None]) -> None:
        self._say = say  # called once, with the address, when every worker listens
        self._folder = Path(tempfile.mkdtemp(prefix="omnigraph-serve-"))
        self._settings = replace(settings, run_folder=str(self._folder))
        self._children = [_Child(number) for number in range(settings.workers)]
        self._stopping = False
        self._ready: set[int] = set()
        self._life_read, self._life_write = os.pipe()
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)

    def run(self) -> int:
        """Serve until told to stop; the status to end with."""
        try:
            (self._folder / SETTINGS_FILE).write_bytes(self._settings.to_json())
            with _listening(self._settings.host, self._settings.port) as self._socket:
                self._catch_signals()
                return self._watch()
        finally:
            self._kill_all()
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def address(self) -> str:
        """Host and port as they are listened on."""
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    # ---- signals

    def _catch_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write)
        for number in (*_STOP_SIGNALS, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, self._note)

    def _note(self, number: int, _: object) -> None:
        if number in _STOP_SIGNALS:
            self._stopping = True
        elif number == signal.SIGHUP:
            for child in self._children:
                if child.ready is None:
                    _send(child, signal.SIGHUP)
                else:
                    child.reload_when_ready = True

    # ---- watching

    def _watch(self) -> int:
        while not self._stopping:
            now = time.monotonic()
            for child in self._children:
                if child.process is None and now >= child.start_after:
                    self._start(child)
                elif child.process is not None and child.process.poll() is not None:
                    if not self._ready and child.failures == 0:
                        return child.process.returncode or 1  # it said why it cannot start
                    self._note_death(child)
            self._wait()
        return self._drain()

    def _wait(self) -> None:
        pipes = [child.ready for child in self._children if child.ready is not None]
        with contextlib.suppress(InterruptedError):
            readable, _, _ = select.select([self._wake_read, *pipes], [], [], 0.5)
            for pipe in readable:
                data = b""
                with contextlib.suppress(BlockingIOError):
                    data = os.read(pipe, 4096)
                if pipe != self._wake_read:
                    self._note_ready(pipe, listens=bool(data))

    def _note_ready(self, pipe: int, *, listens: bool) -> None:
        child = next(each for each in self._children if each.ready == pipe)
        os.close(pipe)
        child.ready = None
        if not listens:
            return
        if child.reload_when_ready:
            child.reload_when_ready = False
            _send(child, signal.SIGHUP)
        was_ready = len(self._ready) == len(self._children)
        self._ready.add(child.number)
        if not was_ready and len(self._ready) == len(self._children):
            self._say(self.address, self._settings.access)

    def _start(self, child: _Child) -> None:
        ready_read, ready_write = os.pipe()
        descriptors = (self._socket.fileno(), ready_write, self._life_read)
        words = [str(self._folder), *map(str, descriptors)]
        child.process = subprocess.Popen(
            [sys.executable, "-m", "omnigraph.server.worker", *words],
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
            env={**_ALLOCATOR, **environment.current(), **_budgets(self._settings)},
        )
        os.close(ready_write)
        child.ready = ready_read
        child.started = time.monotonic()

    def _note_death(self, child: _Child) -> None:
        assert child.process is not None
        lived = time.monotonic() - child.started
        child.failures = child.failures + 1 if lived < _SOON_S else 0
        delay = _DELAYS_S[min(child.failures, len(_DELAYS_S) - 1)]
        status = child.process.returncode
        sys.stderr.write(f"worker {child.process.pid} ended with {status}; starting another\n")
        child.process = None
        child.start_after = time.monotonic() + delay

    # ---- stopping

    def _drain(self) -> int:
        """Let the workers finish what is in flight."""
        self._socket.close()
        living = [(c, c.process) for c in self._children if c.process and c.process.poll() is None]
        for child, _ in living:
            _send(child, signal.SIGTERM)
        deadline = time.monotonic() + self._settings.limits.drain_seconds + _GRACE_S
        status = 0
        for child, process in living:
            try:
                ended = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                status = 1
                continue
            # One that was still starting has no handler yet, and has accepted nothing.
            if not (child.ready is not None and ended == -signal.SIGTERM):
                status = max(status, abs(ended))
        return status

    def _kill_all(self) -> None:
        for child in self._children:
            if child.process is not None and child.process.poll() is None:
                child.process.kill()
                child.process.wait()


def _send(child: _Child, number: signal.Signals) -> None:
    if child.process is not None and child.process.poll() is None:
        child.process.send_signal(number)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except OSError as cause:
        sock.close()
        raise BadRequest(
            f"cannot listen on {host}:{port}: {cause}", "choose another --bind"
        ) from None
    sock.set_inheritable(True)
    return sock


def _budgets(settings: ServerSettings) -> dict[str, str]:
    """Memory budgets of a worker: a share of the container's memory, unless they are set."""
    memory = container_bytes()
    if memory is None:
        return {}
    share = int(memory * _MEMORY_SHARE / settings.workers)
    variables = (environment.QUERY_MEMORY, environment.CACHE)
    return {
        variable.name: str(min(share // 2, variable.default))
        for variable in variables
        if variable.name not in environment.current()
    }


def container_bytes(files: tuple[str, ...] = _CGROUP_FILES) -> int | None:
    """The memory that the container may use; None where it may use all."""
    for path in files:
        with contextlib.suppress(OSError, ValueError):
            limit = int(Path(path).read_text())
            if limit < 1 << 50:
                return limit
    return None


def supervise(settings: ServerSettings, say: Callable[[str, str], None]) -> int:
    """Run a server until it is told to stop."""
    return Supervisor(settings, say).run()
