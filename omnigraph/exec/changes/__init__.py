"""Diff, change feed and export: the differences of two commits, and entities as JSON."""
