"""Memory of this process as Linux counts it, in mebibytes.

`ru_maxrss` is not used: a child process inherits that of its parent. `VmHWM` is the highest
resident size of the program that runs, and `RssAnon` what it holds now without mapped files.
"""

from pathlib import Path


def memory_mib(field: str) -> float:
    """Return a line of the process's status: VmHWM, RssAnon or VmRSS."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def figures() -> dict[str, float]:
    """Return the two figures that a bench reports of itself."""
    return {"peak_mib": memory_mib("VmHWM"), "anonymous_mib": memory_mib("RssAnon")}
