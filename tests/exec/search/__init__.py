"""Tests of omnigraph/exec/search."""
