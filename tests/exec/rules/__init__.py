"""Tests of omnigraph/exec/rules."""
