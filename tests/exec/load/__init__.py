"""Tests of omnigraph/exec/load."""
