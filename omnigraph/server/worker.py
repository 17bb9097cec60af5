"""Worker process: opens the graphs, answers requests on an inherited socket, drains at SIGTERM.

Invariant: a worker shares nothing with the others but the listening socket and the storage. It ends
with status 0 after SIGTERM, and when its supervisor is gone.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from omnigraph.errors import OmnigraphError
from omnigraph.server import whole_exchange, wire
from omnigraph.server.applied_sets import AppliedSets
from omnigraph.server.asgi import ServerApp
from omnigraph.server.branch_leases import LeaseWatch
from omnigraph.server.connection import ABORT, WHOLE
from omnigraph.server.oidc_trust import trust_of_file
from omnigraph.server.policy_files import ReloadedFiles, first_policies
from omnigraph.server.refusals import HttpRefusal
from omnigraph.server.request_log import RequestLog
from omnigraph.server.serve_settings import SETTINGS_FILE, ServerSettings
from omnigraph.server.served import ServedGraphs
from omnigraph.server.upkeep_schedule import UpkeepClock, parse_schedule
from omnigraph.server.wire_errors import ErrorOutput

READY = b"ready\n"
_KEEP_ALIVE_S = 30
_WRITE_METRICS_S = 1.0
_LAST_LOOK_S = 0.3
_REFUSED = 1


class GuardedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with a deadline for the headers of a request, and JSON for what is no HTTP.

    A request that offers an upgrade (`h2c`, as clients in Java do, or `websocket`) is served as one
    that offers none. The parser takes the body of such a request for another protocol, so it is
    read again without the offer.
    """

    header_seconds = 20.0
    _late: asyncio.TimerHandle | None = None
    _is_in_headers = False
    _running: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_came()
        super().connection_lost(exc)
        running = self._running
        if running is not None and not running.response_complete:
            # The web server tells the newest request of a connection, which may wait behind it.
            running.disconnected = True
            running.message_event.set()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        while data:
            try:
                self.parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as offer:
                data = self._without_offer() + data[offer.args[0] :] if self._is_offer() else b""
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
                break
        if self._is_in_headers:  # the headers of most requests come whole, and need no timer
            self._expect_headers()

    def on_message_begin(self) -> None:
        self._is_in_headers = True
        super().on_message_begin()
        scope: Any = self.scope
        scope[ABORT] = self.transport.abort

    def _without_offer(self) -> bytes:
        """The head of a request without its offer of an upgrade, for a parser that knows none."""
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % field for field in self.headers if field[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return b"\r\n".join([*lines, b"", b""])

    def _is_offer(self) -> bool:
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def on_message_complete(self) -> None:
        if not self._is_offer():
            super().on_message_complete()

    def on_headers_complete(self) -> None:
        if self._is_offer():
            return
        self._headers_came()
        super().on_headers_complete()
        if whole_exchange.IS_KNOWN:
            scope: Any = self.scope
            scope[WHOLE] = whole_exchange.WholeExchange(self.cycle)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _expect_headers(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.header_seconds, self._too_slow)

    def _headers_came(self) -> None:
        self._is_in_headers = False
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP request. Behind a request that is not answered yet this would be
        taken for its answer: the connection ends without one."""
        running = self._running
        if (
            running is not None
            and not running.response_complete
            and (running.response_started or not running.more_body)
        ):
            self.transport.close()
            return
        body = wire.encoded(ErrorOutput(error=msg, code="bad_request"))
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class WorkerServer(uvicorn.Server):
    """The server of one worker, which leaves signals to the worker."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the worker's own."""
        yield


class Worker:
    """One worker from its start to its end."""

    def __init__(self, settings: ServerSettings, listening: socket.socket) -> None:
        self._settings = settings
        self._socket = listening
        self._log = RequestLog(as_json=settings.log_json)
        self._graphs = ServedGraphs(
            settings.graphs, settings.extras, settings.quarantined, settings.coalesce_ms
        )
        self._stopped_at = time.monotonic()

    def run(self, ready: int, life: int) -> int:
        """Serve until told to stop."""
        faults = self._graphs.open_all(require_all=self._settings.require_all_graphs)
        for graph_id, fault in faults.items():
            self._log.event("graph_not_open", graph=graph_id, cause=fault)
        policies = first_policies(self._settings, self._log)
        trusted = self._settings.oidc_trust
        trust = None if trusted is None else trust_of_file(trusted)
        self._app = ServerApp(self._settings, self._graphs, self._log, policies, trust)
        self._files = ReloadedFiles(self._settings, self._app.gate, self._log)
        self._app.sets = AppliedSets(
            self._settings, self._graphs, self._app.gate, self._files, self._log
        )
        self._clock = UpkeepClock(parse_schedule(self._settings.upkeep), self._app.jobs.start)
        self._leases = LeaseWatch(self._log.event)
        self._files.reload_tokens()  # they may have changed since the server started
        self._server = WorkerServer(self._config())
        gc.collect()
        gc.freeze()
        with asyncio.Runner(loop_factory=self._server.config.get_loop_factory()) as runner:
            runner.run(self._serve(ready, life))
        self._log.flush()
        waited = time.monotonic() - self._stopped_at
        self._app.jobs.close(max(0.0, self._settings.limits.drain_seconds - waited))
        self._app.metrics.write()
        self._graphs.close()
        return 0

    def _config(self) -> uvicorn.Config:
        settings = self._settings
        GuardedProtocol.header_seconds = settings.limits.header_seconds
        return uvicorn.Config(
            self._app,
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # nothing asks for the client's address or scheme
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(settings.limits.drain_seconds),
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )

    async def _serve(self, ready: int, life: int) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._files.reload)
        loop.add_reader(life, self._stop_alone, life)
        upkeep = loop.create_task(self._upkeep(ready))
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            upkeep.cancel()
            loop.remove_reader(life)

    async def _upkeep(self, ready: int) -> None:
        """Say when the worker listens; then leave its metrics every second."""
        loop = asyncio.get_running_loop()
        while not self._server.started:
            await asyncio.sleep(0.01)
        os.write(ready, READY)
        os.close(ready)
        while True:
            await loop.run_in_executor(None, self._app.metrics.write)
            await asyncio.sleep(_WRITE_METRICS_S)
            await loop.run_in_executor(None, self._graphs.retry)
            await loop.run_in_executor(None, self._look_at_clock)
            await loop.run_in_executor(None, self._leases.look, self._graphs.opened())
            await loop.run_in_executor(None, self._files.look)
            assert self._app.sets is not None
            for swap in await loop.run_in_executor(None, self._app.sets.look):
                swap()  # here, where no request is between its first and last look at a set

    def _look_at_clock(self) -> None:
        """Start the upkeep that became due."""
        try:
            self._clock.look(self._graphs.opened())
        except (OmnigraphError, HttpRefusal) as cause:
            self._log.event("upkeep_not_started", cause=str(cause))

    def _stop_alone(self, life: int) -> None:
        """Stop as the supervisor has died; the end of its pipe can be read for ever."""
        asyncio.get_running_loop().remove_reader(life)
        self._stop()

    def _stop(self) -> None:
        if self._app.stopping.is_set():
            return
        self._stopped_at = time.monotonic()
        self._app.jobs.stop()  # its jobs end while requests are drained
        self._app.stopping.set()  # event streams end now, and not when a client leaves
        # What was sent before is read first; every answer from now on closes its connection.
        asyncio.get_running_loop().call_later(_LAST_LOOK_S, self._close_door)

    def _close_door(self) -> None:
        self._server.should_exit = True


def main(arguments: list[str]) -> int:
    """Run a worker: its folder, and the descriptors of its socket and pipes."""
    folder, *descriptors = arguments
    listening, ready, life = map(int, descriptors)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the supervisor too
    # Spark's launcher forks and at once runs another program, which is safe.
    warnings.filterwarnings("ignore", "lance is not fork-safe", UserWarning)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    settings = ServerSettings.from_json((Path(folder) / SETTINGS_FILE).read_bytes())
    try:
        return Worker(settings, socket.socket(fileno=listening)).run(ready, life)
    except OmnigraphError as cause:
        sys.stderr.write(f"error: {cause}\n")
        return _REFUSED


def _leave(status: int) -> Any:
    # A query that was given up may still run in a thread: the interpreter is not taken down.
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _leave(main(sys.argv[1:]))
