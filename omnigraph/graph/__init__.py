"""Public entry to a graph: `open`, `init` and `Graph`."""

from omnigraph.extras import defer_pandas

# Before anything below converts a first value with Arrow.
defer_pandas()

from omnigraph.graph.door import Graph, backup, check_at, init, open  # noqa: E402

__all__ = ["Graph", "backup", "check_at", "init", "open"]
