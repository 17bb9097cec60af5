"""Tests of omnigraph/exec/changes."""
