"""Parsers and formatters of the two languages: text to a syntax tree with positions, and layout.

`schema` reads `.pg`, `query` reads `.gq`. Nothing here knows whether a name means anything: that is
the catalog's and the plan's to say. This room alone imports lark.
"""
