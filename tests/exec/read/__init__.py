"""Tests of omnigraph/exec/read."""
