"""Request log: lines of many workers on one pipe."""

import sys
from select import PIPE_BUF

import pytest

from omnigraph.server.request_log import RequestLog


class Pipe:
    """Standard error that keeps its writes apart."""

    def __init__(self) -> None:
        self.writes: list[str] = []

    def write(self, text: str) -> None:
        self.writes.append(text)


@pytest.mark.parametrize("as_json", [False, True])
def test_no_other_worker_can_write_into_a_line(
    as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, pipe, count = RequestLog(as_json=as_json), Pipe(), 100
    monkeypatch.setattr(sys, "stderr", pipe)
    assert [log.request({"branch": "ветка" * 9, "number": n}) for n in range(count)] == [
        n == 0 for n in range(count)
    ]
    log.request({"branch": "long" * PIPE_BUF})
    log.request({"branch": "short"})
    assert not pipe.writes
    log.flush()
    *some, long, short = pipe.writes
    assert all(len(text.encode()) <= PIPE_BUF for text in some), "a pipe may take a part of it"
    assert all(text.endswith("\n") for text in pipe.writes)
    assert 1 < len(some) < count / 5
    assert "".join(some).count("\n") == count
    assert long.count("\n") == short.count("\n") == 1
    assert log.request({"number": 0})
    log.flush()
    log.flush()
    assert len(pipe.writes) == len(some) + 3
