"""Spark pipeline: the steps of one process over data too big for it.

Spark hands out the work and tries it again when a worker dies; the tasks run the functions that one
process runs. This room alone imports pyspark, and only when a session is asked for.
"""
