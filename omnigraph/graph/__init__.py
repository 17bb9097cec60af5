"""Public entry to a graph: `open`, `init` and `Graph`."""

from omnigraph.deferred import uncollected
from omnigraph.extras import defer_pandas, require_posix

with uncollected():
    require_posix()
    # Before anything below converts a first value with Arrow.
    defer_pandas()

    from omnigraph.graph.by_address import backup, check_at, init, open
    from omnigraph.graph.door import Graph

__all__ = ["Graph", "backup", "check_at", "init", "open"]
