"""Pictures: what do commits, neighbourhoods, schemas and changes look like?

Invariant: values in, SVG out. Nothing here reads a graph.
"""
