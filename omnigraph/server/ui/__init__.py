"""Pages for people: how does a browser see a graph?

Invariant: a page makes the same calls on the graph as the routes do, and writes nothing else.
"""
