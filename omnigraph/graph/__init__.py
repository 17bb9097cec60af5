"""Public entry to a graph: `open`, `init` and `Graph`."""

import gc

from omnigraph.extras import defer_pandas, require_posix

# Modules make objects that stay: a garbage collection among them frees nothing and takes a quarter
# of the time that loading them takes.
_collects = gc.isenabled()
gc.disable()
try:
    require_posix()
    # Before anything below converts a first value with Arrow.
    defer_pandas()

    from omnigraph.graph.by_address import backup, check_at, init, open
    from omnigraph.graph.door import Graph
finally:
    if _collects:
        gc.enable()

__all__ = ["Graph", "backup", "check_at", "init", "open"]
