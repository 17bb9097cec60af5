"""A second process with the graph open and its caches warm, which runs calls for the history."""

import contextlib
import multiprocessing.connection
import pickle
from typing import Any

import omnigraph as og
from omnigraph.storage.manifest import manifest
from tests import forked
from tests.model import oracles
from tests.model.data import State


class OtherProcess:
    """A child process that holds one handle of the graph."""

    def __init__(self, uri: str, options: dict[str, str] | None) -> None:
        context = forked.context()
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, uri, options), daemon=True)
        self._process.start()
        theirs.close()

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the graph there; its `commit` ids and counts, or its error."""
        return self._ask(("call", method, args, kwargs))

    def check_point(self, where: str, branch: str, state: State, probe: int) -> None:
        """Hold the reads of the other process against the model."""
        self._ask(("check", where, {"branch": branch}, state, probe))

    def _ask(self, request: tuple[Any, ...]) -> Any:
        self._pipe.send(request)
        if not self._pipe.poll(120):
            raise AssertionError(f"the second process did not answer {request[0]} in 120 s")
        failed, value = self._pipe.recv()
        if failed:
            raise value
        return value

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            self._pipe.send(("end",))
            self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def call(graph: og.Graph, method: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method of a graph by its dotted name."""
    target: Any = graph
    for name in method.split("."):
        target = getattr(target, name)
    return target(*args, **kwargs)


def _serve(
    pipe: multiprocessing.connection.Connection, uri: str, options: dict[str, str] | None
) -> None:
    manifest.RECLAIM_AGE_S = 0.0
    graph = og.open(uri, storage_options=options)
    while True:
        request = pipe.recv()
        if request[0] == "end":
            graph.close()
            return
        try:
            if request[0] == "check":
                oracles.check_point(graph, *request[1:])
            else:
                _, method, args, kwargs = request
                call(graph, method, *args, **kwargs)
            pipe.send((False, None))
        except Exception as error:  # noqa: BLE001 - the caller gets whatever it is
            pipe.send((True, _portable(error)))


def _portable(error: Exception) -> Exception:
    """The error itself, if it pickles; else one that says what it was."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - as many ways not to pickle as there are errors
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
