"""Tests of omnigraph/exec/mutate."""
