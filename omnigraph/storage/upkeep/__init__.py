"""Upkeep of tables: compaction, cleanup of old versions, repair of drift."""
