"""What must be done? A parsed query and a catalog become a checked plan.

A plan holds table keys, variables and typed expressions, never source text, so that one process
and Spark can run the same plan. This room is pure: it reads no file and keeps no state.
"""
