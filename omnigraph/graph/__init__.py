"""The one door to a graph."""

from omnigraph.graph.door import Graph, check_at, init, open

__all__ = ["Graph", "check_at", "init", "open"]
