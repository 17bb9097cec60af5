"""Tests of omnigraph/storage/upkeep."""
