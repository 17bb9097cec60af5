"""Schema migration: a plan of schema changes, done as one commit."""
