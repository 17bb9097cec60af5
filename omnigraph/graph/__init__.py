"""The one door to a graph."""

from omnigraph.graph.door import Graph, init, open

__all__ = ["Graph", "init", "open"]
