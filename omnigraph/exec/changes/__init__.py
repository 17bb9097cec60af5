"""Diff, change feed and export: what differs between commits, and how an entity is written out."""
