"""The storage version of a graph: the one number this program reads and writes.

Invariant: no other module knows the number, and nothing migrates a graph in place. A format change
is a new number and a rebuild by export and load.
"""

INTERNAL_SCHEMA_VERSION = 4
