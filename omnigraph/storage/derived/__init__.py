"""Derived files of a graph: topology that outlives a process, and is never the authority."""
