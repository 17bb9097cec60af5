"""Upkeep of a graph: optimize, index builds, cleanup, repair and check."""
