"""What did the author write? Text becomes a tree in which every part knows its place.

`schema` reads `.pg`, `query` reads `.gq`. Nothing here knows whether a name means anything: that is
the catalog's and the plan's to say. This room alone imports lark.
"""
