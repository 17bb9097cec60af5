"""Tests of omnigraph/exec/upkeep."""
