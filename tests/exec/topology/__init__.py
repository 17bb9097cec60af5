"""Tests of omnigraph/exec/topology."""
