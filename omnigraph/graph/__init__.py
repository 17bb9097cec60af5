"""Public entry to a graph: `open`, `init` and `Graph`."""

from omnigraph.extras import defer_pandas

# Before anything below converts a first value with Arrow.
defer_pandas()

from omnigraph.graph.by_address import backup, check_at, init, open  # noqa: E402
from omnigraph.graph.door import Graph  # noqa: E402

__all__ = ["Graph", "backup", "check_at", "init", "open"]
