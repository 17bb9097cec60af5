"""Remote client: a graph that a server has, with the methods of a local one (`connect`)."""

from omnigraph.remote.connecting import connect
from omnigraph.remote.remote_graph import RemoteGraph

__all__ = ["RemoteGraph", "connect"]
