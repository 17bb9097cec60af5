"""CPU seconds and private memory of a process and all that it started: driver, JVM and workers.

Invariant: the CPU seconds of a process that ended stay in the sum. Memory is RssAnon, which leaves
out what is mapped from files; of workers it is that of the largest alone.
"""

import os
import threading
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


class Watch:
    """Samples this process and all it started: CPU, and the private memory of each part."""

    def __init__(self) -> None:
        self._cpu: dict[int, float] = {}
        self._peaks = {"driver": 0, "JVM": 0, "worker": 0}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def cpu(self) -> float:
        """CPU seconds so far, those of processes that ended too."""
        self._sample()
        return sum(self._cpu.values())

    def peaks(self) -> dict[str, int]:
        """The most that each part had since the last time, in MB."""
        with self._lock:
            peaks = {f"{part} MB": size // 1000 for part, size in self._peaks.items()}
            self._peaks = dict.fromkeys(self._peaks, 0)
        return peaks

    def stop(self) -> None:
        """Sample no more."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            self._sample()

    def _sample(self) -> None:
        own = os.getpid()
        with self._lock:
            for pid, name in _tree(own):
                fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
                if len(fields) > 12:
                    self._cpu[pid] = (int(fields[11]) + int(fields[12])) / _TICK
                part = "driver" if pid == own else "JVM" if name == "java" else "worker"
                status = _read(f"/proc/{pid}/status").partition("RssAnon:")[2].split()
                if status:
                    self._peaks[part] = max(self._peaks[part], int(status[0]))


def _tree(root: int) -> list[tuple[int, str]]:
    children: dict[int, list[tuple[int, str]]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        head, _, tail = _read(f"{entry}/stat").rpartition(")")
        if tail:
            parent, name = int(tail.split()[1]), head.partition("(")[2]
            children.setdefault(parent, []).append((int(entry.name), name))
    seen, waiting = [], [(root, "")]
    while waiting:
        seen.append(waiting.pop())
        waiting += children.get(seen[-1][0], [])
    return seen


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
