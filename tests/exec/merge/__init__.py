"""Tests of omnigraph/exec/merge."""
