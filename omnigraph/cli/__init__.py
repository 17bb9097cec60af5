"""Command line over `Graph`: each command opens a graph, makes one call and shows one result.

Results go to standard output, everything else to standard error. This room alone imports typer.
"""
