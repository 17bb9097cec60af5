"""Bulk load: input files to decoded columns to checked fragments; no query engine on the way."""
